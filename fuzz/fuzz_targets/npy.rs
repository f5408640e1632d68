#![no_main]
//! An `.npy` file: the input is the text of a header, a NUL byte and the elements.

use std::sync::Arc;

use halograph_graph::io::npy::{Array, Bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let cut = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (text, elements) = (&data[..cut], data.get(cut + 1..).unwrap_or_default());
    let length = (text.len() as u16).to_le_bytes();
    let file = [b"\x93NUMPY\x01\x00", &length[..], text, elements].concat();
    let len = file.len();
    if let Ok(array) = Array::new("fuzz".into(), Bytes::Owned(Arc::new(file), 0..len)) {
        let _ = array.to_i64();
        let mut row = vec![0f32; array.len().min(64)];
        let _ = array.read_f32(0, &mut row);
    }
});
