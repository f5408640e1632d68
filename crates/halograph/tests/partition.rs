//! Tests of `halograph partition` through the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the demo graph.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        let made = place.halograph("data make demo -o demo -q");
        assert!(made.status.success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn halograph(&self, args: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_halograph"))
            .args(args.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .expect("the binary starts")
    }

    /// Runs a command and expects success; returns standard output.
    fn ok(&self, args: &str) -> String {
        let out = self.halograph(args);
        assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    fn json(&self, args: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&format!("{args} --json"))).expect("one line of JSON")
    }

    /// Runs a command and expects exit code 2 and no folder `s`; returns standard error.
    fn refused(&self, args: &str) -> String {
        let out = self.halograph(args);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args}: {stderr}");
        assert!(!stderr.contains("panicked") && !self.path("s").exists(), "{stderr}");
        stderr
    }
}

/// Returns the names in a folder, including hidden ones.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shards_appear_with_a_report() {
    let place = Place::new();
    let text = place.ok("partition demo -k 3 -o s");
    for word in ["4,000 nodes", "3 parts", "training", "cut", "halo", "balance", "traffic", "shards   s"] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(
        entries(&place.path("s")),
        ["assignment.npy", "part-0000", "part-0001", "part-0002", "partition.json"]
    );
    let kept: Vec<String> =
        entries(&place.path("demo")).into_iter().filter(|name| name.starts_with("partition-")).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(place.ok("data check demo").contains("no fault found"));
    place.ok("data info demo");
    place.ok("data make demo -o demo --overwrite -q");
}

#[test]
fn json_has_all_fields() {
    let place = Place::new();
    let out = place
        .json("partition demo -k 4 -o s --balance edges --balance train --layers 2 --hidden 10 --seed 3");
    let partition = &out["partition"];
    assert_eq!(
        (&out["out"], &partition["parts"], &partition["method"]),
        (&"s".into(), &4.into(), &"metis".into())
    );
    assert_eq!(partition["balance"], serde_json::json!(["nodes", "edges", "train"]));
    assert_eq!((&partition["seed"], &partition["dataset"]["nodes"]), (&3.into(), &4000.into()));
    let report = &partition["report"];
    let sum = |key: &str| {
        report["sizes"].as_array().unwrap().iter().map(|size| size[key].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("nodes"), sum("edges"), sum("training")), (4000, 48_000, 2000));
    let halo = report["halo"].as_u64().unwrap();
    assert_eq!((sum("halo"), sum("send")), (halo, halo));
    for key in ["nodes", "edges", "training"] {
        assert!(report["balance"][key].as_f64().unwrap() < 1.1, "{report}");
    }
    let traffic = &out["traffic"];
    // The second of two layers projects to 8 classes before it sends, forward and back.
    assert_eq!(traffic["bytes_per_epoch"], 2 * 4 * 8 * halo);
    assert_eq!(traffic["setup_bytes"], 4 * 32 * halo);
    let pairs = traffic["pair_bytes_per_epoch"].as_array().unwrap();
    assert_eq!(pairs.iter().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), 64 * halo);
    let again = place.json("partition demo -k 4 -o t --balance edges --balance train --seed 3");
    assert_eq!(again["partition"]["layout"], partition["layout"]);
}

#[test]
fn metis_and_stream_beat_random() {
    let place = Place::new();
    let halo = |method: &str| {
        let out = place.json(&format!("partition demo -k 4 -o s --overwrite --method {method}"));
        out["partition"]["report"]["halo"].as_u64().unwrap()
    };
    let (random, stream, metis) = (halo("random"), halo("stream"), halo("metis"));
    assert!(metis < random && stream < random, "{metis} {stream} {random}");
    assert!(halo("metis --objective cut") < random);
}

