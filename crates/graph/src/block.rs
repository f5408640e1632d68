//! [`Block`]: the bipartite graph that a layer computes on, with edges from *source rows* to *destination rows*.
//!
//! The whole graph, a part with its halo, a chunk, a sampled mini-batch and a split of a mini-batch are all [`Block`]s, so
//! that a layer is implemented once.
//!
//! - Rows are matrix rows, numbered from 0; [`Block::ids`] holds their dataset vertex ids.
//! - Destinations are a contiguous run of the source rows, usually the prefix, so that a destination finds its own
//!   features among the sources.
//! - Source rows owned by other ranks form a [`Halo`]. Its edges are separate, so that edges from owned rows are
//!   aggregated while halo rows are communicated.
//! - The edges of a destination, in the block and its halo, are *all* edges of its aggregate: a mean divides by their
//!   number. [`Block::degrees`] are those of the graph that the block was cut from; symmetric normalisation needs them for
//!   rows whose neighbours are not in the block.
//! - A sampled block ([`Block::sampled`]) holds a uniform sample of the edges of each destination instead.
//!   [`Block::edge_scale`] says how many edges each of them stands for, so that aggregates are unbiased estimates.
//! - Edges may have weights. [`Block::in_weights`] are sums over the graph that the block was cut from, as degrees are.
//!
//! ```
//! use halograph_graph::{block::Block, csr::CsrView};
//! // 0 - 1 - 2: in-neighbours of each vertex.
//! let graph = CsrView { indptr: &[0, 1, 3, 4], indices: &[1, 0, 2, 1] };
//! let whole = Block::whole(graph);
//! assert_eq!((whole.sources(), whole.degrees()), (3, &[1, 2, 1][..]));
//! // Vertices 1 and 2 alone keep the edge between them.
//! let part = Block::induced(graph, &[1, 2]);
//! assert_eq!((part.edges(), part.degrees(), part.ids()), (2, &[1, 1][..], Some(&[1, 2][..])));
//! ```

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use halograph_kernels::keyed::Key;
use halograph_kernels::sparse::{Pattern, Transpose};
use rayon::prelude::*;

use self::weights::{BlockWeights, HaloWeights};
pub use self::weights::{InWeight, in_weights, weights_of};
use crate::csr::CsrView;

mod weights;

/// A bipartite graph in compressed rows, from source rows to destination rows.
pub struct Block<'g> {
    indptr: Cow<'g, [u64]>,
    indices: Cow<'g, [u32]>,
    destinations: Range<usize>,
    degrees: Cow<'g, [u32]>,
    ids: Option<Cow<'g, [u32]>>,
    loops: Vec<u32>,
    weights: Option<BlockWeights<'g>>,
    halo: Option<Arc<Halo>>,
    is_sampled: bool,
    /// The block that this one is a prefix of.
    parent: Option<&'g Block<'g>>,
    transpose: OnceLock<BlockTranspose>,
    symmetric: OnceLock<bool>,
    without_loops: OnceLock<Box<Block<'static>>>,
}

/// Source rows owned by other ranks, and the edges from them to the destinations of a block.
#[derive(Debug)]
pub struct Halo {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    degrees: Vec<u32>,
    ids: Vec<u32>,
    weights: Option<HaloWeights>,
    /// Destinations with an edge from the halo, and their row starts.
    reached: Vec<u32>,
    bounds: Vec<u64>,
    transpose: OnceLock<Transpose>,
    reached_transpose: OnceLock<Transpose>,
}

impl Halo {
    /// Creates a halo. `indices[indptr[i]..indptr[i + 1]]` are the halo rows, counted from 0, that destination `i` reads;
    /// `degrees` and `ids` are those of the halo rows, as in a [`Block`].
    ///
    /// # Panics
    /// If lengths do not match; in builds with debug assertions also if any row start or index is out of range.
    pub fn new(indptr: Vec<u64>, indices: Vec<u32>, degrees: Vec<u32>, ids: Vec<u32>) -> Self {
        assert_eq!(indptr.last(), Some(&(indices.len() as u64)), "row starts end at the edge count");
        assert_eq!(degrees.len(), ids.len(), "an id for every halo row");
        debug_assert!(indptr[0] == 0 && indptr.is_sorted(), "row starts rise from 0");
        debug_assert!(indices.iter().all(|&i| (i as usize) < degrees.len()), "edges come from halo rows");
        let reached: Vec<u32> =
            (0..indptr.len() as u32 - 1).filter(|&r| indptr[r as usize] < indptr[r as usize + 1]).collect();
        let bounds = std::iter::once(0).chain(reached.iter().map(|&r| indptr[r as usize + 1])).collect();
        Halo {
            indptr,
            indices,
            degrees,
            ids,
            weights: None,
            reached,
            bounds,
            transpose: OnceLock::new(),
            reached_transpose: OnceLock::new(),
        }
    }

