//! Assignments kept beside the dataset they were made for.
//!
//! `partition-metis-volume-4.npy` holds one, `partition-metis-volume-4.json` what it was made for. Neither is part of the
//! data: they may be deleted, and what cannot be right, or was made for other data or settings, is made anew.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::assign::{Assignment, Method, Origin, PartitionSpec};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::io::npy::{self, Array, FileRecord, Writer};
use crate::progress::Progress;

/// Changes when the same spec gives another assignment.
const VERSION: u32 = 1;

/// What a kept assignment was made for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// Of the dataset.
    fingerprint: String,
    parts: u32,
    #[serde(flatten)]
    origin: Origin,
    /// Of the array beside it.
    file: FileRecord,
}

/// The assignment of `dataset`'s vertices that `spec` makes: the one kept beside the data if there is one, else a new
/// one, which is kept if that is possible.
pub fn assignment_for(
    dataset: &Dataset,
    spec: &PartitionSpec,
    progress: &dyn Progress,
) -> Result<Assignment> {
    // Made faster than read.
    if spec.method == Method::Random {
        return spec.assign(dataset, progress);
    }
    if let Some(kept) = load(dataset, spec) {
        return Ok(kept);
    }
    let made = spec.assign(dataset, progress)?;
    store(dataset, spec, &made);
    Ok(made)
}

/// Writes what `spec` made of `dataset` beside it, if that is worth it and possible. A dataset in memory keeps nothing.
pub fn store(dataset: &Dataset, spec: &PartitionSpec, assignment: &Assignment) {
    if let (Some(folder), true) = (dataset.path(), spec.method != Method::Random) {
        // Without it the next run takes longer: no reason to fail.
        let _ = save(folder, dataset, spec, assignment);
    }
}

fn note(dataset: &Dataset, spec: &PartitionSpec, file: FileRecord) -> Note {
    Note {
        version: VERSION,
        fingerprint: dataset.manifest.fingerprint.clone(),
        parts: spec.parts,
        origin: Origin::from(spec),
        file,
    }
}

/// The common part of both names.
fn stem(spec: &PartitionSpec) -> String {
    let Origin { method, objective, .. } = Origin::from(spec);
    let objective = objective.map_or(String::new(), |objective| format!("-{objective}"));
    format!("partition-{method}{objective}-{}", spec.parts)
}

/// The assignment kept beside `dataset` for just this spec, if there is one.
pub fn load(dataset: &Dataset, spec: &PartitionSpec) -> Option<Assignment> {
    let folder = dataset.path()?;
    let path = |kind: &str| folder.join(format!("{}.{kind}", stem(spec)));
    let found: Note = serde_json::from_str(&fs::read_to_string(path("json")).ok()?).ok()?;
    let digest = blake3::hash(&npy::map(&path("npy")).ok()?).to_hex();
    if found.file.blake3 != digest.as_str() || note(dataset, spec, found.file.clone()) != found {
        return None;
    }
    let array = Array::open(&path("npy")).ok()?;
    let of = array.as_slice::<u32>().filter(|of| of.len() as u64 == dataset.manifest.nodes)?;
    Assignment::new(spec.parts, of.to_vec()).ok()
}

/// Writes `assignment` and its note into the dataset's folder, each whole or not at all. The digest in the note tells a
/// note that belongs to another array.
fn save(folder: &Path, dataset: &Dataset, spec: &PartitionSpec, assignment: &Assignment) -> io::Result<()> {
    let stem = stem(spec);
    let of = assignment.of();
    let create = |path: &Path| Writer::create(path, &[of.len()]).map_err(io::Error::other);
    let file = partial().make_in(folder, create)?;
    let (mut writer, path) = file.into_parts();
    let record = writer.write(of).and_then(|()| writer.finish()).map_err(io::Error::other)?;
    path.persist(folder.join(format!("{stem}.npy"))).map_err(|e| e.error)?;
    let text = serde_json::to_string_pretty(&note(dataset, spec, record))? + "\n";
    let file = partial().tempfile_in(folder)?;
    fs::write(file.path(), text)?;
    file.as_file().sync_all()?;
    file.persist(folder.join(format!("{stem}.json"))).map_err(|e| e.error)?;
    Ok(())
}

