//! How much memory full-graph training of each model would take, before anything is trained.
//!
//! An estimate from first principles: mapped arrays, what the backward pass must keep, two gradient buffers of the
//! widest layer. It answers "will it fit at all"; it is not a promise to the megabyte.

use halograph_graph::dataset::Manifest;

/// A model of the size people start with.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Name and size, as shown.
    pub name: &'static str,
    /// Layers with an aggregation.
    pub layers: u64,
    /// Hidden width.
    pub hidden: u64,
    /// Attention heads, 0 for models without.
    heads: u64,
    /// Matrices of hidden width that each layer keeps for its backward pass.
    kept: u64,
}

/// The models of [`estimates`].
pub const SHAPES: [Shape; 5] = [
    // Aggregate and activation.
    Shape { name: "gcn 3x256", layers: 3, hidden: 256, heads: 0, kept: 2 },
    // Aggregate, normalised value, activation.
    Shape { name: "sage 3x256", layers: 3, hidden: 256, heads: 0, kept: 3 },
    // Projection, aggregate; scores and coefficients of every edge and head.
    Shape { name: "gat 2x(4x64)", layers: 2, hidden: 256, heads: 4, kept: 3 },
    // Mixed aggregate and activation.
    Shape { name: "gcnii 32x64", layers: 32, hidden: 64, heads: 0, kept: 2 },
    // Normalised value, activation, aggregate.
    Shape { name: "resgcn 8x128", layers: 8, hidden: 128, heads: 0, kept: 3 },
];

/// Bytes of training each of [`SHAPES`] on a dataset.
pub fn estimates(manifest: &Manifest) -> Vec<(Shape, u64)> {
    SHAPES.iter().map(|shape| (*shape, estimate(manifest, shape))).collect()
}

/// Graph, inputs, activations, gradients, attention.
fn estimate(m: &Manifest, shape: &Shape) -> u64 {
    // A damaged manifest may claim anything: saturate rather than wrap.
    let product = |factors: &[u64]| factors.iter().fold(1u64, |n, &f| n.saturating_mul(f));
    const F32: u64 = 4;
    // A directed graph needs its transpose for the backward pass.
    let copies = if m.directed { 2 } else { 1 };
    let widths = shape.kept * shape.layers * shape.hidden + m.classes;
    [
        product(&[copies, 8, m.nodes]),
        product(&[copies, 4, m.edges]),
        product(&[F32, m.nodes, m.features]),
        product(&[F32, m.nodes, widths]),
        product(&[2 * F32, m.nodes, shape.hidden.max(m.classes)]),
        product(&[2 * F32, m.edges, shape.heads, shape.layers]),
    ]
    .iter()
    .fold(0, |sum, &bytes| bytes.saturating_add(sum))
}