#[test]
fn a_given_assignment_is_used() {
    let place = Place::new();
    let lines: String = (0..4000).map(|v| format!("{}\n", v % 2)).collect();
    fs::write(place.path("demo.part.2"), &lines).unwrap();
    let out = place.json("partition demo -k 2 -o s --assignment demo.part.2");
    assert_eq!(out["partition"]["method"], "imported");
    assert_eq!(out["partition"]["report"]["sizes"][1]["nodes"], 2000);
    // The stored assignment is imported again, with more parts than it has.
    let again = place.json("partition demo -k 5 -o t --assignment s/assignment.npy");
    assert_eq!(again["partition"]["report"]["sizes"][4]["nodes"], 0);
    assert_eq!(again["partition"]["report"]["halo"], out["partition"]["report"]["halo"]);
}

#[test]
fn invalid_arguments_are_explained() {
    let place = Place::new();
    assert!(place.refused("partition demo -k 0 -o s").contains("1..=65536"));
    assert!(place.refused("partition demo -k many -o s").contains("many"));
    assert!(place.refused("partition demo -o s").contains("--parts <K>"));
    assert!(place.refused("partition nowhere -k 2 -o s").contains("nowhere"));
    assert!(place.refused("partition demo -k 2 -o s --method mettis").contains("metis"));
    assert!(
        place.refused("partition demo -k 2 -o s --method stream --objective cut").contains("--objective")
    );
    let both = "partition demo -k 2 -o s --method stream --assignment x";
    assert!(place.refused(both).contains("cannot be used with"));
    assert!(place.refused("partition demo -k 2 -o s --assignment x.npy").contains("x.npy"));
    let mut lines: Vec<String> = (0..4000).map(|v| (v % 2).to_string()).collect();
    lines[1233] = "two".into();
    fs::write(place.path("bad.part.2"), lines.join("\n")).unwrap();
    let message = place.refused("partition demo -k 2 -o s --assignment bad.part.2");
    assert!(message.contains("bad.part.2, line 1234") && message.contains("\"two\""), "{message}");
    lines.truncate(1000);
    fs::write(place.path("bad.part.2"), lines.join("\n")).unwrap();
    let message = place.refused("partition demo -k 2 -o s --assignment bad.part.2");
    assert!(message.contains("1000 lines for the 4000 nodes"), "{message}");
    assert_eq!(entries(place.0.path()), ["bad.part.2", "demo"], "nothing is left behind");
}

#[test]
fn overwrite_replaces_only_shards() {
    let place = Place::new();
    place.ok("partition demo -k 2 -o shards --method random -q");
    let out = place.halograph("partition demo -k 3 -o shards --method random");
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--overwrite"));
    assert!(place.ok("partition demo -k 3 -o shards --method random --overwrite -q").is_empty());
    assert_eq!(entries(&place.path("shards")).len(), 5);
    let out = place.halograph("partition demo -k 3 -o demo --method random --overwrite");
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("not a partition"));
}

