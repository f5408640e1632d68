//! On graphs large enough for several tasks and for a node order: neither threads nor orders show in results.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::dataset::ORDER;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::io::npy::Writer;
use halograph_graph::progress::Silent;
use halograph_nn::model::Kind;
use halograph_train::config::Precision;
use halograph_train::run::{DataRef, Header, Run, read_weights};
use halograph_train::trained::{Prediction, TrainedModel};
use halograph_train::{Config, Event, Observer, Summary};
use tempfile::TempDir;

use crate::train_run;

struct Nobody;

impl Observer for Nobody {
    fn on(&mut self, _: &Event) {}
}

const NODES: usize = 9000;

fn dataset(folder: &Path) -> Dataset {
    let small = presets::find("small").unwrap().spec.clone();
    let spec = Spec { nodes: NODES, edges: 90_000, features: 20, classes: 4, ..small };
    let path = folder.join("data");
    generate::make(&spec, "large", &path, false, &Silent).unwrap();
    Dataset::open(&path).unwrap()
}

fn config(kind: Kind, threads: usize) -> Config {
    let mut config = Config::new(kind);
    config.model.hidden = 40;
    config.model.attention_dropout = 0.2;
    config.train.epochs = 3;
    config.train.threads = threads;
    config
}

fn run(folder: &Path, data: &Dataset, config: Config) -> Summary {
    let header = Header { data: DataRef::new(data).unwrap(), config };
    let mut run = Run::create(folder, header, false).unwrap();
    train_run(data, &mut run, None, &mut Nobody).unwrap()
}

#[test]
fn many_tasks_give_the_same_bits_on_any_number_of_threads() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path());
    for kind in Kind::ALL {
        let [one, three] = [1, 3].map(|threads| {
            let path = temp.path().join(format!("{}-{threads}", kind.name()));
            let losses = run(&path, &data, config(kind, threads)).loss_history;
            (losses, read_weights(&path).unwrap().to_bytes())
        });
        assert!(one == three, "{kind:?}");
    }
}

#[test]
fn an_order_changes_no_result() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path());
    let reversed: Vec<u32> = (0..NODES as u32).rev().collect();
    for (kind, inductive) in [(Kind::Sage, false), (Kind::Gat, false), (Kind::Gcn, true)] {
        let outcome = |order: &[u32]| {
            let _ = std::fs::remove_file(data.path().unwrap().join(ORDER));
            let mut writer = Writer::create(&data.path().unwrap().join(ORDER), &[order.len()]).unwrap();
            writer.write(order).unwrap();
            writer.finish().unwrap();
            let path = temp.path().join(format!("{}-{}", kind.name(), order.len()));
            let mut config = config(kind, 2);
            config.train.precision = Precision::F64;
            config.data.inductive = inductive;
            let summary = run(&path, &data, config);
            let trained = TrainedModel::open(&path).unwrap();
            let scores = trained.evaluate(&data).unwrap();
            assert_eq!((summary.val, summary.test), (scores.val, scores.test), "{kind:?}");
            (summary, trained.predict(&data, Prediction::Logits).unwrap())
        };
        let (plain, moved) = (outcome(&[]), outcome(&reversed));
        for (a, b) in plain.0.loss_history.iter().zip(&moved.0.loss_history) {
            assert!((a - b).abs() < 1e-9 * a, "{kind:?}: {a} {b}");
        }
        let pairs = plain.1.data().iter().zip(moved.1.data());
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{kind:?}: predictions differ by {apart}");
        assert!(plain.1.data().iter().any(|x| x.abs() > 0.05), "{kind:?}: there is something to compare");
    }
}
