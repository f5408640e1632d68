//! `.npy` arrays: header, memory-mapped or owned contents, streaming writer.
//!
//! A header is checked against the bytes that are really there before anything is allocated, so a file that
//! claims a terabyte costs nothing. Contents stay where they are (memory map, or a decompressed zip member) and
//! are decoded in pieces; [`Array::as_slice`] gives the numbers themselves when layout and alignment allow.
//!
//! Format: magic, version, header length, a Python dictionary literal, then the raw elements.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use half::f16;
use memmap2::Mmap;

use crate::error::{Error, IoContext, Result};

#[cfg(target_endian = "big")]
compile_error!("dataset files are little-endian and mapped as they are: big-endian hosts are not supported");

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header we read. numpy's own limit for untrusted files is 10,000 bytes.
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
    /// Strings, objects, records: known by name only, never decoded.
    Other(String),
}

impl DType {
    /// Parses numpy's `descr`, byte order included: `<f4`, `|b1`, `>i8`. The flag says big-endian.
    pub(crate) fn parse(descr: &str) -> (DType, bool) {
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

    /// numpy's name for the type in little-endian order.
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

    /// Bytes an element takes; `None` for types we do not decode.
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
pub trait Element: Pod {
    /// The matching element type.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f16 => F16, f32 => F32, f64 => F64);

/// What an `.npy` header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: DType,
    /// Elements are stored in big-endian order.
    pub big_endian: bool,
    /// Columns are contiguous instead of rows.
    pub fortran: bool,
    /// Length of each dimension.
    pub shape: Vec<usize>,
}

impl Header {
    /// Parses the header at the start of `bytes`; gives it and the offset of the first element.
    pub fn parse(bytes: &[u8]) -> Result<(Header, usize), String> {
        if bytes.len() < 10 || &bytes[..6] != MAGIC {
            return Err("not an .npy array (its first bytes are not \\x93NUMPY)".into());
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

    /// The header numpy would write, padded so that elements start at a multiple of 64 bytes.
    fn encode(dtype: &DType, shape: &[usize]) -> Vec<u8> {
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

    /// Number of elements, unless the shape overflows.
    pub fn count(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }
}

/// A reader of the one Python literal that occurs here: a flat dictionary with three known keys.
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

    /// A plain type name; a list of fields (a record array) is passed over and named as such.
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

/// Where the bytes of an array live.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a memory-mapped file.
    Mapped(Arc<Mmap>, Range<usize>),
    /// In memory.
    Owned(Arc<Vec<u8>>, Range<usize>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map, range) => &map[range.clone()],
            Bytes::Owned(data, range) => &data[range.clone()],
        }
    }

    fn skip(self, n: usize) -> Bytes {
        match self {
            Bytes::Mapped(map, r) => Bytes::Mapped(map, r.start + n..r.end),
            Bytes::Owned(data, r) => Bytes::Owned(data, r.start + n..r.end),
        }
    }
}

/// Maps a whole file into memory, read-only.
pub fn map(path: &Path) -> Result<Arc<Mmap>> {
    let file = File::open(path).at(path, "open")?;
    if file.metadata().at(path, "open")?.is_dir() {
        return Err(Error::input(path.display(), "is a directory, not a file"));
    }
    // SAFETY: the map is read-only and we never hand out a mutable view. A writer that changes the file under
    // us can change the numbers we read, and one that truncates it ends the process with SIGBUS; that is the
    // documented contract of a dataset directory (do not write into it while it is in use).
    let map = unsafe { Mmap::map(&file) }.at(path, "map")?;
    Ok(Arc::new(map))
}

/// An array whose contents stay in a file map or buffer.
#[derive(Clone)]
pub struct Array {
    /// File name, or `archive.npz[member]`: the first word of every message about it.
    pub name: String,
    /// Type and shape.
    pub header: Header,
    bytes: Bytes,
}

impl Array {
    /// Maps an `.npy` file.
    pub fn open(path: &Path) -> Result<Array> {
        let map = map(path)?;
        let len = map.len();
        Array::new(path.display().to_string(), Bytes::Mapped(map, 0..len))
    }

    /// Interprets `bytes` as a whole `.npy` file, header included.
    pub fn new(name: String, bytes: Bytes) -> Result<Array> {
        let (header, start) = Header::parse(bytes.get()).map_err(|e| Error::input(&name, e))?;
        Array::from_parts(name, header, bytes.skip(start))
    }

    /// An array whose type and shape were told elsewhere; `bytes` are its elements and must be just enough.
    pub fn from_parts(name: String, header: Header, bytes: Bytes) -> Result<Array> {
        if let Some(size) = header.dtype.size() {
            let wanted = header.count().and_then(|n| n.checked_mul(size)).unwrap_or(usize::MAX);
            let there = bytes.get().len();
            if wanted != there {
                let what = if wanted > there { "truncated" } else { "too long" };
                let problem =
                    format!("{what}: shape {:?} needs {wanted} bytes, {there} are there", header.shape);
                return Err(Error::input(name, problem));
            }
        }
        Ok(Array { name, header, bytes })
    }

    /// Number of elements; 0 for types we do not decode, whose length nobody has checked.
    pub fn len(&self) -> usize {
        self.header.dtype.size().and(self.header.count()).unwrap_or(0)
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First dimension (1 for a scalar).
    pub fn rows(&self) -> usize {
        self.header.shape.first().copied().unwrap_or(1)
    }

    /// Product of the other dimensions.
    pub fn cols(&self) -> usize {
        self.header.shape.iter().skip(1).fold(1, |n: usize, &d| n.saturating_mul(d))
    }

    /// Bytes of the elements as they are stored.
    pub fn raw(&self) -> &[u8] {
        self.bytes.get()
    }

    /// The elements themselves, if they are of type `T`, in row order, native and aligned.
    ///
    /// `i32` may be viewed as `u32` and `i64` as `u64`: a negative id shows up as one far out of range.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let same = self.header.dtype == T::DTYPE
            || matches!((&self.header.dtype, T::DTYPE), (DType::I32, DType::U32) | (DType::I64, DType::U64));
        let ordered = !self.header.fortran || self.header.shape.len() <= 1;
        let native = !self.header.big_endian;
        (same && ordered && native).then(|| bytemuck::try_cast_slice(self.raw()).ok()).flatten()
    }

    /// Where logical (row-order) element `i` is stored, counted in elements.
    fn position(&self, i: usize) -> usize {
        if self.header.fortran && self.header.shape.len() == 2 {
            let (rows, cols) = (self.header.shape[0], self.header.shape[1]);
            (i % cols) * rows + i / cols
        } else {
            i
        }
    }

    /// Calls `f(k, element)` for the elements `start..start + n` in row order, as the type they are stored in.
    fn decode<R>(&self, start: usize, n: usize, mut f: R) -> Result<()>
    where
        R: FnMut(usize, Value) -> Result<()>,
    {
        if self.header.fortran && self.header.shape.len() > 2 {
            return Err(Error::input(&self.name, "Fortran order with more than 2 dimensions")
                .help("save it with numpy.ascontiguousarray"));
        }
        let raw = self.raw();
        macro_rules! run {
            ($t:ty, $variant:ident, $as:ty) => {{
                const SIZE: usize = size_of::<$t>();
                for k in 0..n {
                    let at = self.position(start + k) * SIZE;
                    let mut bytes: [u8; SIZE] = raw[at..at + SIZE].try_into().expect("SIZE bytes");
                    if self.header.big_endian {
                        bytes.reverse();
                    }
                    f(k, Value::$variant(<$as>::from(<$t>::from_le_bytes(bytes))))?;
                }
                Ok(())
            }};
        }
        match &self.header.dtype {
            DType::Bool => {
                for k in 0..n {
                    f(k, Value::Int(i64::from(raw[self.position(start + k)] != 0)))?;
                }
                Ok(())
            }
            DType::I8 => run!(i8, Int, i64),
            DType::I16 => run!(i16, Int, i64),
            DType::I32 => run!(i32, Int, i64),
            DType::I64 => run!(i64, Int, i64),
            DType::U8 => run!(u8, Int, i64),
            DType::U16 => run!(u16, Int, i64),
            DType::U32 => run!(u32, Int, i64),
            DType::U64 => run!(u64, Big, u64),
            DType::F16 => run!(f16, Real, f64),
            DType::F32 => run!(f32, Real, f64),
            DType::F64 => run!(f64, Real, f64),
            DType::Other(name) => {
                Err(Error::input(&self.name, format!("elements of type {name} where numbers are needed")))
            }
        }
    }

    /// Decodes elements from `start` on as integers. A number with a fraction, or beyond 63 bits, is an error.
    pub fn read_i64(&self, start: usize, out: &mut [i64]) -> Result<()> {
        self.decode(start, out.len(), |k, value| {
            out[k] = value.int().ok_or_else(|| {
                Error::input(
                    format!("{}, element {}", self.name, start + k),
                    format!("{value} where a whole number is needed"),
                )
            })?;
            Ok(())
        })
    }

    /// Decodes elements from `start` on as `f32`, rounding `f64` and wide integers.
    pub fn read_f32(&self, start: usize, out: &mut [f32]) -> Result<()> {
        if let Some(all) = self.as_slice::<f32>() {
            out.copy_from_slice(&all[start..start + out.len()]);
            return Ok(());
        }
        self.decode(start, out.len(), |k, value| {
            out[k] = value.real() as f32;
            Ok(())
        })
    }

    /// Decodes elements from `start` on as `f64`.
    pub fn read_f64(&self, start: usize, out: &mut [f64]) -> Result<()> {
        self.decode(start, out.len(), |k, value| {
            out[k] = value.real();
            Ok(())
        })
    }

    /// All elements as integers. For small arrays: shapes, labels, splits.
    pub fn to_i64(&self) -> Result<Vec<i64>> {
        let mut out = vec![0; self.len()];
        self.read_i64(0, &mut out)?;
        Ok(out)
    }
}

/// One decoded element.
#[derive(Clone, Copy)]
enum Value {
    Int(i64),
    Big(u64),
    Real(f64),
}

impl Value {
    fn int(self) -> Option<i64> {
        match self {
            Value::Int(i) => Some(i),
            Value::Big(u) => i64::try_from(u).ok(),
            Value::Real(x) => (x.fract() == 0.0 && x.abs() < 9e15).then_some(x as i64),
        }
    }

    fn real(self) -> f64 {
        match self {
            Value::Int(i) => i as f64,
            Value::Big(u) => u as f64,
            Value::Real(x) => x,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Value::Int(i) => i.fmt(f),
            Value::Big(u) => u.fmt(f),
            Value::Real(x) => x.fmt(f),
        }
    }
}

/// Length and digest of a finished file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileRecord {
    /// Length in bytes, header included.
    pub bytes: u64,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub blake3: String,
}

/// Writes one array front to back, hashing as it goes.
pub struct Writer<T> {
    path: PathBuf,
    out: BufWriter<File>,
    hash: blake3::Hasher,
    written: u64,
    expected: u64,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Writer<T> {
    /// Creates `path` and writes the header for `shape`.
    pub fn create(path: &Path, shape: &[usize]) -> Result<Self> {
        let header = Header::encode(&T::DTYPE, shape);
        let expected = shape.iter().map(|&d| d as u64).product::<u64>() * size_of::<T>() as u64;
        let file = File::create_new(path).at(path, "create")?;
        let mut writer = Writer {
            path: path.to_path_buf(),
            out: BufWriter::with_capacity(1 << 20, file),
            hash: blake3::Hasher::new(),
            written: 0,
            expected: expected + header.len() as u64,
            element: std::marker::PhantomData,
        };
        writer.write_bytes(&header)?;
        Ok(writer)
    }

    /// Appends elements.
    pub fn write(&mut self, elements: &[T]) -> Result<()> {
        self.write_bytes(bytemuck::cast_slice(elements))
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).at(&self.path, "write")
    }

