//! Tests a reader with damaged copies of real files: `mutate READER [RUNS] [SEED]`.
//!
//! A run damages one file of a small real dataset (truncated, flipped, overwritten, spliced, huge numbers) and imports it.
//! The program fails if the reader panics, takes more than 5 s, allocates more than 10 × the input + 8 MiB, leaves files
//! after an error, or writes a dataset in which `check` finds a fault. `HALOGRAPH_TEST_DATA` is the folder of real files.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program, not a library")]

mod alloc;
mod bases;
mod damage;
mod harness;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time limit of a run.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of the current run, counted from 1.
static RUN: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOC: alloc::Counting = alloc::Counting::new();

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(Ok(default), |n: &String| n.parse::<u64>());
    let (Some(reader), Ok(runs), Ok(seed)) = (args.first(), number(1, 10_000), number(2, 1)) else {
        eprintln!("usage: mutate {} [RUNS] [SEED]", bases::READERS.join("|"));
        return ExitCode::from(2);
    };
    let Some(data) = std::env::var_os("HALOGRAPH_TEST_DATA") else {
        eprintln!("mutate: HALOGRAPH_TEST_DATA must name the folder of real graphs");
        return ExitCode::from(2);
    };
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::spawn(watch);
    match harness::run(reader, Path::new(&data), runs, seed, &|run| RUN.store(run + 1, Ordering::Relaxed)) {
        Ok(tally) if tally.slowest > LIMIT => {
            eprintln!("{reader}: a run took {:.1} s", tally.slowest.as_secs_f64());
            ExitCode::FAILURE
        }
        Ok(tally) => {
            println!(
                "{reader}: {runs} runs, {} refused, {} accepted; slowest {:.2} s, most memory {:.1} MiB beyond the start",
                tally.refused,
                tally.accepted,
                tally.slowest.as_secs_f64(),
                tally.most_memory as f64 / (1 << 20) as f64
            );
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

/// Ends the program when a run exceeds the time limit.
fn watch() {
    let (mut run, mut since) = (0, Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = RUN.load(Ordering::Relaxed);
        if now != run {
            (run, since) = (now, Instant::now());
        } else if since.elapsed() > 4 * LIMIT {
            eprintln!("run {} does not end", run.saturating_sub(1));
            std::process::exit(1);
        }
    }
}
