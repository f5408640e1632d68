//! Suggests the import command for files of another format, by their names.

use std::ffi::OsStr;
use std::path::Path;

use crate::staging::names;

/// Returns the remedy for a folder that is not a dataset.
pub(super) fn for_folder(folder: &Path) -> String {
    let files = names(folder).unwrap_or_default();
    let has = |name: &str| files.iter().any(|file| file == name);
    let with = |suffixes: &[&str]| files.iter().find(|file| ends_with(file, suffixes));
    let above = || folder.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    if files.iter().any(|file| is_planetoid(file)) {
        command("planetoid", folder)
    } else if has("adj_full.npz") {
        command("graphsaint", folder)
    } else if has("raw") && folder.join("raw").is_dir() {
        command("ogb", folder)
    } else if has("num-node-list.csv.gz") || has("node-label.npz") {
        command("ogb", above())
    } else if with(&[".parquet"]).is_some() {
        command("parquet", folder)
    } else if with(TEXT).is_some() {
        command("csv", folder)
    } else if with(&[".npy"]).is_some() {
        command("npy", folder)
    } else if let Some(archive) = with(&[".npz"]) {
        command("npz", &folder.join(archive))
    } else {
        OTHER.into()
    }
}

/// Returns advice for a file where a dataset directory is needed.
pub(super) fn for_file(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    if is_planetoid(name) {
        command("planetoid", file)
    } else if ends_with(name, &[".npz"]) {
        command("npz", file)
    } else if ends_with(name, &[".parquet"]) {
        command("parquet", file)
    } else if ends_with(name, TEXT) {
        command("csv", file)
    } else {
        OTHER.into()
    }
}

const TEXT: &[&str] = &[".csv", ".tsv", ".csv.gz", ".tsv.gz"];
const OTHER: &str =
    "`halograph data import` makes a dataset of files in another format; its --help lists the formats";

fn command(format: &str, source: &Path) -> String {
    format!("make a dataset of it: `halograph data import {format} {} -o DATASET`", source.display())
}

fn is_planetoid(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with("ind.")
}

/// Returns whether `name` ends in one of `suffixes`, which are lower-case.
fn ends_with(name: &OsStr, suffixes: &[&str]) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_format_follows_from_the_names_of_the_files() {
        let cases: &[(&[&str], &str)] = &[
            (&["edges.csv", "nodes.csv"], "import csv HERE "),
            (&["edges.tsv.gz", "features.npy"], "import csv HERE "),
            (&["edges.parquet", "nodes.parquet"], "import parquet HERE "),
            (&["x.npy", "edge_index.npy", "y.npy"], "import npy HERE "),
            (&["Photo.npz"], "import npz HERE/Photo.npz "),
            (&["ind.cora.x", "ind.cora.graph"], "import planetoid HERE "),
            (&["adj_full.npz", "feats.npy", "role.json"], "import graphsaint HERE "),
            (&["raw/edge.csv.gz", "split/time/train.csv.gz"], "import ogb HERE "),
            (&["raw/num-node-list.csv.gz"], "import ogb HERE "),
            (&["notes.txt"], "--help"),
            (&[], "--help"),
        ];
        for (files, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            for file in *files {
                let path = folder.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            let hint = for_folder(folder.path()).replace(&folder.path().display().to_string(), "HERE");
            assert!(hint.contains(expected), "{files:?}: {hint}");
            let raw = folder.path().join("raw");
            if raw.is_dir() && raw.join("num-node-list.csv.gz").exists() {
                assert_eq!(for_folder(&raw), for_folder(folder.path()));
            }
        }
    }

    #[test]
    fn a_single_file_gets_its_command_too() {
        for (file, expected) in [
            ("g/Photo.npz", "import npz g/Photo.npz "),
            ("edges.csv.gz", "import csv edges.csv.gz "),
            ("e.parquet", "import parquet e.parquet "),
            ("ind.cora.x", "import planetoid ind.cora.x "),
            ("model.pt", "--help"),
        ] {
            assert!(for_file(Path::new(file)).contains(expected), "{file}");
        }
    }
}