    /// Flushes to the device and gives the file's record. The number of elements must match the shape.
    pub fn finish(mut self) -> Result<FileRecord> {
        if self.written != self.expected {
            return Err(Error::input(
                self.path.display(),
                format!("{} bytes written where the shape needs {}", self.written, self.expected),
            ));
        }
        self.out.flush().at(&self.path, "write")?;
        self.out.get_ref().sync_all().at(&self.path, "write")?;
        Ok(FileRecord { bytes: self.written, blake3: self.hash.finalize().to_hex().to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(text: &str, data: &[u8]) -> Result<Array> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        let len = bytes.len();
        Array::new("t.npy".into(), Bytes::Owned(Arc::new(bytes), 0..len))
    }

    #[test]
    fn headers_round_trip() {
        for shape in [vec![], vec![5], vec![3, 4], vec![10, 1, 2]] {
            let bytes = Header::encode(&DType::F32, &shape);
            let (header, start) = Header::parse(&bytes).unwrap();
            assert_eq!(start % ALIGN, 0);
            assert_eq!(header, Header { dtype: DType::F32, big_endian: false, fortran: false, shape });
        }
    }

    #[test]
    fn fortran_big_endian_and_bool_decode() {
        let a = array(
            "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}",
            &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6],
        );
        assert_eq!(a.unwrap().to_i64().unwrap(), [1, 2, 3, 4, 5, 6]);
        let b = array("{'descr': '|b1', 'fortran_order': False, 'shape': (3L,), }", &[0, 1, 7]).unwrap();
        assert_eq!(b.to_i64().unwrap(), [0, 1, 1]);
    }

    #[test]
    fn fractions_are_not_integers() {
        let a = array(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
            bytemuck::cast_slice(&[1f32, 2.5]),
        )
        .unwrap();
        assert!(a.to_i64().unwrap_err().to_string().contains("element 1: 2.5"));
    }

    #[test]
    fn lies_about_size_are_refused() {
        for (shape, word) in
            [("(3,)", "truncated"), ("(1,)", "too long"), ("(99999999999999999, 9999999)", "truncated")]
        {
            let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            let error = array(&text, &[0; 8]).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn objects_and_records_are_named_not_decoded() {
        for (descr, name) in
            [("'|O'", "|O"), ("'<U19'", "<U19"), ("[('a', '<f4'), ('b', [('c', '<i4')])]", "record")]
        {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}");
            let a = array(&text, b"\x80\x02").unwrap();
            assert_eq!(a.header.dtype, DType::Other(name.into()));
            assert!(a.to_i64().is_err());
        }
    }

    #[test]
    fn written_files_map_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let mut writer = Writer::<u32>::create(&path, &[4]).unwrap();
        writer.write(&[1, 2]).unwrap();
        writer.write(&[3, 4]).unwrap();
        let record = writer.finish().unwrap();
        assert_eq!(record.bytes, std::fs::metadata(&path).unwrap().len());
        let a = Array::open(&path).unwrap();
        assert_eq!(a.as_slice::<u32>().unwrap(), [1, 2, 3, 4]);
        assert!(a.as_slice::<i64>().is_none());
    }

    #[test]
    fn a_short_write_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::<u8>::create(&dir.path().join("a.npy"), &[4]).unwrap();
        assert!(writer.finish().is_err());
    }
}