    /// Returns the number of edges from halo rows.
    pub fn edges(&self) -> usize {
        self.indices.len()
    }

    /// Returns the bytes of memory, without transposes.
    pub(crate) fn bytes(&self) -> usize {
        let wide = self.indptr.capacity() + self.bounds.capacity();
        let narrow = [&self.indices, &self.degrees, &self.ids, &self.reached];
        let weights = self.weights.as_ref().map_or(0, HaloWeights::bytes);
        8 * wide + 4 * narrow.map(Vec::capacity).iter().sum::<usize>() + weights
    }

    /// Returns the number of halo rows.
    pub fn sources(&self) -> usize {
        self.degrees.len()
    }

    /// Returns the in-degree of each halo row in the whole graph, self-loops not counted.
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// Returns the dataset vertex id of each halo row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the edges: destinations by halo rows.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.indptr, &self.indices)
    }

    /// Returns the destinations that read a halo row, ascending.
    pub fn reached(&self) -> &[u32] {
        &self.reached
    }

    /// Returns the edges of [`Halo::reached`] only: reached destinations by halo rows.
    pub fn reached_pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.bounds, &self.indices)
    }

    /// Returns the transpose of [`Halo::reached_pattern`]. Computed at the first call.
    pub fn reached_transpose(&self) -> Pattern<'_> {
        self.reached_transpose.get_or_init(|| Transpose::of(self.reached_pattern(), self.sources())).pattern()
    }

    /// Returns the transpose of [`Halo::pattern`]. Computed at the first call.
    pub fn transpose(&self) -> Pattern<'_> {
        self.transpose.get_or_init(|| Transpose::of(self.pattern(), self.sources())).pattern()
    }
}

/// The transpose of a block.
enum BlockTranspose {
    /// The block itself, which is symmetric.
    Own,
    /// A prefix of each row of the parent's transpose; these are the ends of the rows.
    Parent(Vec<u64>),
    /// Computed.
    Built(Transpose),
}

impl<'g> Block<'g> {
    /// Creates a block.
    ///
    /// `indices[indptr[i]..indptr[i + 1]]` are the source rows of destination `i`, which is itself source row
    /// `destinations.start + i`. `degrees` holds, for each source row, its number of in-neighbours other than itself
    /// in the whole graph; `ids` its dataset vertex id (`None`: the row number).
    ///
    /// # Panics
    /// If lengths do not match; in builds with debug assertions also if any row start or index is out of range.
    pub fn new(
        indptr: impl Into<Cow<'g, [u64]>>,
        indices: impl Into<Cow<'g, [u32]>>,
        destinations: Range<usize>,
        degrees: Vec<u32>,
        ids: Option<Vec<u32>>,
    ) -> Self {
        let (indptr, indices) = (indptr.into(), indices.into());
        assert_eq!(indptr.len(), destinations.len() + 1, "a row start for every destination, and the end");
        assert_eq!(indptr[destinations.len()], indices.len() as u64, "row starts end at the edge count");
        assert!(destinations.end <= degrees.len(), "destinations are source rows");
        assert!(ids.as_ref().is_none_or(|ids| ids.len() == degrees.len()), "an id for every source row");
        debug_assert!(indptr[0] == 0 && indptr.is_sorted(), "row starts rise from 0");
        debug_assert!(indices.iter().all(|&i| (i as usize) < degrees.len()), "edges come from source rows");
        let loops = self_loops(Pattern::new(&indptr, &indices), destinations.start);
        Block {
            indptr,
            indices,
            destinations,
            degrees: degrees.into(),
            ids: ids.map(Cow::from),
            loops,
            weights: None,
            halo: None,
            is_sampled: false,
            parent: None,
            transpose: OnceLock::new(),
            symmetric: OnceLock::new(),
            without_loops: OnceLock::new(),
        }
    }

