//! Scores of single classes, and balanced class weights, equal scikit-learn's: fixtures of `scripts/scores.py`.

use std::path::Path;

use halograph_graph::dataset::{Manifest, Metric, Task};
use halograph_nn::Matrix;
use halograph_nn::metrics::class_counts::ClassCounts;
use halograph_nn::metrics::{Targets, score};
use halograph_nn::model::Kind;
use halograph_train::config::{ClassWeights, TrainConfig};
use halograph_train::objective::{Objective, TrainingCounts};
use halograph_train::{Config, Error};
use serde_json::Value;

fn fixture() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scores.json");
    serde_json::from_slice(&std::fs::read(path).expect("scripts/scores.py writes it")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

#[track_caller]
fn assert_close(name: &str, what: &str, got: &[f64], want: &[f64]) {
    let is_close = got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-15);
    assert!(is_close, "{name}: {what} is {got:?} where scikit-learn has {want:?}");
}

/// Returns the case's counts, and its scores by metric.
fn counts(case: &Value) -> (ClassCounts, Box<dyn Fn(Metric) -> Option<f64>>) {
    let classes = case["classes"].as_u64().expect("a number") as usize;
    let [truth, predicted] = ["truth", "predicted"].map(|key| case[key].as_array().expect("a list").clone());
    let all: Vec<u32> = (0..truth.len() as u32).collect();
    if truth[0].is_array() {
        let flags = |rows: &[Value]| rows.iter().flat_map(numbers).map(|y| y as u8).collect::<Vec<u8>>();
        let logits = flags(&predicted).iter().map(|&y| f64::from(y) - 0.5).collect();
        let (logits, truth) = (Matrix::new(all.len(), classes, logits), flags(&truth));
        let counts = ClassCounts::of(&logits, &all, Targets::Multi(&truth), true);
        return (counts, Box::new(move |metric| score(metric, &logits, &all, Targets::Multi(&truth))));
    }
    let [truth, predicted] = [truth, predicted].map(|rows| numbers(&Value::Array(rows)));
    let one_hot = |&y: &f64| (0..classes).map(move |class| f64::from(u8::from(class as f64 == y)));
    let logits = Matrix::new(all.len(), classes, predicted.iter().flat_map(one_hot).collect());
    let truth: Vec<u32> = truth.iter().map(|&y| y as u32).collect();
    let counts = ClassCounts::of(&logits, &all, Targets::Single(&truth), true);
    (counts, Box::new(move |metric| score(metric, &logits, &all, Targets::Single(&truth))))
}

#[test]
fn scores_are_scikit_learns() {
    let fixture = fixture();
    let cases = fixture["cases"].as_array().expect("a list");
    assert!(cases.len() > 15);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let (counts, score) = counts(case);
        let found = counts.scores().expect("there are rows");
        for (key, got) in [("precision", &found.precision), ("recall", &found.recall), ("f1", &found.f1)] {
            assert_close(name, key, got, &numbers(&case[key]));
        }
        if case["support"].is_array() && !case["support"][0].is_null() {
            let support: Vec<f64> = found.support.iter().map(|&n| n as f64).collect();
            assert_close(name, "support", &support, &numbers(&case["support"]));
        }
        let confusion = found.confusion.map(|matrix| serde_json::to_value(matrix).expect("numbers"));
        assert_eq!(confusion.as_ref(), case.get("confusion"), "{name}");
        for (metric, key, got) in [
            (Metric::Accuracy, "accuracy", found.accuracy),
            (Metric::BalancedAccuracy, "balanced_accuracy", found.balanced_accuracy),
            (Metric::MacroF1, "macro_f1", Some(found.macro_f1)),
            (Metric::MicroF1, "micro_f1", score(Metric::MicroF1)),
        ] {
            let Some(want) = case.get(key).map(|x| x.as_f64().expect("a number")) else {
                assert_eq!(got, None, "{name}: {key} is not defined");
                continue;
            };
            let by_metric = score(metric).expect("there are rows");
            assert_close(name, key, &[got.expect("a score"), by_metric], &[want, want]);
        }
    }
}

#[test]
fn balanced_weights_are_scikit_learns() {
    for case in fixture()["balanced"].as_array().expect("a list") {
        let classes = case["classes"].as_u64().expect("a number");
        let truth = numbers(&case["truth"]);
        let mut per_class = vec![0; classes as usize];
        truth.iter().for_each(|&y| per_class[y as usize] += 1);
        let manifest = Manifest { classes, ..Manifest::new("x".into(), Task::SingleLabel, Metric::Accuracy) };
        let train =
            TrainConfig { class_weights: Some(ClassWeights::Balanced), ..Config::new(Kind::Gcn).train };
        let counts = || Ok::<_, Error>(TrainingCounts { nodes: truth.len() as u64, per_class });
        let weights = Objective::new(&train, &manifest, counts).expect("valid").weights.expect("balanced");
        let present = numbers(&case["present"]);
        let of_present: Vec<f64> = present.iter().map(|&class| weights[class as usize]).collect();
        assert_close("balanced", "weights", &of_present, &numbers(&case["weights"]));
        let absent = weights.iter().zip(0..).filter(|(_, class)| !present.contains(&f64::from(*class)));
        assert!(absent.into_iter().all(|(&weight, _)| weight == 1.0), "{weights:?}");
    }
}
