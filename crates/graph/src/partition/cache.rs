//! Assignments stored beside their dataset.
//!
//! `partition-metis-volume-4.npy` holds an assignment, `partition-metis-volume-4.json` the data and settings it was
//! computed for. Neither is part of the data: they may be deleted, and are recomputed if they are invalid or do not match.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::assign::{Assignment, Method, Origin, PartitionSpec};
use crate::dataset::Dataset;
use crate::error::Result;
use crate::io::npy::{self, Array, FileRecord, Writer};
use crate::progress::Progress;

/// Changes when the same spec yields another assignment.
const VERSION: u32 = 1;

/// What a stored assignment was computed for.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// Fingerprint of the dataset.
    fingerprint: String,
    parts: u32,
    #[serde(flatten)]
    origin: Origin,
    /// Record of the array.
    file: FileRecord,
}

/// Returns the assignment of `dataset` under `spec`: the stored one, or a new one, which is then stored if possible.
pub fn assignment_for(
    dataset: &Dataset,
    spec: &PartitionSpec,
    progress: &dyn Progress,
) -> Result<Assignment> {
    if let Some(kept) = load(dataset, spec) {
        return Ok(kept);
    }
    let made = spec.assign(dataset, progress)?;
    store(dataset, spec, &made);
    Ok(made)
}

/// Returns whether an assignment is worth storing: if not, computing it is faster than reading it.
fn is_stored(spec: &PartitionSpec) -> bool {
    spec.method != Method::Random && spec.parts > 1
}

/// Writes an assignment beside `dataset` if possible. Random assignments, those of one part and those of datasets in memory
/// are not stored.
pub fn store(dataset: &Dataset, spec: &PartitionSpec, assignment: &Assignment) {
    if let (Some(folder), true) = (dataset.path(), is_stored(spec)) {
        // A failure only makes the next run slower.
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

/// Returns the common stem of both file names.
fn stem(spec: &PartitionSpec) -> String {
    let origin = Origin::from(spec);
    if origin.presample.is_some() {
        return format!("partition-presampled-{}-{}", digest(&origin), spec.parts);
    }
    let Origin { method, objective, balance, .. } = origin;
    let objective = objective.map_or(String::new(), |objective| format!("-{objective}"));
    // All methods balance nodes.
    let balance: String = balance[1..].iter().map(|name| format!("-{name}")).collect();
    format!("partition-{method}{objective}{balance}-{}", spec.parts)
}

/// Returns a short digest of all settings, which are too many for a file name.
fn digest(origin: &Origin) -> String {
    let text = serde_json::to_vec(origin).expect("names and numbers are valid JSON");
    blake3::hash(&text).to_hex()[..12].to_string()
}

/// Returns the assignment stored beside `dataset` for exactly this spec, if there is one.
pub fn load(dataset: &Dataset, spec: &PartitionSpec) -> Option<Assignment> {
    let folder = dataset.path().filter(|_| is_stored(spec))?;
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

/// Writes `assignment` and its note into the folder of the dataset, each atomically. The digest in the note shows whether
/// the two belong together.
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

/// Prefix and suffix of the hidden name of a file while it is written.
const PARTIAL: (&str, &str) = (".partition.", ".partial");

/// Returns a builder of temporary files with that prefix and suffix.
fn partial() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    // The usual permissions of a new file; those of a temporary one are the owner's alone.
    builder.prefix(PARTIAL.0).suffix(PARTIAL.1).permissions(fs::Permissions::from_mode(0o666));
    builder
}

/// Returns whether a file of this name in the folder of a dataset was written by this module, completely or not.
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
    fn an_assignment_is_computed_once_and_stored() {
        let (_folder, dataset) = communities(600, 6000);
        let made = get(&dataset, &spec(0));
        let folder = dataset.path().unwrap();
        let path = folder.join("partition-metis-cut-3.npy");
        assert_eq!(Array::open(&path).unwrap().as_slice::<u32>().unwrap(), made.of());
        // A stored assignment with a valid note is used.
        let other = Assignment::new(3, vec![1; 600]).unwrap();
        store(&dataset, &spec(0), &other);
        assert_eq!(get(&dataset, &spec(0)), other);
        // The dataset remains valid.
        assert!(check(folder, &Silent).unwrap().1.is_empty());
        assert!(may_write(folder, true).is_ok());
    }

    #[test]
    fn one_part_is_not_stored() {
        let (_folder, dataset) = communities(600, 6000);
        for method in [Method::Metis(Objective::Volume), Method::Stream, Method::Random] {
            let one = PartitionSpec { parts: 1, method, ..spec(0) };
            assert_eq!(one.peak_bytes(&dataset), 4 * 600, "the assignment alone");
            assert_eq!(get(&dataset, &one), Assignment::new(1, vec![0; 600]).unwrap());
            store(&dataset, &one, &get(&dataset, &one));
        }
        let files = fs::read_dir(dataset.path().unwrap()).unwrap().flatten();
        assert!(files.map(|file| file.file_name()).all(|name| !is_ours(name.to_str().unwrap())));
    }

    #[test]
    fn assignments_for_other_settings_or_data_are_not_used() {
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
    fn damaged_files_are_recomputed() {
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
    fn a_read_only_folder_is_no_error() {
        let (_folder, mut dataset) = communities(600, 6000);
        let right = get(&dataset, &spec(0));
        dataset.path = dataset.path().map(|path| path.join("gone"));
        assert_eq!(get(&dataset, &spec(0)), right);
    }

    #[test]
    fn files_of_this_module_are_recognised() {
        for name in ["partition-stream-4.npy", "partition-metis-cut-2.json", ".partition.x1.partial"] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["partition.json", "partition-notes.txt", "x.partial"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
