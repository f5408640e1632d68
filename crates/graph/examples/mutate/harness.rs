//! Runs of the readers and their outcome.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use halograph_graph::dataset::{Dataset, check, info::info};
use halograph_graph::import::{ImportOptions, import};
use halograph_graph::partition::{Assignment, Shard};
use halograph_graph::{Error, Silent};
use halograph_kernels::keyed::Key;

use crate::ALLOC;
use crate::bases::{self, Base, Target};
use crate::damage;

const FLOOR: usize = 8 << 20;

/// Outcome of all runs of a reader.
#[derive(Debug, Default)]
pub struct Tally {
    pub refused: u64,
    pub accepted: u64,
    pub slowest: Duration,
    pub most_memory: usize,
}

/// Runs `reader` on `runs` damaged copies of its files, reporting each to `begins`; fails at the first fault.
pub fn run(reader: &str, data: &Path, runs: u64, seed: u64, begins: &dyn Fn(u64)) -> Result<Tally, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let base = bases::prepare(reader, data, folder.path())?;
    let mut tally = Tally::default();
    for run in 0..runs {
        begins(run);
        one(&base, folder.path(), Key::new(seed, reader).with(run), &mut tally)
            .map_err(|fault| format!("{reader}, run {run}, seed {seed}: {fault}"))?;
    }
    Ok(tally)
}

/// Damages one file, imports it, checks the outcome and restores the file.
fn one(base: &Base, folder: &Path, key: Key, tally: &mut Tally) -> Result<(), String> {
    let (name, original) = &base.files[key.below(0, base.files.len() as u64) as usize];
    let file = base.folder.join(name);
    let damaged = damage::damage_file(name, original, key);
    fs::write(&file, &damaged).map_err(|e| e.to_string())?;
    let size: usize =
        base.files.iter().map(|(n, bytes)| if n == name { damaged.len() } else { bytes.len() }).sum();
    let out = folder.join("out");
    let before = ALLOC.start();
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| read(base, &out)));
    let (took, memory) = (start.elapsed(), ALLOC.peak().saturating_sub(before));
    tally.slowest = tally.slowest.max(took);
    tally.most_memory = tally.most_memory.max(memory);
    let keep =
        |what: String| Err(format!("{name}: {what}; the damaged file is kept in {}", keep_file(&damaged)));
    match outcome {
        Err(_) => return keep("panicked".into()),
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
        Target::Import(format) => {
            import(format, &base.source, out, &ImportOptions::default(), &Silent).map(|_| ())
        }
        Target::Shards => {
            Assignment::read(&base.folder.join("assignment.npy"), 34, 2)?;
            [0, 1].into_iter().try_for_each(|part| Shard::open(&base.folder, part).map(drop))
        }
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
