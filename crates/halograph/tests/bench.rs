//! Tests of `halograph bench`.

mod common;

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use common::{halograph, ok, refused};

/// Returns a folder with a small dataset `g`.
fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    folder
}

const QUICK: &str = "--hidden 8 --layers 2 --epochs 3 --warmup 1 --threads 2";

fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Checks that phases and rest add up to the epoch, and roofs to the roofline.
fn check_sums(report: &Value) {
    let phases = report["phases"].as_array().unwrap();
    let total = |key: &str| phases.iter().map(|phase| number(&phase[key])).sum::<f64>();
    let epoch = number(&report["epoch_seconds_median"]);
    assert!((total("seconds") + number(&report["rest_seconds"]) - epoch).abs() < 1e-9, "{report}");
    assert!(number(&report["rest_seconds"]) >= 0.0, "{report}");
    let limit = |phase: &Value| number(&phase["limit_seconds"]).min(number(&phase["seconds"]));
    let roofline: f64 = phases.iter().map(limit).sum();
    assert!((roofline - number(&report["roofline_seconds"])).abs() < 1e-9, "{report}");
    assert!((roofline / epoch - number(&report["share"])).abs() < 1e-9, "{report}");
    let epochs = report["epoch_seconds"].as_array().unwrap();
    assert!(epochs.contains(&report["epoch_seconds_median"]), "{report}");
}

#[test]
fn json_has_all_fields_and_adds_up() {
    let folder = small();
    for (model, kernels) in [
        (
            "sage",
            &[
                "GEMM",
                "weight gradient GEMM",
                "aggregation",
                "norm, activation and dropout",
                "loss",
                "optimiser",
            ][..],
        ),
        ("gat", &["attention", "attention backward", "scores"]),
        ("gcn", &["aggregation", "activation and dropout", "activation and dropout backward", "column sums"]),
        ("gcnii", &["aggregation", "activation and dropout", "weight gradient GEMM"]),
    ] {
        let out = halograph(folder.path(), &format!("bench g --json --model {model} {QUICK}"));
        assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        let report = json(std::str::from_utf8(&out.stdout).unwrap());
        let fields = "machine threads rates epoch_seconds epoch_seconds_median phases rest_seconds \
            roofline_seconds ridge_point share limited_by others_share data model scaling";
        for field in fields.split_whitespace() {
            assert!(report.get(field).is_some(), "{field} is missing in {report}");
        }
        assert_eq!((&report["model"], &report["data"]), (&model.into(), &"made".into()));
        assert_eq!((&report["threads"], &report["scaling"]), (&2.into(), &Value::Null));
        assert_eq!(report["epoch_seconds"].as_array().unwrap().len(), 3);
        for kernel in kernels {
            let phases = report["phases"].as_array().unwrap();
            assert!(phases.iter().any(|phase| phase["kernel"] == *kernel), "{kernel}: {report}");
        }
        check_sums(&report);
    }
}

#[test]
fn text_has_rates_phases_and_roofline() {
    let folder = small();
    let out = halograph(folder.path(), &format!("bench g {QUICK}"));
    let (text, progress) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    for word in [
        "machine",
        "2 threads",
        "GraphSAGE",
        "random 1 KiB rows",
        "ridge point",
        "FLOP/B",
        "aggregation",
        "bandwidth",
        "outside kernels",
        "of its roofline",
        "of the epoch at",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(progress.contains("training") && progress.contains("measuring roofs"), "{progress}");
    assert!(halograph(folder.path(), &format!("bench g -q {QUICK}")).stderr.is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no file is left behind");
}

#[test]
fn scaling_compares_one_thread_with_several() {
    let folder = small();
    let report = json(&ok(folder.path(), &format!("bench g --json --scaling {QUICK}")));
    check_sums(&report);
    let scaling = &report["scaling"];
    let ratio = number(&scaling["one_thread_seconds"]) / number(&report["epoch_seconds_median"]);
    assert!((ratio / number(&scaling["time_ratio"]) - 1.0).abs() < 1e-9, "{report}");
    let quotient = number(&scaling["time_ratio"]) / number(&scaling["roofline_ratio"]);
    assert!((quotient / number(&scaling["quotient"]) - 1.0).abs() < 1e-9, "{report}");
    let message = refused(folder.path(), "bench g --scaling --threads 1");
    assert!(message.contains("--scaling: needs more than one thread"), "{message}");
}

#[test]
fn without_data_a_temporary_graph_is_generated() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_halograph"));
    let line = format!("bench --json --precision f64 {QUICK}");
    let command = command.args(line.split_whitespace()).env("TMPDIR", folder.path());
    let out = command.current_dir(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(json(std::str::from_utf8(&out.stdout).unwrap())["data"], "demo");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left behind");
}

#[test]
fn refuses_what_train_refuses() {
    let folder = small();
    for (line, words) in [
        ("bench nowhere", "nowhere"),
        ("bench g --hidden 0", "--hidden: model.hidden: 0"),
        ("bench g --set model.hiden=3", "did you mean model.hidden"),
        ("bench g --model gan", "gan"),
        ("bench g --epochs 0", "--epochs"),
        ("bench g --lr 0.1", "--lr"),
        ("bench g --macrobatch 2", "--macrobatch"),
        ("bench g --strategy partition", "strategy partition: bench measures one process"),
        (
            "bench g --strategy minibatch --set train.ranks=2",
            "minibatch on 2 ranks: bench measures one process",
        ),
        ("bench g --set train.weight_decay_for.conv=1", "convs.0.lin_l.bias"),
    ] {
        let message = refused(folder.path(), line);
        assert!(message.contains(words), "{line}: {message}");
    }
}
