//! Arrays of numpy that the library reads, and views of arrays of the library.

use halograph_graph::io::npy::{Array, Bytes, DType, Element as Stored, Header};
use numpy::ndarray::{ArrayView, Dim, IntoDimension};
use numpy::{Element, PyArray, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The memory of an array of numpy, which it keeps alive.
struct Shared {
    start: *const u8,
    length: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: the memory is only read, and belongs to an array that lives as long; `Py` may be dropped in any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the elements of a C-contiguous array are this many bytes from its start on. The Python package makes an
        // array that a dataset keeps read-only, and documents that the memory must not be written to otherwise.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Shares a C-contiguous array under this name in messages.
pub fn shared(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Array> {
    let type_of = |attribute| array.dtype().getattr(attribute)?.extract::<String>();
    let (dtype, big_endian) = match DType::parse(&type_of("str")?) {
        // Text has its length in `str`; names of other types are plainer.
        (DType::Other(text), _) if !text.contains(['U', 'S']) => (DType::Other(type_of("name")?), false),
        parsed => parsed,
    };
    // Elements of other types are never read.
    let size = dtype.size().unwrap_or(0);
    if !array.is_c_contiguous() {
        return Err(PyTypeError::new_err(format!("{name}: not a C-contiguous array")));
    }
    let header = Header { dtype, big_endian, fortran: false, shape: array.shape().to_vec() };
    let length = array.len() * size;
    // SAFETY: the pointer is that of a live array.
    let start = unsafe { (*array.as_array_ptr()).fields.data } as *const u8;
    let memory = Shared { start, length, _array: array.clone().unbind() };
    let bytes = Bytes::Owned(Arc::new(memory), 0..length);
    Array::from_parts(name.into(), header, bytes).map_err(|error| crate::error::Failure::from(error).into())
}

/// Returns a read-only view of `elements`, which belong to `owner` and do not move while it lives.
///
/// # Safety
///
/// `owner` must keep `elements` alive and unchanged.
pub unsafe fn view<'py, T, const N: usize>(
    owner: &Bound<'py, PyAny>,
    shape: [usize; N],
    elements: &[T],
) -> PyResult<Bound<'py, PyAny>>
where
    T: Element + Stored,
    [usize; N]: IntoDimension<Dim = Dim<[usize; N]>>,
    Dim<[usize; N]>: numpy::ndarray::Dimension,
{
    let view =
        ArrayView::from_shape(shape, elements).map_err(|error| PyTypeError::new_err(error.to_string()))?;
    // SAFETY: the caller guarantees it.
    let array = unsafe { PyArray::borrow_from_array(&view, owner.clone()) };
    array.try_readwrite().map_err(|error| PyTypeError::new_err(error.to_string()))?.make_nonwriteable();
    Ok(array.into_any())
}

/// Returns a new array of these numbers, in row order.
pub fn matrix<'py, T: Element>(
    py: Python<'py>,
    numbers: Vec<T>,
    shape: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let flat = PyArray::from_vec(py, numbers);
    Ok(flat.reshape(shape.to_vec())?.into_any())
}
