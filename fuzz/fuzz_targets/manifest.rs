#![no_main]
//! `dataset.json`, alone and as the head of an (empty) dataset directory.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::dataset::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if Manifest::parse(Path::new("dataset.json"), text).is_ok() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("dataset.json"), text).expect("a small file");
        assert!(Dataset::open(folder.path()).is_err(), "there are no arrays");
    }
});
