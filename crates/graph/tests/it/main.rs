//! Graphs as their users see them. One program, for it takes longer to link than to run.

mod check;
mod order;
mod partition;
mod real_graphs;
mod real_tables;

use halograph_graph::Dataset;

/// Returns all features, zeros included.
fn dense(dataset: &Dataset) -> Vec<f32> {
    let features = dataset.features();
    let mut all = vec![0.0; features.rows() * features.cols()];
    for (row, out) in all.chunks_exact_mut(features.cols()).enumerate() {
        features.read_row(row, out).unwrap();
    }
    all
}