    /// Creates a block of sampled edges; the destinations are the first source rows. Borrows all but `loops`.
    ///
    /// The edges of a destination are a uniform sample of its edges from other rows, and its self-loop if the graph
    /// stores one; `loops` lists the destinations that have it. `degrees` are those of the whole graph.
    ///
    /// # Panics
    /// If lengths do not match; in builds with debug assertions also if any row start or index is out of range.
    pub fn sampled(
        indptr: &'g [u64],
        indices: &'g [u32],
        degrees: &'g [u32],
        ids: &'g [u32],
        loops: &[u32],
    ) -> Self {
        let destinations = indptr.len() - 1;
        assert_eq!(indptr[destinations], indices.len() as u64, "row starts end at the edge count");
        assert!(destinations <= degrees.len(), "destinations are source rows");
        assert_eq!(degrees.len(), ids.len(), "an id for every source row");
        debug_assert!(indptr[0] == 0 && indptr.is_sorted(), "row starts rise from 0");
        debug_assert!(indices.iter().all(|&i| (i as usize) < degrees.len()), "edges come from source rows");
        Block {
            indptr: indptr.into(),
            indices: indices.into(),
            destinations: 0..destinations,
            degrees: degrees.into(),
            ids: Some(ids.into()),
            loops: loops.to_vec(),
            weights: None,
            halo: None,
            is_sampled: true,
            parent: None,
            transpose: OnceLock::new(),
            symmetric: OnceLock::new(),
            without_loops: OnceLock::new(),
        }
    }

    /// Creates the block of all of `graph`: row `v` is vertex `v`, source and destination. Borrows the edges.
    pub fn whole(graph: CsrView<'g>) -> Self {
        let mut degrees: Vec<u32> = (0..graph.nodes()).map(|v| graph.degree(v) as u32).collect();
        let pattern = Pattern::new(graph.indptr, graph.indices);
        self_loops(pattern, 0).into_iter().for_each(|v| degrees[v as usize] -= 1);
        Block::new(graph.indptr, graph.indices, 0..graph.nodes(), degrees, None)
    }

