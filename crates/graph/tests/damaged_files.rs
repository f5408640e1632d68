//! Damaged copies of real files, a few for every reader; `scripts/mutate` runs thousands.
#![expect(clippy::print_stderr, reason = "prints measurements")]

#[path = "../examples/mutate/alloc.rs"]
mod alloc;
#[path = "../examples/mutate/bases.rs"]
mod bases;
#[path = "../examples/mutate/damage.rs"]
mod damage;
#[path = "../examples/mutate/harness.rs"]
mod harness;

#[global_allocator]
static ALLOC: alloc::Counting = alloc::Counting::new();

/// One test for all readers: memory is counted for the whole process.
#[test]
fn no_reader_panics_leaks_or_accepts_what_check_refuses() {
    let Some(data) = halograph_testing::real_data("") else { return };
    for reader in bases::READERS {
        let tally = harness::run(reader, &data, 150, 11, &|_| ()).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(tally.refused + tally.accepted, 150);
        eprintln!("{reader}: slowest {:?}, most memory {} bytes", tally.slowest, tally.most_memory);
        assert!(tally.refused > 0, "{reader}: damage that nobody notices is no test");
    }
}
