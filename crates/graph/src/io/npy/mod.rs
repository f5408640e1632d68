//! `.npy` arrays: header, memory-mapped or owned contents, streaming writer.
//!
//! A header is checked against the size of the file before anything is allocated. Contents stay in the memory map (or the
//! decompressed zip member) and are decoded in pieces; [`Array::as_slice`] borrows the elements if layout and alignment
//! allow it.
//!
//! Format: magic, version, header length, a Python dictionary literal, then the elements.

mod header;
mod write;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use memmap2::Mmap;

pub use header::{DType, Element, Header};
pub use write::{FileRecord, Writer};

use crate::error::{Error, IoContext, Result};

#[cfg(target_endian = "big")]
compile_error!("dataset files are little-endian and mapped as they are: big-endian hosts are not supported");

/// Where the bytes of an array live.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a memory-mapped file.
    Mapped(Arc<Mmap>, Range<usize>),
    /// A range of a buffer in memory.
    Owned(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
}

/// A vector of numbers as a buffer for [`Bytes::Owned`].
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map, range) => &map[range.clone()],
            Bytes::Owned(data, range) => &(**data).as_ref()[range.clone()],
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
    let file = super::open(path)?;
    // SAFETY: the map is read-only and never borrowed mutably. A process that changes the file meanwhile can change the
    // values read, and one that truncates it ends this process with SIGBUS. Datasets and imported files are documented
    // as not to be written to meanwhile.
    let map = unsafe { Mmap::map(&file) }.at(path, "map")?;
    Ok(Arc::new(map))
}

/// An array whose contents stay in a file map or buffer.
#[derive(Clone)]
pub struct Array {
    /// Name in messages: the file, or `archive.npz[member]`.
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

    /// Creates an array from its header and its elements, whose size must match.
    pub fn from_parts(name: String, header: Header, bytes: Bytes) -> Result<Array> {
        if let Some(size) = header.dtype.size() {
            let wanted = header.count().and_then(|n| n.checked_mul(size)).unwrap_or(usize::MAX);
            let there = bytes.get().len();
            if wanted != there {
                let what = if wanted > there { "truncated" } else { "too long" };
                let problem =
                    format!("{what}: shape {:?} needs {wanted} bytes, there are {there}", header.shape);
                return Err(Error::input(name, problem));
            }
        }
        Ok(Array { name, header, bytes })
    }

    /// Wraps a vector without copying it. Fails if its length does not match `shape`.
    pub fn from_vec<T: Element>(name: String, shape: Vec<usize>, elements: Vec<T>) -> Result<Array> {
        let header = Header { dtype: T::DTYPE, big_endian: false, fortran: false, shape };
        let length = size_of_val(elements.as_slice());
        Array::from_parts(name, header, Bytes::Owned(Arc::new(Elements(elements)), 0..length))
    }

    /// Returns the array under another name.
    pub(crate) fn named(self, name: String) -> Array {
        Array { name, ..self }
    }

    /// Returns length and digest of the `.npy` file that [`Writer`] would write for this array.
    ///
    /// The elements must be little-endian and in row order, as [`Array::from_vec`] has them.
    pub(crate) fn file_record(&self) -> FileRecord {
        let header = Header::encode(&self.header.dtype, &self.header.shape);
        let mut hash = blake3::Hasher::new();
        hash.update(&header).update(self.raw());
        let bytes = (header.len() + self.raw().len()) as u64;
        FileRecord { bytes, blake3: hash.finalize().to_hex().to_string() }
    }

    /// Returns the number of elements; 0 for types that are not decoded.
    pub fn len(&self) -> usize {
        self.header.dtype.size().and(self.header.count()).unwrap_or(0)
    }

    /// Returns whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first dimension (1 for a scalar).
    pub fn rows(&self) -> usize {
        self.header.shape.first().copied().unwrap_or(1)
    }

    /// Returns the product of the other dimensions.
    pub fn cols(&self) -> usize {
        self.header.shape.iter().skip(1).fold(1, |n: usize, &d| n.saturating_mul(d))
    }

    /// Returns whether the contents are in memory, not in a mapped file.
    pub(crate) fn is_owned(&self) -> bool {
        matches!(self.bytes, Bytes::Owned(..))
    }

    /// Releases the resident pages of a mapped file; later accesses read it again.
    pub fn release(&self) {
        if let Bytes::Mapped(map, _) = &self.bytes {
            // SAFETY: the map is shared and read-only, so that pages can be read again from the file.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// Returns the stored bytes of the elements.
    pub fn raw(&self) -> &[u8] {
        self.bytes.get()
    }

    /// Borrows the elements if they are of type `T`, in row order, little-endian and aligned.
    ///
    /// `i32` may be borrowed as `u32` and `i64` as `u64`: a negative id then is out of range.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let same = self.header.dtype == T::DTYPE
            || matches!((&self.header.dtype, T::DTYPE), (DType::I32, DType::U32) | (DType::I64, DType::U64));
        let ordered = !self.header.fortran || self.header.shape.len() <= 1;
        let native = !self.header.big_endian;
        (same && ordered && native).then(|| bytemuck::try_cast_slice(self.raw()).ok()).flatten()
    }

    /// Returns the storage position of element `i` in row order, counted in elements.
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
        if let Some(all) = self.as_slice::<f16>() {
            all[start..start + out.len()].convert_to_f32_slice(out);
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

    /// Returns all elements as integers. For small arrays: shapes, labels, splits.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn array(text: &str, data: &[u8]) -> Result<Array> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        let len = bytes.len();
        Array::new("t.npy".into(), Bytes::Owned(Arc::new(bytes), 0..len))
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
    fn wrong_sizes_are_refused() {
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
}
