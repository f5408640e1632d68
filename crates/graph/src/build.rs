//! Building a [`Csr`] from edges: symmetrised, sorted, without repeats or self-loops.
//!
//! An [`EdgeSource`] is read twice, once to count and once to place the edges, so that building needs no more memory than
//! its result. Compressed rows ([`EdgeInput::Rows`]) that need no change are checked in one pass and used in place.
//!
//! Edges may have weights. Those of repeated edges are added. An undirected edge that is given in one direction has that
//! weight both ways; if both directions are given, it has the mean of their weights.

use rayon::prelude::*;

use self::weighted::{Entry, read_weights};
use crate::csr::{Csr, CsrView, Ids};
use crate::error::{Error, Result};
use crate::io::npy::{Array, DType};
use crate::progress::{Progress, Silent, Unit};

pub(crate) mod weighted;

/// Vertex ids are 32 bits wide.
pub const MAX_NODES: usize = u32::MAX as usize - 1;

/// Takes edges and their weights, in batches.
pub type WeightedSink<'s> = dyn FnMut(&[[i64; 2]], &[f32]) -> Result<()> + 's;

/// Edges `[source, destination]` that can be read several times, always in the same order.
pub trait EdgeSource {
    /// Passes all edges to `sink`, in batches. Ids need not be valid: the builder checks them.
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()>;
    /// Returns the position of edge number `index`, for messages: file, and line or element.
    fn place(&self, index: u64) -> String;
    /// Returns the number of edges, if known without reading them.
    fn len(&self) -> Option<u64>;
    /// Returns whether edges have weights.
    fn has_weights(&self) -> bool {
        false
    }
    /// As [`EdgeSource::visit`], with the weight of each edge, which the source has checked; 1 without weights.
    fn visit_weighted(&self, sink: &mut WeightedSink<'_>) -> Result<()> {
        let mut ones = Vec::new();
        self.visit(&mut |batch| {
            ones.resize(batch.len(), 1.0);
            sink(batch, &ones)
        })
    }
    /// Returns whether there is known to be no edge.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Meaning of the rows of an adjacency matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Row `v` lists the in-neighbours of `v`, as a halograph dataset does.
    AreDestinations,
    /// Row `v` lists the vertices that `v` points to, as scipy and PyG read a matrix.
    AreSources,
}

/// Edges as a reader returns them.
#[expect(clippy::large_enum_variant, reason = "there is one per import")]
pub enum EdgeInput {
    /// An adjacency matrix in compressed rows.
    Rows {
        /// Row starts.
        indptr: Array,
        /// Column ids.
        indices: Array,
        /// Weights in the order of `indices`, if there are any.
        weights: Option<Array>,
        /// Meaning of a row.
        rows: Rows,
    },
    /// Edges in any other form.
    Source(Box<dyn EdgeSource>),
}

/// Which edges are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct EdgeOptions {
    /// Keep the direction of edges; otherwise every edge is stored both ways.
    pub directed: bool,
    /// Keep edges from a vertex to itself.
    pub keep_self_loops: bool,
}

/// Numbers of edges before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct EdgeCounts {
    /// Edges in the input.
    pub read: u64,
    /// Self-loops among them.
    pub self_loops: u64,
    /// Directed edges in the result.
    pub stored: u64,
    /// Edges with a weight that repeat another one, so that their weights were added.
    #[serde(skip)]
    pub repeated: u64,
    /// Undirected edges given in both directions with different weights, whose mean was taken.
    #[serde(skip)]
    pub unequal: u64,
}

impl EdgeCounts {
    /// Says how weights were combined, for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.repeated > 0 {
            notes.push(format!("{} edges are repeated: their weights were added", self.repeated));
        }
        if self.unequal > 0 {
            notes.push(format!(
                "{} undirected edges have different weights in the two directions: the mean was taken (--directed keeps \
                 both)",
                self.unequal
            ));
        }
        notes
    }
}

