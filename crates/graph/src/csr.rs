//! Compressed sparse rows: the in-neighbours of every vertex.

use crate::io::npy::Array;

/// A graph in compressed sparse rows: `indices[indptr[v]..indptr[v + 1]]` are the in-neighbours of `v`.
///
/// Rows are sorted and hold no repeats, and ids are below `nodes()`: [`crate::build`] guarantees it,
/// [`crate::dataset::check()`] verifies it.
pub struct Csr {
    /// Row starts, one more than there are vertices.
    pub indptr: Vec<u64>,
    /// Neighbour ids.
    pub indices: Ids,
    /// Weights of the edges, in the order of `indices`, if they have any.
    pub weights: Option<Vec<f32>>,
}

/// Neighbour ids, in memory or in a mapped file.
pub enum Ids {
    /// In memory.
    Owned(Vec<u32>),
    /// A mapped array that [`Array::as_slice`] can view as `u32`.
    Mapped(Array),
}

impl Ids {
    /// Returns the ids.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Ids::Owned(ids) => ids,
            Ids::Mapped(array) => array.as_slice().expect("only arrays with a u32 view become Ids::Mapped"),
        }
    }
}

impl Csr {
    /// Returns the number of vertices.
    pub fn nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the number of stored (directed) edges.
    pub fn edges(&self) -> u64 {
        *self.indptr.last().expect("indptr holds at least one entry")
    }

    /// Borrows the graph.
    pub fn view(&self) -> CsrView<'_> {
        CsrView { indptr: &self.indptr, indices: self.indices.as_slice() }
    }
}

/// A borrowed [`Csr`].
#[derive(Clone, Copy)]
pub struct CsrView<'a> {
    /// Row starts.
    pub indptr: &'a [u64],
    /// Neighbour ids.
    pub indices: &'a [u32],
}

impl<'a> CsrView<'a> {
    /// Returns the number of vertices.
    pub fn nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the in-neighbours of `v`.
    #[inline]
    pub fn row(&self, v: usize) -> &'a [u32] {
        &self.indices[self.indptr[v] as usize..self.indptr[v + 1] as usize]
    }

    /// Returns the in-degree of `v`.
    #[inline]
    pub fn degree(&self, v: usize) -> u64 {
        self.indptr[v + 1] - self.indptr[v]
    }
}

/// Returns whether a number is a weight: finite and not negative.
pub(crate) fn is_weight(weight: f32) -> bool {
    weight.is_finite() && weight >= 0.0
}

/// Says that a number is no weight.
pub(crate) fn wrong_weight(weight: f64) -> String {
    format!("weight {weight}: edge weights must be finite and at least 0")
}
