//! Arrays of short text: numpy's fixed-width `<U19` (UTF-32) and `|S3` (bytes).

use super::npy::{Array, DType};
use crate::error::{Error, Result};

/// Maximum size of text: names of classes and formats are short.
const MAX_BYTES: usize = 1 << 20;

/// Returns the texts of an array in storage order, without padding.
pub fn strings(array: &Array) -> Result<Vec<String>> {
    let refuse = |problem: String| Err(Error::input(&array.name, problem));
    let descr = array.header.dtype.descr();
    let Some((unit, width)) = width(&array.header.dtype) else {
        return refuse(format!("elements of type {descr} where text is needed"));
    };
    let count = array.header.count().unwrap_or(usize::MAX);
    let bytes = array.raw();
    let wanted = width.checked_mul(unit).and_then(|size| size.checked_mul(count));
    if bytes.len() > MAX_BYTES || count > MAX_BYTES || wanted != Some(bytes.len()) {
        let problem = format!(
            "{} bytes of text for shape {:?} of {descr}; at most {MAX_BYTES} are read",
            bytes.len(),
            array.header.shape
        );
        return refuse(problem);
    }
    if width == 0 {
        return Ok(vec![String::new(); count]);
    }
    Ok(bytes.chunks_exact(width * unit).map(|text| decode(text, unit, array.header.big_endian)).collect())
}

/// Returns the bytes per character and the characters per element of a text type.
fn width(dtype: &DType) -> Option<(usize, usize)> {
    let DType::Other(descr) = dtype else { return None };
    let (kind, width) = descr.trim_start_matches(['<', '>', '|', '=']).split_at_checked(1)?;
    let unit = match kind {
        "U" => 4,
        "S" | "a" => 1,
        _ => return None,
    };
    Some((unit, width.parse().ok()?))
}

fn decode(text: &[u8], unit: usize, big_endian: bool) -> String {
    let character = |bytes: &[u8]| {
        let code = match *bytes {
            [a, b, c, d] if big_endian => u32::from_be_bytes([a, b, c, d]),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => u32::from(bytes[0]),
        };
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    let text: String = text.chunks_exact(unit).map(character).collect();
    text.trim_end_matches('\0').to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::npy::Bytes;
    use crate::io::npz::tests::npy;

    fn texts(descr: &str, shape: &str, data: &[u8]) -> Result<Vec<String>> {
        let bytes = npy(descr, false, shape, data);
        let len = bytes.len();
        strings(&Array::new("t".into(), Bytes::Owned(Arc::new(bytes), 0..len))?)
    }

    #[test]
    fn text_is_decoded_and_unpadded() {
        let utf32: Vec<u8> = "añ\0\0b\0\0\0".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        assert_eq!(texts("<U4", "(2,)", &utf32).unwrap(), ["añ", "b"]);
        assert_eq!(texts("|S3", "()", b"csr").unwrap(), ["csr"]);
        assert_eq!(texts(">U1", "(1,)", &[0, 0, 0, b'x']).unwrap(), ["x"]);
        assert_eq!(texts("<U0", "(2,)", b"").unwrap(), ["", ""]);
    }

    #[test]
    fn sizes_are_checked() {
        for (descr, shape) in [
            ("<U4", "(2,)"),
            ("<U0", "(99999999999,)"),
            ("<U99999999999999999999", "(1,)"),
            ("|O", "(1,)"),
            ("<U", "(1,)"),
            ("<f4", "(1,)"),
        ] {
            assert!(texts(descr, shape, b"").is_err(), "{descr}{shape}");
        }
    }
}