/// How the hidden name of a file begins and ends while it is written.
const PARTIAL: (&str, &str) = (".partition.", ".partial");

fn partial() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    // The usual rights of a new file; a temporary one would be the owner's alone.
    builder.prefix(PARTIAL.0).suffix(PARTIAL.1).permissions(fs::Permissions::from_mode(0o666));
    builder
}

/// Whether a file of this name in a dataset's folder is kept, or was left half written, by this module.
pub(crate) fn is_ours(name: &str) -> bool {
    let kept = name.starts_with("partition-") && (name.ends_with(".npy") || name.ends_with(".json"));
    kept || name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::check;
    use crate::dataset::write::may_write;
    use crate::partition::assign::{Balance, Objective};
    use crate::partition::testing::communities;
    use crate::progress::Silent;

    fn spec(seed: u64) -> PartitionSpec {
        PartitionSpec { parts: 3, method: Method::Metis(Objective::Cut), balance: Balance::default(), seed }
    }

    fn get(dataset: &Dataset, spec: &PartitionSpec) -> Assignment {
        assignment_for(dataset, spec, &Silent).unwrap()
    }

    #[test]
    fn an_assignment_is_made_once_and_kept() {
        let (_folder, dataset) = communities(600, 6000);
        let made = get(&dataset, &spec(0));
        let folder = dataset.path().unwrap();
        let path = folder.join("partition-metis-cut-3.npy");
        assert_eq!(Array::open(&path).unwrap().as_slice::<u32>().unwrap(), made.of());
        // What is there is taken: another one under a true note.
        let other = Assignment::new(3, vec![1; 600]).unwrap();
        store(&dataset, &spec(0), &other);
        assert_eq!(get(&dataset, &spec(0)), other);
        // Dataset and folder are none the worse.
        assert!(check(folder, &Silent).unwrap().1.is_empty());
        assert!(may_write(folder, true).is_ok());
    }

    #[test]
    fn other_settings_and_other_data_are_not_mixed_up() {
        let (_folder, mut dataset) = communities(600, 6000);
        let wrong = Assignment::new(3, vec![1; 600]).unwrap();
        let right = get(&dataset, &spec(0));
        store(&dataset, &spec(0), &wrong);
        assert_ne!(get(&dataset, &spec(1)), wrong, "another seed");
        store(&dataset, &spec(0), &wrong);
        let balanced = PartitionSpec { balance: Balance { edges: true, train: false }, ..spec(0) };
        assert_ne!(get(&dataset, &balanced), wrong, "another balance");
        store(&dataset, &spec(0), &wrong);
        dataset.manifest.fingerprint = "another".into();
        assert_eq!(get(&dataset, &spec(0)), right, "another dataset");
    }

    #[test]
    fn what_is_damaged_is_made_anew() {
        let (_folder, dataset) = communities(600, 6000);
        let right = get(&dataset, &spec(0));
        let [array, note] =
            ["npy", "json"].map(|kind| dataset.path().unwrap().join(format!("partition-metis-cut-3.{kind}")));
        for damage in [&b""[..], b"nothing", b"{}"] {
            for path in [&array, &note] {
                fs::write(path, damage).unwrap();
                assert_eq!(get(&dataset, &spec(0)), right);
            }
        }
        let mut bytes = fs::read(&array).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&array, bytes).unwrap();
        assert_eq!(get(&dataset, &spec(0)), right);
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_no_reason_to_fail() {
        let (_folder, mut dataset) = communities(600, 6000);
        let right = get(&dataset, &spec(0));
        dataset.path = dataset.path().map(|path| path.join("gone"));
        assert_eq!(get(&dataset, &spec(0)), right);
    }

    #[test]
    fn only_its_own_files_are_ours() {
        for name in ["partition-stream-4.npy", "partition-metis-cut-2.json", ".partition.x1.partial"] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["partition.json", "partition-notes.txt", "x.partial"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
