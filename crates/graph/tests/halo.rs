//! Partitions of generated graphs resemble those of the real graphs that they are named after.

use halograph_graph::csr::Ids;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::generate::{graph, presets};
use halograph_graph::partition::{Balance, Layout, Method, Objective, PartitionReport, PartitionSpec};
use halograph_graph::{Dataset, Silent};

/// Generates the graph of a preset, without its features and labels.
fn dataset(preset: &str) -> Dataset {
    let spec = &presets::find(preset).expect("a preset").spec;
    let csr = graph(spec, &Silent).expect("presets are valid");
    let Ids::Owned(indices) = csr.indices else { panic!("generated in memory") };
    let nodes = spec.nodes;
    let graph = GraphArrays { indptr: csr.indptr, indices, weights: None, directed: false };
    let features = FeatureArray::f32(1, vec![0.0; nodes]);
    let arrays = DatasetArrays::new(preset, graph, features, Labels::Single(vec![0; nodes]), vec![1; nodes]);
    Dataset::from_arrays(arrays).expect("generated graphs are valid")
}

/// Checks halo rows per node for each (number of parts, value of METIS on the real graph, tolerance).
fn assert_halo(preset: &str, expected: &[(u32, f64, f64)]) {
    let dataset = dataset(preset);
    for &(parts, halo, tolerance) in expected {
        let method = Method::Metis(Objective::Cut);
        let spec = PartitionSpec { parts, method, balance: Balance::default(), seed: 1 };
        let assignment = spec.assign(&dataset, &Silent).unwrap();
        let found = PartitionReport::of(&Layout::of(&dataset, &assignment).unwrap());
        let ratio = found.alpha / halo;
        assert!((ratio - 1.0).abs() <= tolerance, "{preset}, {parts} parts: {}, real {halo}", found.alpha);
        assert!(found.balance.nodes < 1.05, "{preset}, {parts} parts: {:?}", found.balance);
    }
}

#[test]
fn reddit_like_has_the_halo_of_reddit() {
    assert_halo(
        "reddit-like",
        &[(2, 0.72, 0.3), (4, 1.73, 0.1), (8, 3.39, 0.3), (16, 5.76, 0.3), (64, 17.0, 0.3)],
    );
}

#[test]
fn arxiv_like_has_the_halo_of_ogbn_arxiv() {
    assert_halo(
        "arxiv-like",
        &[(2, 0.16, 0.3), (4, 0.44, 0.1), (8, 0.81, 0.3), (16, 1.19, 0.3), (64, 2.09, 0.3)],
    );
}

#[test]
fn products_like_has_the_halo_of_ogbn_products() {
    assert_halo("products-like", &[(4, 0.41, 0.1), (64, 2.08, 0.3)]);
}
