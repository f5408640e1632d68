#![no_main]
//! A whole csv import: the input is an edge table, a NUL byte, a node table.

use halograph_graph::import::{Dialect, ImportFormat, TableSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let cut = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (edges, nodes) = (&data[..cut], data.get(cut + 1..).unwrap_or_default());
    let format = ImportFormat::Csv(TableSpec::default(), Dialect::default());
    halograph_fuzz::import_files(&format, ".", &[("edges.csv", edges), ("nodes.csv", nodes)]);
});