/// Builds the graph of `nodes` vertices.
pub fn build(
    nodes: usize,
    input: EdgeInput,
    options: EdgeOptions,
    progress: &dyn Progress,
) -> Result<(Csr, EdgeCounts)> {
    check_nodes(nodes)?;
    match input {
        EdgeInput::Rows { indptr, indices, weights, rows } => {
            build_from_rows(nodes, (indptr, indices, weights), rows, options, progress)
        }
        EdgeInput::Source(source) => build_from_source(nodes, &*source, options, progress),
    }
}

fn check_nodes(nodes: usize) -> Result<()> {
    if nodes <= MAX_NODES {
        return Ok(());
    }
    Err(Error::input(format!("{nodes} nodes"), format!("more than the {MAX_NODES} that ids can number")))
}

fn build_from_rows(
    nodes: usize,
    (indptr, indices, weights): (Array, Array, Option<Array>),
    rows: Rows,
    options: EdgeOptions,
    progress: &dyn Progress,
) -> Result<(Csr, EdgeCounts)> {
    let starts = row_starts(nodes, &indptr, indices.len(), "neighbour ids")?;
    let place = format!("{}, element", indices.name);
    let signed = indices.header.dtype == DType::I32;
    let ids = column_ids(nodes, indices)?;
    if let Some(bad) = ids.as_slice().iter().position(|&id| id as usize >= nodes) {
        let id = ids.as_slice()[bad];
        let id = if signed { i64::from(id as i32) } else { i64::from(id) };
        return Err(out_of_range(&format!("{place} {bad}"), id, nodes));
    }
    let weights = weights.map(|weights| read_weights(&weights, ids.as_slice().len())).transpose()?;
    let csr = Csr { indptr: starts, indices: ids, weights };
    let counts = EdgeCounts { read: csr.edges(), stored: csr.edges(), ..EdgeCounts::default() };
    let are_equal = |weights: &Vec<f32>| options.directed || weighted::are_symmetric(csr.view(), weights);
    if is_clean(csr.view(), rows, options, progress)? && csr.weights.as_ref().is_none_or(are_equal) {
        let self_loops = if options.keep_self_loops { count_self_loops(csr.view()) } else { 0 };
        return Ok((csr, EdgeCounts { self_loops, ..counts }));
    }
    build_from_source(nodes, &CsrEdges { csr, rows, place }, options, progress)
}

/// Reads and checks row starts: `nodes + 1` of them, starting at 0, never decreasing, ending at `end`, the number of `entries`.
pub fn row_starts(nodes: usize, indptr: &Array, end: usize, entries: &str) -> Result<Vec<u64>> {
    let name = &indptr.name;
    if indptr.header.shape.len() != 1 || indptr.len() != nodes + 1 {
        let problem = format!("shape {:?} where {} row starts are needed", indptr.header.shape, nodes + 1);
        return Err(Error::input(name, problem));
    }
    let starts = indptr.to_i64()?;
    if starts[0] != 0 {
        return Err(Error::input(
            format!("{name}, element 0"),
            format!("{} where the first row start must be 0", starts[0]),
        ));
    }
    if let Some(v) = starts.windows(2).position(|w| w[1] < w[0]) {
        let problem = format!("{} after {}: row starts may not decrease", starts[v + 1], starts[v]);
        return Err(Error::input(format!("{name}, element {}", v + 1), problem));
    }
    if starts[nodes] as u64 != end as u64 {
        let problem = format!("{} where {end} {entries} are stored", starts[nodes]);
        return Err(Error::input(format!("{name}, element {nodes}"), problem)
            .help("the last row start is their number; save the arrays again, all from one matrix"));
    }
    Ok(starts.into_iter().map(|s| s as u64).collect())
}

/// Returns the column ids as `u32`; 32-bit ids stay in their mapped file.
fn column_ids(nodes: usize, indices: Array) -> Result<Ids> {
    if indices.header.shape.len() != 1 {
        return Err(Error::input(
            &indices.name,
            format!("shape {:?} where a plain list of ids is needed", indices.header.shape),
        ));
    }
    if indices.as_slice::<u32>().is_some() {
        return Ok(Ids::Mapped(indices));
    }
    let mut ids = Vec::with_capacity(indices.len());
    let mut buffer = [0i64; 4096];
    while ids.len() < indices.len() {
        let start = ids.len();
        let n = buffer.len().min(indices.len() - start);
        indices.read_i64(start, &mut buffer[..n])?;
        for (k, &id) in buffer[..n].iter().enumerate() {
            if id < 0 || id >= nodes as i64 {
                return Err(out_of_range(&format!("{}, element {}", indices.name, start + k), id, nodes));
            }
            ids.push(id as u32);
        }
    }
    Ok(Ids::Owned(ids))
}

