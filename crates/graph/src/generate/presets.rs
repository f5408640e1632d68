//! Named graphs with the sizes of well-known ones. Mixing and nesting are fitted to their METIS partitions.
//!
//! The fit is to halo rows per node of a k-way partition with the least edge cut. Reddit at 2, 4, 8, 16 and
//! 64 parts: 0.72, 1.73, 3.39, 5.76, 17.0; ogbn-products: 0.18, 0.41, 0.71, 1.11, 2.08; ogbn-arxiv: 0.16, 0.44,
//! 0.81, 1.19, 2.09. `halograph partition DIR -k 4 --objective cut -o SHARDS` reports it for a dataset.

use super::Spec;

/// A graph with a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// Parameters; the seed is 0.
    pub spec: Spec,
}

/// All presets, smallest first.
pub static PRESETS: [Preset; 7] = [
    preset("demo", [4_000, 48_000, 32, 8], [0.5, 0.2], [0.03, 1.1], 0.05),
    preset("small", [10_000, 200_000, 128, 16], [0.6, 0.2], [0.03, 1.1], 0.05),
    preset("reddit-like", [23_000, 2_300_000, 602, 41], [0.66, 0.1], [0.0205, 1.45], 0.04),
    preset("arxiv-like", [169_000, 2_300_000, 128, 40], [0.54, 0.18], [0.03, 1.05], 0.05),
    preset("products-like", [245_000, 12_000_000, 100, 47], [0.08, 0.02], [0.006, 1.1], 0.08),
    preset("reddit", [233_000, 114_000_000, 602, 41], [0.66, 0.1], [0.0036, 1.65], 0.04),
    preset("products", [2_400_000, 123_000_000, 100, 47], [0.08, 0.02], [0.0075, 1.05], 0.08),
];

const fn preset(
    name: &'static str,
    [nodes, edges, features, classes]: [usize; 4],
    [train, val]: [f64; 2],
    [mixing, nesting]: [f64; 2],
    label_noise: f64,
) -> Preset {
    let spec = Spec {
        nodes,
        edges: edges as u64,
        features,
        classes,
        multi_label: false,
        train,
        val,
        mixing,
        nesting,
        signal: 1.0,
        label_noise,
        seed: 0,
    };
    Preset { name, spec }
}

/// Returns the preset called `name`.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
