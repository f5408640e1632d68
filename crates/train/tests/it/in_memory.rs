//! Training from arrays in memory: the same bits as from a directory with the same contents, and nothing on disk.

use halograph_graph::Dataset;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, LabelView, Labels};
use halograph_nn::model::Kind;
use halograph_train::Config;
use tempfile::TempDir;

use crate::ranks::support::{config, dataset, on_ranks, pipelined, run};

/// The contents of `dataset` in memory.
fn in_memory(dataset: &Dataset) -> Dataset {
    let (graph, features) = (dataset.graph(), dataset.features());
    let graph = GraphArrays {
        indptr: graph.indptr.to_vec(),
        indices: graph.indices.to_vec(),
        weights: dataset.edge_weights().map(<[f32]>::to_vec),
        directed: dataset.manifest.directed,
    };
    let features = FeatureArray::f32(features.cols(), features.as_slice::<f32>().unwrap().to_vec());
    let LabelView::Single(labels) = dataset.labels() else { panic!("one class a node") };
    let (labels, split) = (Labels::Single(labels.to_vec()), dataset.split().to_vec());
    Dataset::from_arrays(DatasetArrays::new("copy", graph, features, labels, split)).unwrap()
}

fn assert_same_results(on_disk: &Dataset, config: &Config) {
    let (expected, _, weights) = run(on_disk, config);
    let (found, _, same) = run(&in_memory(on_disk), config);
    assert_eq!(found.loss_history, expected.loss_history);
    assert_eq!((found.train, found.val, found.test), (expected.train, expected.val, expected.test));
    assert!(weights == same, "other weights");
}

#[test]
fn one_process_trains_the_same_from_memory_and_from_disk() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in [Kind::Sage, Kind::Gat] {
        assert_same_results(&data, &config(kind));
    }
    let mut inductive = config(Kind::Gcn);
    inductive.data.inductive = true;
    assert_same_results(&data, &inductive);
}

#[test]
fn ranks_train_the_same_from_memory_and_from_disk() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    assert_same_results(&data, &on_ranks(&config(Kind::Sage), 2));
    assert_same_results(&data, &pipelined(&config(Kind::Gcn), 2));
}
