#![no_main]
//! An `.npy` file: header and elements.

use std::sync::Arc;

use halograph_graph::io::npy::{Array, Bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(array) = Array::new("fuzz".into(), Bytes::Owned(Arc::new(data.to_vec()), 0..data.len())) {
        let _ = array.to_i64();
        let mut row = vec![0f32; array.len().min(64)];
        let _ = array.read_f32(0, &mut row);
    }
});