fn out_of_range(place: &str, id: i64, nodes: usize) -> Error {
    Error::input(place, format!("node id {id} in a graph of {nodes} nodes"))
        .help("ids count from 0; check that features and edges are of the same graph")
}

/// Returns whether [`build`] would leave the rows unchanged.
fn is_clean(csr: CsrView, rows: Rows, options: EdgeOptions, progress: &dyn Progress) -> Result<bool> {
    let is_tidy = (0..csr.nodes()).into_par_iter().all(|v| {
        let row = csr.row(v);
        row.windows(2).all(|w| w[0] < w[1])
            && (options.keep_self_loops || row.binary_search(&(v as u32)).is_err())
    });
    if !is_tidy {
        return Ok(false);
    }
    if options.directed {
        Ok(rows == Rows::AreDestinations)
    } else {
        Ok(one_way_edge(csr, progress)?.is_none())
    }
}

/// Returns an edge `(v, u)` without its reverse: row `v` lists `u`, row `u` does not list `v`. Rows must be sorted and
/// without repeats.
///
/// Rows are visited in order, so the entries `v` of any row `u` are met in the order of that row: one cursor per row is
/// enough, without a search or a transposed copy.
pub(crate) fn one_way_edge(csr: CsrView, progress: &dyn Progress) -> Result<Option<(u32, u32)>> {
    progress.begin("checking symmetry", Some(csr.nodes() as u64), Unit::Items);
    let mut cursor: Vec<u64> = csr.indptr[..csr.nodes()].to_vec();
    for v in 0..csr.nodes() as u32 {
        for &u in csr.row(v as usize) {
            let at = &mut cursor[u as usize];
            let next = (*at < csr.indptr[u as usize + 1]).then(|| csr.indices[*at as usize]);
            match next {
                Some(w) if w == v => *at += 1,
                // Row `w` was visited before and did not list `u`.
                Some(w) if w < v => return Ok(Some((u, w))),
                _ => return Ok(Some((v, u))),
            }
        }
        if v % 4096 == 4095 {
            progress.tick(4096)?;
        }
    }
    Ok(None)
}

fn count_self_loops(csr: CsrView) -> u64 {
    (0..csr.nodes()).into_par_iter().filter(|&v| csr.row(v).binary_search(&(v as u32)).is_ok()).count() as u64
}

/// The entries of compressed rows as an edge list.
struct CsrEdges {
    csr: Csr,
    rows: Rows,
    place: String,
}

impl EdgeSource for CsrEdges {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let csr = self.csr.view();
        let mut batch = Vec::new();
        for v in 0..csr.nodes() {
            let pairs = csr.row(v).iter().map(|&u| match self.rows {
                Rows::AreDestinations => [u as i64, v as i64],
                Rows::AreSources => [v as i64, u as i64],
            });
            batch.extend(pairs);
            if batch.len() >= 4096 {
                sink(&batch)?;
                batch.clear();
            }
        }
        sink(&batch)
    }

    fn has_weights(&self) -> bool {
        self.csr.weights.is_some()
    }

    fn visit_weighted(&self, sink: &mut WeightedSink<'_>) -> Result<()> {
        let (all, mut at) = (self.csr.weights.as_deref().unwrap_or_default(), 0);
        self.visit(&mut |batch| {
            at += batch.len();
            sink(batch, &all[at - batch.len()..at])
        })
    }

    fn place(&self, index: u64) -> String {
        format!("{} {index}", self.place)
    }

    fn len(&self) -> Option<u64> {
        Some(self.csr.edges())
    }
}

