//! Made graphs can be cut about as well as the real ones they are named after.

#[path = "../examples/halo/measure.rs"]
mod measure;

use halograph_graph::Silent;
use halograph_graph::generate::{graph, presets};

/// Checks halo rows a node for each (parts, what METIS finds on the real graph, tolerance).
fn assert_halo(preset: &str, expected: &[(usize, f64, f64)]) {
    let spec = &presets::find(preset).expect("a preset").spec;
    let csr = graph(spec, &Silent).expect("presets can be made");
    for &(parts, halo, tolerance) in expected {
        let part = measure::partition(csr.view(), parts).expect("METIS takes any sound graph");
        let found = measure::measure(csr.view(), &part, parts);
        let ratio = found.halo / halo;
        assert!((ratio - 1.0).abs() <= tolerance, "{preset} at {parts} parts: {found:?}, real {halo}");
        assert!(found.balance < 1.05, "{preset} at {parts} parts: {found:?}");
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

#[test]
fn halo_rows_are_counted_once_a_part() {
    // A triangle 0-1-2 and a node 3 that hangs on 2; the parts are {0, 1} and {2, 3}.
    let (indptr, indices) = ([0, 2, 4, 7, 8], [1, 2, 0, 2, 0, 1, 3, 2]);
    let graph = halograph_graph::CsrView { indptr: &indptr, indices: &indices };
    let found = measure::measure(graph, &[0, 0, 1, 1], 2);
    assert_eq!((found.cut, found.halo, found.balance), (0.5, 0.75, 1.0));
}
