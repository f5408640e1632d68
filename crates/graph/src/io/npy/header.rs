//! The header of an `.npy` file: magic, version, length, a Python dictionary literal.

use bytemuck::Pod;
use half::f16;

use crate::error::Result;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Maximum length of a header. numpy's limit for untrusted files is 10,000 bytes.
const MAX_HEADER: usize = 64 * 1024;
/// numpy aligns the first element to this many bytes.
const ALIGN: usize = 64;

/// Element type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed integer.
    I8,
    /// Signed integer.
    I16,
    /// Signed integer.
    I32,
    /// Signed integer.
    I64,
    /// Unsigned integer.
    U8,
    /// Unsigned integer.
    U16,
    /// Unsigned integer.
    U32,
    /// Unsigned integer.
    U64,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// Strings, objects and records, by name; not decoded.
    Other(String),
}

impl DType {
    /// Parses numpy's `descr`, byte order included: `<f4`, `|b1`, `>i8`. Also returns whether it is big-endian.
    pub fn parse(descr: &str) -> (DType, bool) {
        let (order, kind) = match descr.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
            _ => ("=", descr),
        };
        let dtype = match kind {
            "b1" | "?" => DType::Bool,
            "i1" => DType::I8,
            "i2" => DType::I16,
            "i4" => DType::I32,
            "i8" => DType::I64,
            "u1" => DType::U8,
            "u2" => DType::U16,
            "u4" => DType::U32,
            "u8" => DType::U64,
            "f2" => DType::F16,
            "f4" => DType::F32,
            "f8" => DType::F64,
            _ => DType::Other(descr.to_string()),
        };
        (dtype, order == ">")
    }

    /// Returns numpy's name of the type in little-endian order.
    pub fn descr(&self) -> &str {
        match self {
            DType::Bool => "|b1",
            DType::I8 => "|i1",
            DType::I16 => "<i2",
            DType::I32 => "<i4",
            DType::I64 => "<i8",
            DType::U8 => "|u1",
            DType::U16 => "<u2",
            DType::U32 => "<u4",
            DType::U64 => "<u8",
            DType::F16 => "<f2",
            DType::F32 => "<f4",
            DType::F64 => "<f8",
            DType::Other(name) => name,
        }
    }

    /// Returns the size of an element in bytes; `None` for types that are not decoded.
    pub fn size(&self) -> Option<usize> {
        match self {
            DType::Bool | DType::I8 | DType::U8 => Some(1),
            DType::I16 | DType::U16 | DType::F16 => Some(2),
            DType::I32 | DType::U32 | DType::F32 => Some(4),
            DType::I64 | DType::U64 | DType::F64 => Some(8),
            DType::Other(_) => None,
        }
    }
}

/// A number type that can be written to, or mapped from, an array of its own [`DType`].
pub trait Element: Pod + Send + Sync {
    /// The matching element type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f16 => F16, f32 => F32, f64 => F64);

/// Contents of an `.npy` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Whether elements are big-endian.
    pub big_endian: bool,
    /// Whether columns are contiguous instead of rows.
    pub fortran: bool,
    /// Length of each dimension.
    pub shape: Vec<usize>,
}

impl Header {
    /// Parses the header at the start of `bytes`; returns it and the offset of the first element.
    pub fn parse(bytes: &[u8]) -> Result<(Header, usize), String> {
        if bytes.len() < 10 || &bytes[..6] != MAGIC {
            return Err("not an .npy array (the first bytes are not \\x93NUMPY)".into());
        }
        let (start, len) = match bytes[6] {
            1 => (10, u16::from_le_bytes([bytes[8], bytes[9]]) as usize),
            2 | 3 if bytes.len() >= 12 => {
                (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize)
            }
            v => return Err(format!("unknown .npy version {v}")),
        };
        if len > MAX_HEADER {
            return Err(format!("an .npy header of {len} bytes (the limit is {MAX_HEADER})"));
        }
        let text = bytes.get(start..start + len).ok_or("truncated inside the .npy header")?;
        let text = std::str::from_utf8(text).map_err(|_| "the .npy header is not text")?;
        Ok((Dict { rest: text }.header()?, start + len))
    }

    /// Returns the header as numpy writes it, padded so that elements start at a multiple of 64 bytes.
    pub(super) fn encode(dtype: &DType, shape: &[usize]) -> Vec<u8> {
        let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
        let dims = if shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
        let mut text =
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", dtype.descr());
        while (10 + text.len() + 1) % ALIGN != 0 {
            text.push(' ');
        }
        text.push('\n');
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
        out
    }

    /// Returns the number of elements, unless the shape overflows.
    pub fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }
}

/// A parser of a Python dictionary literal with three known keys.
struct Dict<'a> {
    rest: &'a str,
}

impl<'a> Dict<'a> {
    fn header(mut self) -> Result<Header, String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" => fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                _ => return Err(format!("unexpected key {key:?} in the .npy header")),
            }
            self.accept(',');
        }
        let missing = |key| format!("no {key:?} in the .npy header");
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        Ok(Header {
            dtype,
            big_endian,
            fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn accept(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.accept(c) { Ok(()) } else { Err(format!("expected {c:?} in the .npy header")) }
    }

    fn take(&mut self, part: impl Fn(char) -> bool) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (head, tail) = self.rest.split_at(end);
        self.rest = tail;
        head
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.accept('\'') { '\'' } else { self.expect('"').map(|()| '"')? };
        let (text, rest) = self.rest.split_once(quote).ok_or("an unclosed string in the .npy header")?;
        self.rest = rest;
        Ok(text)
    }

    /// Parses a type name; a list of fields (a record array) is skipped and named `record`.
    fn descr(&mut self) -> Result<(DType, bool), String> {
        if !self.accept('[') {
            return Ok(DType::parse(self.string()?));
        }
        let mut depth = 1;
        for (i, c) in self.rest.char_indices() {
            depth += i32::from(c == '[') - i32::from(c == ']');
            if depth == 0 {
                self.rest = &self.rest[i + 1..];
                return Ok((DType::Other("record".into()), false));
            }
        }
        Err("an unclosed list in the .npy header".into())
    }

    fn boolean(&mut self) -> Result<bool, String> {
        match self.take(char::is_alphanumeric) {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(format!("expected True or False in the .npy header, found {other:?}")),
        }
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect('(')?;
        let mut dims = Vec::new();
        while !self.accept(')') {
            // Python 2 wrote long integers with a trailing L.
            let digits = self.take(char::is_alphanumeric);
            let dim = digits.trim_end_matches('L').parse();
            dims.push(dim.map_err(|_| format!("bad dimension {digits:?} in the .npy header"))?);
            if dims.len() > 32 {
                return Err("more than 32 dimensions in the .npy header".into());
            }
            if !self.accept(',') && !self.rest.trim_start().starts_with(')') {
                return Err("expected ',' or ')' in the shape of the .npy header".into());
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for shape in [vec![], vec![5], vec![3, 4], vec![10, 1, 2]] {
            let bytes = Header::encode(&DType::F32, &shape);
            let (header, start) = Header::parse(&bytes).unwrap();
            assert_eq!(start % ALIGN, 0);
            assert_eq!(header, Header { dtype: DType::F32, big_endian: false, fortran: false, shape });
        }
    }
}
