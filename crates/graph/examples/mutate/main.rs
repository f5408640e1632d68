//! Feeds damaged copies of real files to every reader: `mutate READER [RUNS] [SEED]`.
//!
//! A run damages one file of a small real dataset (cut, flipped, overwritten, spliced, numbers made huge) and
//! imports it. It fails the program if the reader panics, takes more than 5 s, allocates more than 10 × the input
//! plus a floor of 8 MiB, leaves anything behind after an error, or accepts the files but writes a dataset in
//! which `check` finds a fault. Real files come from the folder named by `HALOGRAPH_TEST_DATA`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program, not a library")]

mod alloc;
mod bases;
mod damage;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use halograph_graph::dataset::{Dataset, check, info::info};
use halograph_graph::import::{Options, import};
use halograph_graph::{Error, Silent};
use halograph_kernels::keyed::Key;

use bases::{Base, Target};

const LIMIT: Duration = Duration::from_secs(5);
const FLOOR: usize = 8 << 20;

#[global_allocator]
static ALLOC: alloc::Counting = alloc::Counting::new();

/// Number of the run under way and when it began, in milliseconds since the start; for the watchdog.
static RUN: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);

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
    let folder = tempfile::tempdir().expect("a temporary folder");
    let base = match bases::prepare(reader, Path::new(&data), folder.path()) {
        Ok(base) => base,
        Err(error) => {
            eprintln!("mutate: {error}");
            return ExitCode::from(2);
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    watch(reader.clone());
    let mut tally = Tally::default();
    for run in 0..runs {
        if let Err(fault) = one(&base, folder.path(), Key::new(seed, reader).with(run), run, &mut tally) {
            eprintln!("{reader}, run {run}, seed {seed}: {fault}");
            return ExitCode::FAILURE;
        }
    }
    println!(
        "{reader}: {runs} runs, {} refused, {} accepted; slowest {:.2} s, most memory {:.1} MiB beyond the start",
        tally.refused,
        tally.accepted,
        tally.slowest.as_secs_f64(),
        tally.most_memory as f64 / (1 << 20) as f64
    );
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Tally {
    refused: u64,
    accepted: u64,
    slowest: Duration,
    most_memory: usize,
}

/// Damages one file, imports, judges, and puts the file back.
fn one(base: &Base, folder: &Path, key: Key, run: u64, tally: &mut Tally) -> Result<(), String> {
    let (name, original) = &base.files[key.below(0, base.files.len() as u64) as usize];
    let file = base.folder.join(name);
    let damaged = damage::damage_file(name, original, key);
    fs::write(&file, &damaged).map_err(|e| e.to_string())?;
    let size: usize =
        base.files.iter().map(|(n, bytes)| if n == name { damaged.len() } else { bytes.len() }).sum();
    let out = folder.join("out");
    RUN.store(run, Ordering::Relaxed);
    BEGAN.store(now(), Ordering::Relaxed);
    let before = ALLOC.start();
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| read(base, &out)));
    let (took, memory) = (start.elapsed(), ALLOC.peak().saturating_sub(before));
    BEGAN.store(0, Ordering::Relaxed);
    tally.slowest = tally.slowest.max(took);
    tally.most_memory = tally.most_memory.max(memory);
    let keep =
        |what: String| Err(format!("{name}: {what}; the damaged file is kept in {}", keep_file(&damaged)));
    match outcome {
        Err(_) => return keep("panicked".into()),
        Ok(_) if took > LIMIT => return keep(format!("took {:.1} s", took.as_secs_f64())),
        Ok(_) if memory > 10 * size + FLOOR => {
            return keep(format!("allocated {memory} bytes for {size} of input"));
        }
        Ok(Err(_)) if out.exists() || leftovers(folder) => return keep("left something behind".into()),
        Ok(Err(Error::Io { source, .. })) if source.kind() == std::io::ErrorKind::StorageFull => {
            return keep(format!("wanted more disk than there is: {source}"));
        }
        Ok(Err(_)) => tally.refused += 1,
        Ok(Ok(())) => {
            tally.accepted += 1;
            if let Target::Import(_) = base.target {
                let faults = check(&out, &Silent).map_err(|e| e.to_string())?.1;
                if let Some(fault) = faults.first() {
                    return keep(format!("accepted, but {fault}"));
                }
                fs::remove_dir_all(&out).map_err(|e| e.to_string())?;
            }
        }
    }
    fs::write(&file, original).map_err(|e| e.to_string())
}

fn read(base: &Base, out: &Path) -> Result<(), Error> {
    match &base.target {
        Target::Import(format) => import(format, &base.source, out, &Options::default(), &Silent).map(|_| ()),
        Target::Dataset => {
            let faults = check(&base.folder, &Silent)?.1;
            let opened = Dataset::open(&base.folder).map(|dataset| info(&dataset));
            match faults.into_iter().next() {
                Some(fault) => Err(Error::input(fault.file, fault.problem)),
                None => opened.map(|_| ()),
            }
        }
    }
}

fn leftovers(folder: &Path) -> bool {
    fs::read_dir(folder)
        .is_ok_and(|all| all.flatten().any(|e| e.file_name().to_string_lossy().starts_with('.')))
}

fn keep_file(damaged: &[u8]) -> String {
    let path = std::env::temp_dir().join("halograph-damaged");
    fs::write(&path, damaged).map_or_else(|e| e.to_string(), |()| path.display().to_string())
}

fn now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    1 + START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Ends the program when a run does not end by itself.
fn watch(reader: String) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let began = BEGAN.load(Ordering::Relaxed);
            if began > 0 && now() - began > 2 * LIMIT.as_millis() as u64 {
                eprintln!("{reader}, run {}: does not end", RUN.load(Ordering::Relaxed));
                std::process::exit(1);
            }
        }
    });
}
