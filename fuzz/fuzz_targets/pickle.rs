#![no_main]
//! A pickle, read as an array, a sparse matrix and adjacency lists.

use halograph_graph::build::EdgeSource;
use halograph_graph::io::pickle::Pickle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("fuzz");
    std::fs::write(&file, data).expect("a small file");
    let Ok(pickle) = Pickle::open(&file) else { return };
    let _ = pickle.array().map(|array| array.to_i64());
    let _ = pickle.matrix();
    let _ = pickle.adjacency().map(|graph| graph.visit(&mut |_| Ok(())));
});