    /// Creates the block of all of `graph` with vertex `order[row]` at `row`; the sources of each row ascend.
    ///
    /// # Panics
    /// If `order` is not a permutation of the vertices.
    pub fn ordered(graph: CsrView, order: &[u32]) -> Block<'static> {
        const NOWHERE: u32 = u32::MAX;
        assert_eq!(order.len(), graph.nodes(), "a row for every vertex");
        let mut row_of = vec![NOWHERE; graph.nodes()];
        for (row, &v) in order.iter().enumerate() {
            assert_eq!(row_of[v as usize], NOWHERE, "vertex {v} is listed twice");
            row_of[v as usize] = row as u32;
        }
        let mut indptr = Vec::with_capacity(order.len() + 1);
        indptr.push(0);
        indptr.extend(order.iter().scan(0, |end, &v| {
            *end += graph.degree(v as usize);
            Some(*end)
        }));
        let mut indices = vec![0u32; graph.indices.len()];
        order.par_chunks(ROWS).zip(rows_mut(&indptr, &mut indices)).for_each(|(vertices, mut rest)| {
            for &v in vertices {
                let (row, after) = rest.split_at_mut(graph.degree(v as usize) as usize);
                row.iter_mut().zip(graph.row(v as usize)).for_each(|(to, &u)| *to = row_of[u as usize]);
                row.sort_unstable();
                rest = after;
            }
        });
        let mut degrees: Vec<u32> = order.iter().map(|&v| graph.degree(v as usize) as u32).collect();
        let loops = self_loops(Pattern::new(&indptr, &indices), 0);
        loops.into_iter().for_each(|row| degrees[row as usize] -= 1);
        Block::new(indptr, indices, 0..order.len(), degrees, Some(order.to_vec()))
    }

    /// Creates a block of the first `destinations` destinations and the first `sources` source rows. Borrows the edges;
    /// degrees remain those of the whole graph.
    ///
    /// # Panics
    /// If there are fewer rows, the block has a halo, or destinations are not among the sources; in builds with debug
    /// assertions also if an edge comes from a source that is left out.
    pub fn prefix(&self, destinations: usize, sources: usize) -> Block<'_> {
        let first = self.destinations.start;
        assert!(self.halo.is_none(), "a halo has no prefix");
        assert!(
            destinations <= self.destinations.len() && sources <= self.sources(),
            "a prefix is not longer than the block"
        );
        assert!(first + destinations <= sources, "destinations are source rows");
        let indices = &self.indices[..self.indptr[destinations] as usize];
        debug_assert!(indices.iter().all(|&i| (i as usize) < sources), "edges come from source rows");
        Block {
            indptr: Cow::Borrowed(&self.indptr[..=destinations]),
            indices: Cow::Borrowed(indices),
            destinations: first..first + destinations,
            degrees: Cow::Borrowed(&self.degrees[..sources]),
            ids: self.ids.as_ref().map(|ids| Cow::Borrowed(&ids[..sources])),
            loops: self.loops[..self.loops.partition_point(|&row| (row as usize) < destinations)].to_vec(),
            weights: self.weights.as_ref().map(|weights| weights.prefix(indices.len(), sources)),
            halo: None,
            is_sampled: self.is_sampled,
            parent: Some(self.parent.unwrap_or(self)),
            transpose: OnceLock::new(),
            symmetric: OnceLock::new(),
            without_loops: OnceLock::new(),
        }
    }

    /// Creates the block of the subgraph of `graph` induced by the distinct vertices `nodes`, in this order; the sources of
    /// each row ascend. Degrees are those of the subgraph, as inductive training needs them.
    pub fn induced(graph: CsrView, nodes: &[u32]) -> Block<'static> {
        const OUTSIDE: u32 = u32::MAX;
        let mut row_of = vec![OUTSIDE; graph.nodes()];
        for (row, &v) in nodes.iter().enumerate() {
            assert_eq!(row_of[v as usize], OUTSIDE, "vertex {v} is listed twice");
            row_of[v as usize] = row as u32;
        }
        let mut indptr = vec![0u64];
        let mut indices = Vec::new();
        let mut degrees = Vec::with_capacity(nodes.len());
        for (row, &v) in nodes.iter().enumerate() {
            let first = indices.len();
            indices
                .extend(graph.row(v as usize).iter().map(|&u| row_of[u as usize]).filter(|&u| u != OUTSIDE));
            indices[first..].sort_unstable();
            degrees.push(indices[first..].iter().filter(|&&u| u as usize != row).count() as u32);
            indptr.push(indices.len() as u64);
        }
        Block::new(indptr, indices, 0..nodes.len(), degrees, Some(nodes.to_vec()))
    }

    /// Returns the block with this halo.
    ///
    /// # Panics
    /// If the halo has another number of destinations, or only one of both has weights.
    #[must_use]
    pub fn with_halo(self, halo: impl Into<Arc<Halo>>) -> Self {
        let halo = halo.into();
        assert_eq!(halo.indptr.len(), self.indptr.len(), "halo edges of every destination");
        assert_eq!(halo.weights.is_some(), self.weights.is_some(), "weights of all edges or of none");
        Block { halo: Some(halo), ..self }
    }

    /// Returns the halo; `None` if the block cannot have one.
    pub fn halo(&self) -> Option<&Halo> {
        self.halo.as_deref()
    }

    /// Returns the number of edges into the `r`th destination, edges from the halo included.
    #[inline]
    pub fn in_edges(&self, r: usize) -> usize {
        let own = self.indptr[r + 1] - self.indptr[r];
        let halo = self.halo.as_ref().map_or(0, |halo| halo.indptr[r + 1] - halo.indptr[r]);
        (own + halo) as usize
    }

    /// Returns whether the edges are a sample of those in the graph.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Returns how many edges of the graph each edge into the `r`th destination stands for, self-loops aside: 1 unless the
    /// block is sampled.
    #[inline]
    pub fn edge_scale(&self, r: usize) -> f64 {
        if !self.is_sampled {
            return 1.0;
        }
        let sampled = self.in_edges(r) - self.loops.binary_search(&(r as u32)).is_ok() as usize;
        if sampled == 0 { 1.0 } else { self.degrees[self.destinations.start + r] as f64 / sampled as f64 }
    }

    /// Returns the number of source rows, without the halo.
    pub fn sources(&self) -> usize {
        self.degrees.len()
    }

    /// Returns the source rows that are destinations.
    pub fn destinations(&self) -> Range<usize> {
        self.destinations.clone()
    }

    /// Returns the number of edges, without those from the halo.
    pub fn edges(&self) -> usize {
        self.indices.len()
    }

    /// Returns the in-degree of each source row in the whole graph, self-loops not counted.
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// Returns the dataset vertex id of each source row; `None`: the row number.
    pub fn ids(&self) -> Option<&[u32]> {
        self.ids.as_deref()
    }

    /// Returns the dataset vertex id of source row `row`.
    #[inline]
    pub fn id(&self, row: usize) -> u32 {
        self.ids.as_ref().map_or(row as u32, |ids| ids[row])
    }

    /// Returns the destinations with a self-loop, counted from the first destination, ascending.
    pub fn loops(&self) -> &[u32] {
        &self.loops
    }

    /// Returns the edges: destinations by sources.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.indptr, &self.indices)
    }

    /// Returns row starts and sources of the edges.
    pub(crate) fn rows(&self) -> (&[u64], &[u32]) {
        (&self.indptr, &self.indices)
    }

    /// Returns the transpose, sources by destinations, for backward passes that gather. Its rows ascend if those of the
    /// block do. Computed at the first call; a symmetric block is its own transpose and nothing is copied.
    pub fn transpose(&self) -> Pattern<'_> {
        match self.transpose.get_or_init(|| self.compute_transpose()) {
            BlockTranspose::Own => self.pattern(),
            BlockTranspose::Parent(ends) => {
                let parents =
                    self.parent.expect("only a prefix uses the transpose of its parent").transpose();
                Pattern { starts: &parents.starts[..ends.len()], ends, ..parents }
            }
            BlockTranspose::Built(transpose) => transpose.pattern(),
        }
    }

    fn compute_transpose(&self) -> BlockTranspose {
        match self.parent {
            Some(parent) => BlockTranspose::Parent(self.ends_in(parent.transpose())),
            None if self.is_symmetric() => BlockTranspose::Own,
            None => BlockTranspose::Built(Transpose::of(self.pattern(), self.sources())),
        }
    }

    /// Returns, for each source row, the end of the entries of its ascending row of `parents` that are destinations here.
    fn ends_in(&self, parents: Pattern) -> Vec<u64> {
        let ours = self.destinations.len() as u32;
        let end = |row: usize| {
            let entries = parents.row(row);
            (entries.start + parents.columns[entries].partition_point(|&column| column < ours)) as u64
        };
        (0..self.sources()).into_par_iter().map(end).collect()
    }

    /// Returns whether every source is a destination, every edge has its reverse, of the same weight, and rows ascend.
    /// Computed once.
    fn is_symmetric(&self) -> bool {
        *self.symmetric.get_or_init(|| {
            self.destinations == (0..self.sources()) && is_symmetric(self.pattern(), self.edge_weights())
        })
    }

    /// Returns the block without self-loops: itself if there are none, else a copy without halo and weights, made at the
    /// first call.
    pub fn without_loops(&self) -> &Block<'_> {
        if self.loops.is_empty() {
            return self;
        }
        self.without_loops.get_or_init(|| Box::new(self.build_without_loops()))
    }

    fn build_without_loops(&self) -> Block<'static> {
        let pattern = self.pattern();
        let mut indptr = Vec::with_capacity(self.indptr.len());
        let mut indices = Vec::with_capacity(self.edges());
        indptr.push(0);
        for r in 0..pattern.rows() {
            let own = (self.destinations.start + r) as u32;
            indices.extend(self.indices[pattern.row(r)].iter().filter(|&&u| u != own));
            indptr.push(indices.len() as u64);
        }
        let ids = self.ids().map(<[u32]>::to_vec);
        let block = Block::new(indptr, indices, self.destinations(), self.degrees.to_vec(), ids);
        Block { is_sampled: self.is_sampled, ..block }
    }
}

