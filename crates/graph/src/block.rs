//! What a layer computes on: edges from *source rows* to *destination rows*.
//!
//! The whole graph, a partition with its halo, a chunk, a sampled batch and a split of a batch are all [`Block`]s,
//! so that a layer is written and differentiated once.
//!
//! - Rows are matrix rows, numbered from 0; a row's dataset vertex id is in [`Block::ids`].
//! - Destinations are a contiguous run of the source rows, usually the prefix, so that a destination finds its own
//!   features among the sources.
//! - A destination's row holds *every* edge that takes part in its aggregate, so a mean is over the row's length.
//!   [`Block::degrees`] are those of the graph the block was cut from, which symmetric norms need for rows whose own
//!   neighbours are elsewhere.
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
use std::ops::Range;
use std::sync::OnceLock;

use halograph_kernels::sparse::{Pattern, Transpose};

use crate::csr::CsrView;

/// A bipartite graph in compressed rows, from source rows to destination rows.
pub struct Block<'g> {
    indptr: Cow<'g, [u64]>,
    indices: Cow<'g, [u32]>,
    destinations: Range<usize>,
    degrees: Vec<u32>,
    ids: Option<Vec<u32>>,
    loops: Vec<u32>,
    transpose: OnceLock<Transpose>,
    without_loops: OnceLock<Box<Block<'static>>>,
}

impl<'g> Block<'g> {
    /// A block from its parts.
    ///
    /// `indices[indptr[i]..indptr[i + 1]]` are the source rows of destination `i`, which is itself source row
    /// `destinations.start + i`. `degrees` holds, for each source row, its number of in-neighbours other than itself
    /// in the whole graph; `ids` its dataset vertex id (`None`: the row number).
    ///
    /// # Panics
    /// If lengths do not fit; in builds with debug assertions also if any row start or index is out of range.
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
            degrees,
            ids,
            loops,
            transpose: OnceLock::new(),
            without_loops: OnceLock::new(),
        }
    }

    /// All of `graph`: every vertex is source and destination, under its own number. Edges are borrowed.
    pub fn whole(graph: CsrView<'g>) -> Self {
        let mut degrees: Vec<u32> = (0..graph.nodes()).map(|v| graph.degree(v) as u32).collect();
        let pattern = Pattern::new(graph.indptr, graph.indices);
        self_loops(pattern, 0).into_iter().for_each(|v| degrees[v as usize] -= 1);
        Block::new(graph.indptr, graph.indices, 0..graph.nodes(), degrees, None)
    }

    /// The vertices `nodes` (distinct) of `graph` and the edges between them, numbered in the order given.
    /// Degrees count these edges only: the induced graph is a graph of its own, as in inductive training.
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
            degrees.push(indices[first..].iter().filter(|&&u| u as usize != row).count() as u32);
            indptr.push(indices.len() as u64);
        }
        Block::new(indptr, indices, 0..nodes.len(), degrees, Some(nodes.to_vec()))
    }

    /// Number of source rows.
    pub fn sources(&self) -> usize {
        self.degrees.len()
    }

    /// The source rows that are destinations.
    pub fn destinations(&self) -> Range<usize> {
        self.destinations.clone()
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.indices.len()
    }

    /// In-neighbours of each source row in the whole graph, itself not counted.
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// Dataset vertex id of each source row; `None`: the row number.
    pub fn ids(&self) -> Option<&[u32]> {
        self.ids.as_deref()
    }

    /// Dataset vertex id of source row `row`.
    #[inline]
    pub fn id(&self, row: usize) -> u32 {
        self.ids.as_ref().map_or(row as u32, |ids| ids[row])
    }

    /// Destinations, counted from the first one, that hold an edge from themselves; ascending, usually none.
    pub fn loops(&self) -> &[u32] {
        &self.loops
    }

    /// The edges: destinations by sources.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.indptr, &self.indices)
    }

    /// The edges the other way round, sources by destinations, for backwards that gather. Built at the first call.
    pub fn transpose(&self) -> Pattern<'_> {
        let build = || Transpose::of(self.pattern(), self.sources());
        self.transpose.get_or_init(build).pattern()
    }

    /// The same block without the edges from destinations to themselves: itself if there are none, else a copy that is
    /// made at the first call.
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
        Block::new(indptr, indices, self.destinations(), self.degrees.clone(), self.ids.clone())
    }
}

/// Rows of `pattern` that hold the column `first` + row.
fn self_loops(pattern: Pattern, first: usize) -> Vec<u32> {
    (0..pattern.rows())
        .filter(|&r| pattern.columns[pattern.row(r)].contains(&((first + r) as u32)))
        .map(|r| r as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_induced_block_renumbers_and_counts_anew() {
        let block = Block::induced(graph(), &[3, 2, 1]);
        assert_eq!(rows(block.pattern()), [vec![], vec![2, 1], vec![1]]);
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
        assert!(std::ptr::eq(plain.without_loops(), plain), "nothing to leave out, nothing to copy");
    }

    #[test]
    fn transposes_turn_edges_round() {
        // Destinations are rows 1 and 2 of 4.
        let block = Block::new(vec![0, 2, 4], vec![3, 0, 3, 2], 1..3, vec![1; 4], None);
        assert_eq!(block.loops(), [1]);
        assert_eq!(rows(block.transpose()), [vec![0], vec![], vec![1], vec![0, 1]]);
    }

    #[test]
    #[should_panic(expected = "edges come from source rows")]
    #[cfg(debug_assertions)]
    fn an_edge_from_nowhere_is_refused() {
        Block::new(vec![0, 1], vec![7], 0..1, vec![0; 2], None);
    }

    #[test]
    #[should_panic(expected = "listed twice")]
    fn a_vertex_listed_twice_is_refused() {
        Block::induced(graph(), &[1, 1]);
    }
}
