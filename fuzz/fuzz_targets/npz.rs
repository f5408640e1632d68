#![no_main]
//! A whole `.npz` import.

use halograph_graph::import::ImportFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    halograph_fuzz::import_files(&ImportFormat::Npz { split_index: None }, "fuzz.npz", &[("fuzz.npz", data)]);
});