/// Returns the rows of `pattern` that hold the column `first` + row.
fn self_loops(pattern: Pattern, first: usize) -> Vec<u32> {
    (0..pattern.rows())
        .into_par_iter()
        .filter(|&r| pattern.columns[pattern.row(r)].contains(&((first + r) as u32)))
        .map(|r| r as u32)
        .collect()
}

/// Rows filled by one task.
pub(crate) const ROWS: usize = 1024;

/// Splits `indices` into the entries of each run of [`ROWS`] rows.
pub(crate) fn rows_mut<'a, T>(indptr: &[u64], mut indices: &'a mut [T]) -> Vec<&'a mut [T]> {
    let starts = indptr[..indptr.len() - 1].iter().step_by(ROWS);
    let ends = starts.clone().skip(1).chain(indptr.last());
    starts
        .zip(ends)
        .map(|(start, end)| {
            indices.split_off_mut(..(end - start) as usize).expect("rows end at the last entry")
        })
        .collect()
}

/// Returns whether the rows of a square pattern ascend and hold (u, v) as often as (v, u), with the same weights.
///
/// Each entry adds a hash of its pair and weight, each reverse subtracts it. A sum of 0 by chance has probability 2^-64.
fn is_symmetric(pattern: Pattern, weights: Option<&[f32]>) -> bool {
    let key = Key::new(0, "symmetric");
    let sum = (0..pattern.rows()).into_par_iter().with_min_len(ROWS).map(|row| {
        let columns = &pattern.columns[pattern.row(row)];
        let hash = |(e, &column): (usize, &u32)| {
            let key = weights.map_or(key, |weights| key.with(weights[e].to_bits().into()));
            let (low, high) = (column.min(row as u32) as u64, column.max(row as u32) as u64);
            let hash = key.at(low << 32 | high);
            match column.cmp(&(row as u32)) {
                Ordering::Less => hash,
                Ordering::Equal => 0,
                Ordering::Greater => hash.wrapping_neg(),
            }
        };
        columns.is_sorted().then(|| pattern.row(row).zip(columns).map(hash).fold(0, u64::wrapping_add))
    });
    sum.try_reduce(|| 0, |a, b| Some(a.wrapping_add(b))) == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A path 0 - 1 - 2, a self-loop at 2, and 3 alone.
    const INDPTR: [u64; 5] = [0, 1, 3, 5, 5];
    const INDICES: [u32; 5] = [1, 0, 2, 1, 2];

    fn graph() -> CsrView<'static> {
        CsrView { indptr: &INDPTR, indices: &INDICES }
    }

    fn rows(pattern: Pattern) -> Vec<Vec<u32>> {
        (0..pattern.rows()).map(|r| pattern.columns[pattern.row(r)].to_vec()).collect()
    }

    #[test]
    fn the_whole_graph_is_its_own_block() {
        let block = Block::whole(graph());
        assert_eq!((block.sources(), block.destinations(), block.edges()), (4, 0..4, 5));
        assert_eq!(block.degrees(), [1, 2, 1, 0], "a vertex is not its own neighbour");
        assert_eq!(block.loops(), [2]);
        assert_eq!((block.ids(), block.id(3)), (None, 3));
        assert!(matches!(block.indices, Cow::Borrowed(_)), "edges are not copied");
    }

    #[test]
    fn an_induced_block_of_an_undirected_graph_is_its_own_transpose() {
        // A ring, its nodes in another order.
        let indptr: Vec<u64> = (0..=10).map(|v| 2 * v).collect();
        let indices: Vec<u32> = (0..10u32).flat_map(|v| [(v + 9) % 10, (v + 1) % 10]).collect();
        let ring = CsrView { indptr: &indptr, indices: &indices };
        let block = Block::induced(ring, &[3, 9, 0, 1, 2, 8]);
        assert_eq!(block.transpose().columns.as_ptr(), block.pattern().columns.as_ptr());
    }

    #[test]
    fn an_induced_block_renumbers_rows_and_has_its_own_degrees() {
        let block = Block::induced(graph(), &[3, 2, 1]);
        assert_eq!(rows(block.pattern()), [vec![], vec![1, 2], vec![1]]);
        assert_eq!(block.degrees(), [0, 1, 1]);
        assert_eq!((block.loops(), block.id(1)), (&[1][..], 2));
        assert_eq!(Block::induced(graph(), &[]).sources(), 0);
    }

    #[test]
    fn stored_self_loops_can_be_left_out() {
        let block = Block::whole(graph());
        let plain = block.without_loops();
        assert_eq!(rows(plain.pattern()), [vec![1], vec![0, 2], vec![1], vec![]]);
        assert!(plain.loops().is_empty());
        assert_eq!(plain.degrees(), block.degrees());
        assert!(std::ptr::eq(plain.without_loops(), plain), "without self-loops nothing is copied");
    }

    #[test]
    fn a_transpose_holds_every_edge() {
        // Destinations are rows 1 and 2 of 4.
        let block = Block::new(vec![0, 2, 4], vec![3, 0, 3, 2], 1..3, vec![1; 4], None);
        assert_eq!(block.loops(), [1]);
        assert_eq!(rows(block.transpose()), [vec![0], vec![], vec![1], vec![0, 1]]);
    }

    #[test]
    #[should_panic(expected = "edges come from source rows")]
    #[cfg(debug_assertions)]
    fn an_edge_from_an_unknown_row_is_refused() {
        Block::new(vec![0, 1], vec![7], 0..1, vec![0; 2], None);
    }

    #[test]
    #[should_panic(expected = "listed twice")]
    fn a_vertex_listed_twice_is_refused() {
        Block::induced(graph(), &[1, 1]);
    }

    fn csr(rows: &[Vec<u32>]) -> (Vec<u64>, Vec<u32>) {
        let mut indptr = vec![0];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
        (indptr, rows.concat())
    }

    #[test]
    fn an_ordered_block_renumbers_all_rows() {
        let block = Block::ordered(graph(), &[2, 3, 0, 1]);
        assert_eq!(rows(block.pattern()), [vec![0, 3], vec![], vec![3], vec![0, 2]]);
        assert_eq!(block.degrees(), [1, 0, 1, 2]);
        assert_eq!((block.loops(), block.ids()), (&[0][..], Some(&[2, 3, 0, 1][..])));
        assert_eq!(Block::ordered(CsrView { indptr: &[0], indices: &[] }, &[]).sources(), 0);
    }

    #[test]
    fn a_symmetric_block_is_its_own_transpose() {
        let block = Block::ordered(graph(), &[2, 3, 0, 1]);
        assert!(std::ptr::eq(block.transpose().columns, block.pattern().columns));
        // Directed, or with rows that do not ascend, it is built.
        for edges in [vec![vec![1], vec![]], vec![vec![1, 0], vec![0]], vec![vec![1, 1], vec![0]]] {
            let (indptr, indices) = csr(&edges);
            let block = Block::new(indptr, indices, 0..2, vec![0; 2], None);
            assert!(!std::ptr::eq(block.transpose().columns, block.pattern().columns), "{edges:?}");
        }
    }

    #[test]
    #[should_panic(expected = "edges come from source rows")]
    #[cfg(debug_assertions)]
    fn a_prefix_holds_its_sources() {
        Block::whole(graph()).prefix(2, 2);
    }

    #[test]
    #[should_panic(expected = "listed twice")]
    fn an_order_is_a_permutation() {
        Block::ordered(graph(), &[0, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn orders_and_prefixes_keep_every_edge(
            edges in proptest::collection::vec((0u32..40, 0u32..40), 0..200),
            both_ways: bool,
            order in Just((0..40).collect::<Vec<u32>>()).prop_shuffle(),
            first in 0usize..=40,
            second in 0usize..=40,
        ) {
            let mut lists = vec![Vec::new(); 40];
            for (u, v) in edges {
                lists[v as usize].push(u);
                if both_ways && u != v {
                    lists[u as usize].push(v);
                }
            }
            lists.iter_mut().for_each(|row| row.sort());
            let (indptr, indices) = csr(&lists);
            let graph = CsrView { indptr: &indptr, indices: &indices };
            let block = Block::ordered(graph, &order);
            let by_vertex = |row: &Vec<u32>| {
                let mut row: Vec<u32> = row.iter().map(|&u| block.id(u as usize)).collect();
                row.sort();
                row
            };
            for (row, sources) in rows(block.pattern()).iter().enumerate() {
                prop_assert!(sources.is_sorted());
                prop_assert_eq!(&by_vertex(sources), &lists[order[row] as usize]);
            }
            let whole = Block::whole(graph);
            let degrees: Vec<u32> = order.iter().map(|&v| whole.degrees()[v as usize]).collect();
            prop_assert_eq!(block.degrees(), &degrees[..]);
            // A prefix, and a prefix of that, over all rows.
            let outer = block.prefix(first, 40);
            let inner = outer.prefix(second.min(first), 40);
            for part in [&block, &outer, &inner] {
                prop_assert!(std::ptr::eq(part.pattern().columns.as_ptr(), block.pattern().columns.as_ptr()));
                let built = Transpose::of(part.pattern(), 40);
                prop_assert_eq!(rows(part.transpose()), rows(built.pattern()));
                let explicit = Block::new(
                    part.indptr.to_vec(), part.indices.to_vec(), part.destinations(), degrees.clone(), None
                );
                prop_assert_eq!(part.loops(), explicit.loops());
                prop_assert_eq!((part.degrees(), part.id(7)), (block.degrees(), order[7]));
            }
        }
    }
}