#[test]
fn presampling_reports_the_expected_costs_of_a_step() {
    let place = Place::new();
    let text = place.ok("partition demo -k 4 -o s --presample 2 --batch-size 256");
    for word in ["(presampled, objective cut)", "2 epochs of batches of 256", "fanouts 15,10,5"] {
        assert!(text.contains(word), "{text}");
    }
    for line in ["presampled", "metis volume", "metis cut", "shards   s"] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{text}");
    }
    let flags = "--presample 1 --batch-size 256 --fanout 5,-1 --layers 2 --hidden 16 --sampler labor --cache-input-aggregate=false";
    let out = place.json(&format!("partition demo -k 4 -o t {flags}"));
    let sampling = serde_json::json!({
        "epochs": 1, "batch_size": 256, "sampler": "labor", "fanouts": [5, -1], "reads_inputs": true, "cached_input": false, "inductive": false
    });
    assert_eq!(out["partition"]["presample"], sampling);
    assert_eq!(out["partition"]["balance"], serde_json::json!(["nodes", "work"]));
    let split = out["split"].as_array().unwrap();
    let methods: Vec<&str> = split.iter().map(|row| row["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["presampled", "metis volume", "metis cut", "stream", "random"]);
    for row in split {
        // 2000 training nodes; two layers project to 8 classes before the last one sends, forward and back.
        assert_eq!(row["steps"], 8);
        let sum = |hop: usize, key: &str| {
            row["hops"][hop].as_array().unwrap().iter().map(|part| part[key].as_f64().unwrap()).sum::<f64>()
        };
        assert_eq!(sum(0, "destinations"), 250.0);
        assert!(sum(1, "destinations") > 500.0 && sum(0, "edges") > 1000.0 && sum(1, "remote_rows") == 0.0);
        let bytes = row["bytes_per_step"].as_f64().unwrap();
        assert!((bytes - 2.0 * 4.0 * 8.0 * sum(0, "remote_rows")).abs() < 1e-6 * bytes, "{row}");
        assert!(row["work_balance"].as_f64().unwrap() < row["step_balance"].as_f64().unwrap());
    }
    assert!(split[0]["work_balance"].as_f64().unwrap() < 1.1);
    let again = place.json(&format!("partition demo -k 4 -o u {flags}"));
    assert_eq!(again["partition"]["layout"], out["partition"]["layout"]);
    assert_eq!(again["split"], out["split"]);
    assert!(place.ok("data check demo").contains("no fault found"));
}

#[test]
fn training_finds_the_partition_of_shards_that_were_presampled_alike() {
    let place = Place::new();
    let stored = || entries(&place.path("demo")).iter().filter(|name| name.contains("presampled")).count();
    let cases = [
        ("", ""),
        ("--cache-input-aggregate=false", "--cache-input-aggregate=false"),
        ("--inductive", "--set data.inductive=true"),
        ("--model gcnii", "--model gcnii"),
    ];
    for (case, (flags, train)) in cases.into_iter().enumerate() {
        let sampling = "--fanout 4,3 --batch-size 256 --layers 2 --hidden 8";
        let text = place.ok(&format!("partition demo -k 2 -o s{case} --presample 2 {sampling} {flags}"));
        // An assignment and its description.
        assert_eq!(stored(), 2 * (case + 1), "{flags}: a partition of its own");
        // The table lists the hops whose rows are exchanged.
        let row = text.lines().find(|line| line.starts_with("metis cut")).unwrap();
        assert_eq!(row.contains(" + "), case == 3, "{flags}: {text}");
        let run = |data: &str| {
            let run = format!("train {data} --strategy split --ranks 2 {sampling} {train} --epochs 1");
            place.json(&format!("{run} --out run --overwrite"))
        };
        let [shards, dataset] = [run(&format!("s{case}")), run("demo")];
        assert_eq!(shards["loss_history"], dataset["loss_history"], "{flags}");
        assert_eq!(shards["bytes_by_tag"], dataset["bytes_by_tag"], "{flags}");
        assert_eq!(stored(), 2 * (case + 1), "{flags}: nothing new");
    }
}

#[test]
fn invalid_presampling_is_explained() {
    let place = Place::new();
    let refused = |args: &str| place.refused(&format!("partition demo -k 2 -o s {args}"));
    assert!(refused("--presample 2 --method stream").contains("--presample"));
    assert!(refused("--presample 2 --method random").contains("no other method"));
    assert!(refused("--presample 2 --objective cut").contains("cannot be used with"));
    assert!(refused("--presample 2 --balance edges").contains("cannot be used with"));
    assert!(refused("--presample 2 --assignment x").contains("cannot be used with"));
    assert!(refused("--presample 0").contains("1.."));
    assert!(refused("--presample 2 --fanout 5,5").contains("2 fanouts for a model of 3 layers"));
    assert!(refused("--presample 2 --fanout 5,0,5").contains("0: must be at least 1"));
    assert!(refused("--presample 2 --fanout 5,-2,5").contains("-2: must be at least 1"));
    assert!(refused("--presample 2 --batch-size 0").contains("--batch-size"));
    assert!(refused("--presample 2 --sampler other").contains("neighbor"));
    let cached = refused("--presample 2 --model gat --cache-input-aggregate");
    assert!(cached.contains("model gat does not aggregate unchanged features") && cached.contains("sage"));
    assert!(refused("--model other").contains("resgcn"));
    assert!(refused("--model gat --hidden 9 --presample 2").contains("model.heads"));
    for flag in
        ["--fanout 5,5,5", "--batch-size 10", "--sampler labor", "--inductive", "--cache-input-aggregate"]
    {
        assert!(refused(flag).contains("--presample"), "{flag}");
    }
}