fn build_from_source(
    nodes: usize,
    source: &dyn EdgeSource,
    options: EdgeOptions,
    progress: &dyn Progress,
) -> Result<(Csr, EdgeCounts)> {
    let (mut indptr, mut counts) = count(nodes, source, options, progress)?;
    if source.has_weights() {
        return build_weighted(indptr, counts, source, options, progress);
    }
    let visit: Visit = &|sink| source.visit(&mut |batch| sink(batch, &[]));
    let mut indices = place(source, visit, &indptr, options, progress, |column, _, _| column)?;
    let lengths = sort_rows(&indptr, &mut indices);
    compact(&mut indptr, &mut indices, &lengths);
    counts.stored = indices.len() as u64;
    Ok((Csr { indptr, indices: Ids::Owned(indices), weights: None }, counts))
}

fn build_weighted(
    mut indptr: Vec<u64>,
    mut counts: EdgeCounts,
    source: &dyn EdgeSource,
    options: EdgeOptions,
    progress: &dyn Progress,
) -> Result<(Csr, EdgeCounts)> {
    let visit: Visit = &|sink| source.visit_weighted(sink);
    let entry = |column, is_reverse, weight| Entry { column, weight, is_reverse };
    let mut entries = place(source, visit, &indptr, options, progress, entry)?;
    let merged = weighted::merge_rows(&indptr, &mut entries);
    let lengths: Vec<u32> = merged.iter().map(|row| row.kept).collect();
    compact(&mut indptr, &mut entries, &lengths);
    let indices: Vec<u32> = entries.iter().map(|entry| entry.column).collect();
    let weights: Vec<f32> = entries.iter().map(|entry| entry.weight).collect();
    weighted::check_sums(CsrView { indptr: &indptr, indices: &indices }, &weights)?;
    counts.stored = indices.len() as u64;
    counts.repeated = merged.iter().map(|row| row.repeated).sum();
    counts.unequal = merged.iter().map(|row| row.unequal).sum();
    Ok((Csr { indptr, indices: Ids::Owned(indices), weights: Some(weights) }, counts))
}

