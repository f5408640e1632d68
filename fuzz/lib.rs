//! Common code of the fuzz targets: import of temporary files.

use std::fs;
use std::path::Path;

use halograph_graph::Silent;
use halograph_graph::dataset::check;
use halograph_graph::import::{ImportFormat, ImportOptions, import};

/// Writes `files` and imports the folder, or `source` in it. Panics if an accepted import has a fault.
pub fn import_files(format: &ImportFormat, source: &str, files: &[(&str, &[u8])]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("a small file");
    }
    let (source, out) = (folder.path().join(source), folder.path().join("out"));
    if import(format, &source, &out, &ImportOptions::default(), &Silent).is_ok() {
        assert_clean(&out);
    }
}

fn assert_clean(dataset: &Path) {
    let faults = check(dataset, &Silent).expect("an import writes a readable manifest").1;
    assert!(faults.is_empty(), "{}", faults[0]);
}
