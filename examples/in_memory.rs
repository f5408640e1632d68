//! Trains on arrays in memory, without a directory, on one process and on two ranks, and predicts.
//!
//! `cargo run --release -p halograph --example in_memory`
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use halograph::graph::build::EdgeOptions;
use halograph::graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph::graph::{Dataset, progress::Silent};
use halograph::job::{Job, JobOptions, NoObserver, World};
use halograph::train::Prediction;

fn main() -> halograph::Result<()> {
    // Two communities of 100 nodes: a ring inside each, and some edges between them.
    let ring = (0..200u32).map(|v| (v, v / 100 * 100 + (v + 1) % 100));
    let edges: Vec<(u32, u32)> = ring.chain((0..10).map(|v| (v, 199 - v))).collect();
    let graph = GraphArrays::from_edges(200, &edges, EdgeOptions::default())?;
    let features = (0..200).flat_map(|v| [(v % 7) as f32 * 0.1 + (v / 100) as f32, (v % 5) as f32]);
    let features = FeatureArray::f32(2, features.collect());
    let labels = Labels::Single((0..200).map(|v| v / 100).collect());
    let split = (0..200).map(|v| 1 + v as u8 % 3).collect(); // 1 train, 2 validation, 3 test
    let dataset =
        Arc::new(Dataset::from_arrays(DatasetArrays::new("rings", graph, features, labels, split))?);

    for ranks in [1, 2] {
        let options =
            JobOptions::new(dataset.clone()).set("train.ranks", ranks).set("train.epochs", 50).in_memory();
        let mut job = Job::open(&options, &World::alone(), &Silent)?;
        let summary = job.train(&mut NoObserver)?.expect("a summary on rank 0");
        let logits = job.trained()?.predict(&*dataset, Prediction::Logits)?;
        println!(
            "{ranks} ranks: test accuracy {:.3}, logits of node 0 {:?}",
            summary.test.unwrap_or(0.0),
            logits.run(0..1)
        );
    }
    Ok(())
}