/// Passes all edges and, if they have any, their weights to a sink.
type Visit<'v> = &'v dyn Fn(&mut WeightedSink<'_>) -> Result<()>;

/// Calls `entry(row, column, is_reverse)` for each entry that edge `[u, v]` is stored as.
#[inline]
fn entries([u, v]: [u32; 2], options: EdgeOptions, mut entry: impl FnMut(u32, u32, bool)) {
    if u == v && !options.keep_self_loops {
        return;
    }
    entry(v, u, false);
    if !options.directed && u != v {
        entry(u, v, true);
    }
}

/// Pass 1: checks every id and returns the row starts, repeats included.
fn count(
    nodes: usize,
    source: &dyn EdgeSource,
    options: EdgeOptions,
    progress: &dyn Progress,
) -> Result<(Vec<u64>, EdgeCounts)> {
    progress.begin("reading edges", source.len(), Unit::Items);
    let mut indptr = vec![0u64; nodes + 1];
    let mut counts = EdgeCounts::default();
    source.visit(&mut |batch| {
        for (k, edge) in batch.iter().enumerate() {
            if let Some(&bad) = edge.iter().find(|&&id| id < 0 || id >= nodes as i64) {
                return Err(out_of_range(&source.place(counts.read + k as u64), bad, nodes));
            }
            counts.self_loops += u64::from(edge[0] == edge[1]);
            entries(edge.map(|id| id as u32), options, |row, _, _| indptr[row as usize + 1] += 1);
        }
        counts.read += batch.len() as u64;
        progress.tick(batch.len() as u64)
    })?;
    for v in 0..nodes {
        indptr[v + 1] += indptr[v];
    }
    Ok((indptr, counts))
}

/// Pass 2: writes every entry into its row. `entry` makes one of its column, whether it is the reverse of an edge of the
/// input, and its weight.
fn place<E: Copy + Default>(
    source: &dyn EdgeSource,
    visit: Visit,
    indptr: &[u64],
    options: EdgeOptions,
    progress: &dyn Progress,
    entry: impl Fn(u32, bool, f32) -> E,
) -> Result<Vec<E>> {
    progress.begin("placing edges", source.len(), Unit::Items);
    let nodes = indptr.len() - 1;
    let mut placed = vec![E::default(); indptr[nodes] as usize];
    let mut cursor = indptr[..nodes].to_vec();
    visit(&mut |batch, weights| {
        let mut changed = false;
        for (k, edge) in batch.iter().enumerate() {
            let weight = weights.get(k).copied().unwrap_or(1.0);
            let ids = edge.map(|id| id as u32);
            changed |= edge.iter().any(|&id| id < 0 || id >= nodes as i64);
            if changed {
                break;
            }
            entries(ids, options, |row, column, is_reverse| {
                let at = &mut cursor[row as usize];
                if *at < indptr[row as usize + 1] {
                    placed[*at as usize] = entry(column, is_reverse, weight);
                    *at += 1;
                } else {
                    changed = true;
                }
            });
        }
        if changed {
            return Err(Error::input(source.place(0), "the file changed while it was read"));
        }
        progress.tick(batch.len() as u64)
    })?;
    if cursor.iter().zip(&indptr[1..]).any(|(at, end)| at != end) {
        return Err(Error::input(source.place(0), "the file changed while it was read"));
    }
    Ok(placed)
}

/// Sorts each row and moves its distinct ids to its front; returns their number for each row.
fn sort_rows(indptr: &[u64], indices: &mut [u32]) -> Vec<u32> {
    split_rows(indptr, indices)
        .into_par_iter()
        .map(|row| {
            row.sort_unstable();
            let mut kept = 0;
            for i in 0..row.len() {
                if i == 0 || row[i] != row[kept - 1] {
                    row[kept] = row[i];
                    kept += 1;
                }
            }
            kept as u32
        })
        .collect()
}

fn split_rows<'a, T>(indptr: &[u64], mut indices: &'a mut [T]) -> Vec<&'a mut [T]> {
    indptr
        .windows(2)
        .map(|w| {
            let (row, rest) = std::mem::take(&mut indices).split_at_mut((w[1] - w[0]) as usize);
            indices = rest;
            row
        })
        .collect()
}

/// Removes everything after the first `lengths[v]` entries of each row `v`.
fn compact<T: Copy>(indptr: &mut [u64], indices: &mut Vec<T>, lengths: &[u32]) {
    let mut end = 0;
    for (v, &length) in lengths.iter().enumerate() {
        let start = indptr[v] as usize;
        indices.copy_within(start..start + length as usize, end);
        indptr[v] = end as u64;
        end += length as usize;
    }
    indptr[lengths.len()] = end as u64;
    indices.truncate(end);
    indices.shrink_to_fit();
}

/// Builds the graph of `nodes` vertices from `(source, destination)` pairs in memory.
pub fn from_edges(nodes: usize, edges: &[(u32, u32)], options: EdgeOptions) -> Result<(Csr, EdgeCounts)> {
    check_nodes(nodes)?;
    build_from_source(nodes, &EdgeSlice(edges), options, &Silent)
}

/// As [`from_edges`], of `(source, destination, weight)`.
pub(crate) fn from_weighted_edges(
    nodes: usize,
    edges: &[(u32, u32, f32)],
    options: EdgeOptions,
) -> Result<(Csr, EdgeCounts)> {
    check_nodes(nodes)?;
    let (pairs, weights): (Vec<_>, Vec<_>) = edges.iter().map(|&(u, v, weight)| ((u, v), weight)).unzip();
    build_from_source(nodes, &WeightedSlice { pairs: EdgeSlice(&pairs), weights }, options, &Silent)
}

/// Pairs with weights.
struct WeightedSlice<'a> {
    pairs: EdgeSlice<'a>,
    weights: Vec<f32>,
}

impl EdgeSource for WeightedSlice<'_> {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        self.pairs.visit(sink)
    }

    fn has_weights(&self) -> bool {
        true
    }

    fn visit_weighted(&self, sink: &mut WeightedSink<'_>) -> Result<()> {
        let mut at = 0;
        self.visit(&mut |batch| {
            at += batch.len();
            sink(batch, &self.weights[at - batch.len()..at])
        })
    }

    fn place(&self, index: u64) -> String {
        self.pairs.place(index)
    }

    fn len(&self) -> Option<u64> {
        self.pairs.len()
    }
}

/// Borrowed `(source, destination)` pairs.
struct EdgeSlice<'a>(&'a [(u32, u32)]);

impl EdgeSource for EdgeSlice<'_> {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let mut batch = Vec::with_capacity(4096);
        for chunk in self.0.chunks(4096) {
            batch.clear();
            batch.extend(chunk.iter().map(|&(u, v)| [i64::from(u), i64::from(v)]));
            sink(&batch)?;
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("edges, element {index}")
    }

    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
}

/// Edges in memory, for readers of small files and for tests.
pub struct EdgeList {
    /// Name for messages.
    pub name: String,
    /// `[source, destination]`.
    pub edges: Vec<[i64; 2]>,
}

impl EdgeSource for EdgeList {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        self.edges.chunks(4096).try_for_each(sink)
    }

    fn place(&self, index: u64) -> String {
        format!("{}, edge {index}", self.name)
    }

    fn len(&self) -> Option<u64> {
        Some(self.edges.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn built(nodes: usize, edges: &[[i64; 2]], options: EdgeOptions) -> Result<(Csr, EdgeCounts)> {
        let source = EdgeList { name: "e".into(), edges: edges.to_vec() };
        build(nodes, EdgeInput::Source(Box::new(source)), options, &Silent)
    }

    fn pairs(csr: &Csr) -> Vec<(u32, u32)> {
        let view = csr.view();
        (0..view.nodes()).flat_map(|v| view.row(v).iter().map(move |&u| (v as u32, u))).collect()
    }

    proptest! {
        #[test]
        fn equals_a_set_of_pairs(
            edges in prop::collection::vec([0i64..12, 0i64..12], 0..80), directed: bool, keep_self_loops: bool,
        ) {
            let options = EdgeOptions { directed, keep_self_loops };
            let (csr, counts) = built(12, &edges, options).unwrap();
            let mut expected = BTreeSet::new();
            for &[u, v] in &edges {
                if u != v || keep_self_loops {
                    expected.insert((v as u32, u as u32));
                    if !directed {
                        expected.insert((u as u32, v as u32));
                    }
                }
            }
            prop_assert_eq!(pairs(&csr), expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(counts.read, edges.len() as u64);
            prop_assert_eq!(counts.stored, csr.edges());
            prop_assert_eq!(counts.self_loops, edges.iter().filter(|e| e[0] == e[1]).count() as u64);
        }

        #[test]
        fn edges_without_a_reverse_are_found(edges in prop::collection::vec([0i64..9, 0i64..9], 0..40)) {
            let options = EdgeOptions { directed: true, keep_self_loops: true };
            let (csr, _) = built(9, &edges, options).unwrap();
            let set: BTreeSet<_> = pairs(&csr).into_iter().collect();
            match one_way_edge(csr.view(), &Silent).unwrap() {
                None => prop_assert!(set.iter().all(|&(a, b)| set.contains(&(b, a)))),
                Some((v, u)) => prop_assert!(set.contains(&(v, u)) && !set.contains(&(u, v))),
            }
        }
    }

    #[test]
    fn an_out_of_range_id_is_refused_with_its_position() {
        let error = built(3, &[[0, 1], [2, 3]], EdgeOptions::default()).err().unwrap().to_string();
        assert!(error.starts_with("e, edge 1: node id 3 in a graph of 3 nodes"), "{error}");
        assert!(built(3, &[[-1, 1]], EdgeOptions::default()).is_err());
    }

    #[test]
    fn no_nodes_and_no_edges_are_legal() {
        assert_eq!(built(0, &[], EdgeOptions::default()).unwrap().0.edges(), 0);
        let (csr, _) = built(3, &[], EdgeOptions::default()).unwrap();
        assert_eq!((csr.nodes(), csr.edges()), (3, 0));
    }
}
