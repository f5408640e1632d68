//! Tables of a user: import, train, score, predict a new month without labels; names of columns and ids of nodes.
//!
//! `docs/predicting.md` describes the first test.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use halograph::graph::Dataset;
use halograph::graph::dataset::LabelView;
use halograph::graph::io::npy::Array;
use halograph::graph::io::parquet::{ColumnType, ColumnValues, TableWriter};
use serde_json::{Value, json};

use common::{ok, refused};

const ACCOUNTS: usize = 160;
const TRAIN: &str = "--model sage --hidden 8 --layers 2 --lr 0.02 --epochs 40 --dropout 0 --threads 1 -q \
                     --set data.normalize=columns --class-weights balanced --metric macro-f1";

/// Whether an account is fraudulent: one in eight.
fn is_fraud(account: usize) -> bool {
    account.is_multiple_of(8)
}

/// Whether the age of an account is missing.
fn is_unknown(account: usize) -> bool {
    account % 16 == 5
}

/// A number from 0 to 1 that depends on its arguments only.
fn noise(account: usize, what: usize, month: usize) -> f64 {
    let mut x = (account * 31 + what * 7919 + month * 104_729 + 1) as u64;
    x = (x ^ (x >> 13)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x >> 33) as f64) / (1u64 << 31) as f64
}

/// Returns a cell of the table of accounts. A missing age is filled in, and `age_unknown` marks it.
fn cell(account: usize, column: &str, month: usize) -> String {
    let fraud = f64::from(u8::from(is_fraud(account)));
    match column {
        "account" => format!("acc-{account:03}"),
        "amount" => format!("{:.3}", 100.0 + 300.0 * fraud + 250.0 * noise(account, 1, month)),
        "age_days" if is_unknown(account) => "600".into(),
        "age_unknown" => format!("{}", u8::from(is_unknown(account))),
        "age_days" => format!("{:.1}", 500.0 - 300.0 * fraud + 400.0 * noise(account, 2, month)),
        "logins" => format!("{}", (10.0 + 20.0 * fraud * noise(account, 3, month)).round()),
        "region" => ["north", "south"][account % 2].into(),
        "label" => if is_fraud(account) { "fraud" } else { "ok" }.into(),
        other => panic!("no column {other}"),
    }
}

/// Writes the tables of a month into `folder`, with these columns of accounts.
fn write_month(folder: &Path, month: usize, columns: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    // Accounts pay others of their kind more often.
    let target = |k: usize| match noise(k, 4, month) {
        x if x < 0.7 => (k + 8 * (1 + k % 5)) % ACCOUNTS,
        _ => (k * 3 + 1) % ACCOUNTS,
    };
    let weight = |k: usize| 1.0 + (9.0 * noise(k, 5, month)).round();
    let edge = |k: usize| format!("acc-{:03},acc-{:03},{}\n", k % ACCOUNTS, target(k), weight(k));
    let edges: String = (0..3 * ACCOUNTS).map(edge).collect();
    fs::write(folder.join("edges.csv"), format!("from,to,weight\n{edges}")).unwrap();
    let row = |account: usize| {
        let cells: Vec<String> = columns.iter().map(|column| cell(account, column, month)).collect();
        cells.join(",") + "\n"
    };
    let rows: String = (0..ACCOUNTS).map(row).collect();
    fs::write(folder.join("nodes.csv"), format!("{}\n{rows}", columns.join(","))).unwrap();
}

/// Returns the rows of a CSV file, by the names of its columns.
fn read_csv(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells = line.split(',').map(String::from);
        header.iter().map(|name| name.to_string()).zip(cells).collect::<HashMap<_, _>>()
    };
    lines.map(row).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

const MARCH: [&str; 7] = ["account", "amount", "age_days", "age_unknown", "logins", "region", "label"];
const APRIL: [&str; 6] = ["logins", "account", "age_unknown", "age_days", "region", "amount"];
const FEATURES: [&str; 4] = ["amount", "age_days", "age_unknown", "logins"];

/// Imports March with labels as `march` and April without as `april`, and trains run `r`.
fn story(path: &Path) {
    write_month(&path.join("march-tables"), 3, &MARCH);
    write_month(&path.join("april-tables"), 4, &APRIL);
    let import = "--id-col account -q";
    ok(path, &format!("data import csv march-tables -o march --split 0.6,0.2,0.2 {import}"));
    ok(path, &format!("data import csv april-tables -o april {import}"));
    ok(path, &format!("train march --out r {TRAIN}"));
}

#[test]
fn a_new_month_is_predicted_with_the_ids_of_its_accounts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // As long as values are missing, the table is refused with file, line and column, and nothing is left.
    write_month(&path.join("march-tables"), 3, &MARCH);
    let table = path.join("march-tables/nodes.csv");
    let with_gaps = fs::read_to_string(&table).unwrap().replace(",600,1,", ",,1,");
    fs::write(&table, with_gaps).unwrap();
    let message = refused(path, "data import csv march-tables -o march --id-col account");
    assert!(message.contains("nodes.csv, line 7, column age_days: an empty cell"), "{message}");
    assert!(message.contains("help: ") && names(path) == ["march-tables"], "{message}");

    story(path);
    let march = Dataset::open(&path.join("march")).unwrap();
    assert_eq!(march.manifest.feature_names, FEATURES);
    let weights = march.edge_weights().expect("payments have weights");
    assert!(weights.iter().all(|weight| (1.0..=60.0).contains(weight)) && weights[0] != weights[1]);
    let LabelView::Single(labels) = march.labels() else { panic!("one class per account") };
    let fraud_in = |part: u8| {
        let found = labels.iter().zip(march.split()).filter(|(_, split)| **split == part);
        found.filter(|(label, _)| **label == 0).count()
    };
    assert_eq!([1, 2, 3].map(fraud_in), [12, 4, 4], "the rare class is in every subset");
    let scores: Value = serde_json::from_str(&ok(path, "eval r --json")).unwrap();
    let classes = &scores["classes"];
    assert_eq!((&scores["metric"], &classes["names"]), (&json!("macro-f1"), &json!(["fraud", "ok"])));
    assert_eq!(classes["test"]["support"], json!([4, 28]));
    for (class, least) in [(0, 0.75), (1, 0.9)] {
        let [recall, precision] = ["recall", "precision"].map(|key| &classes["test"][key][class]);
        assert!(recall.as_f64().unwrap() >= least && precision.as_f64().unwrap() >= 0.6, "{classes}");
    }
    assert!(scores["test"].as_f64() > classes["majority"]["score"].as_f64(), "{scores}");
    assert!(ok(path, "eval r").contains("true \\ predicted"));

    assert!(ok(path, "data check april").contains("no fault found"));
    assert!(
        march.manifest.source.ends_with("split: ratios 0.600, 0.200, 0.200, stratified by class, seed 0")
    );
    let april = Dataset::open(&path.join("april")).unwrap();
    assert!(april.manifest.source.ends_with("split: none"), "{}", april.manifest.source);
    assert!(ok(path, "data info april").contains("4 as f32: logins, age_unknown, age_days, amount"));
    ok(path, "predict r --data april -o april.csv -q");
    let rows = read_csv(&fs::read_to_string(path.join("april.csv")).unwrap());
    assert_eq!(rows.len(), ACCOUNTS);
    for (account, row) in rows.iter().enumerate() {
        assert_eq!(row["id"], format!("acc-{account:03}"));
        let [fraud, fine] = ["p_fraud", "p_ok"].map(|column| row[column].parse::<f64>().unwrap());
        assert!((fraud + fine - 1.0).abs() < 1e-6, "{row:?}");
        assert_eq!(row["class"], if fraud > fine { "fraud" } else { "ok" });
    }
    let right = |fraud: bool| {
        let of = rows.iter().enumerate().filter(|(v, _)| is_fraud(*v) == fraud);
        of.filter(|(_, row)| (row["class"] == "fraud") == fraud).count()
    };
    assert!(right(true) >= 16 && right(false) > 130, "{} of 20, {} of 140", right(true), right(false));
}

#[test]
fn columns_are_matched_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    story(path);
    let header: Value = serde_json::from_str(&fs::read_to_string(path.join("r/run.json")).unwrap()).unwrap();
    assert_eq!(header["data"]["feature_names"], json!(FEATURES));
    // The same month with its columns in another order, also as f16 and in shards: the same bits.
    let split = |v: usize| ["train", "val", "test"][v % 3];
    for (name, columns) in
        [("straight", FEATURES.join(",")), ("turned", "logins,amount,age_unknown,age_days".into())]
    {
        let folder = path.join(format!("{name}-tables"));
        write_month(&folder, 3, &MARCH);
        let table = fs::read_to_string(folder.join("nodes.csv")).unwrap();
        let with_split = |(v, line): (usize, &str)| match v {
            0 => format!("{line},split\n"),
            v => format!("{line},{}\n", split(v)),
        };
        let table: String = table.lines().enumerate().map(with_split).collect();
        fs::write(folder.join("nodes.csv"), table).unwrap();
        for features in ["f32", "f16"] {
            ok(
                path,
                &format!(
                    "data import csv {name}-tables -o {name}-{features} --id-col account --feature-cols {columns} \
                     --features {features} -q"
                ),
            );
            ok(path, &format!("predict r --data {name}-{features} -o {name}-{features}.npy -q"));
        }
    }
    ok(path, "partition turned-f32 -k 2 --method random -o shards -q");
    ok(path, "predict r --data shards -o shards.npy -q");
    let logits = |name: &str| Array::open(&path.join(format!("{name}.npy"))).unwrap().raw().to_vec();
    for features in ["f32", "f16"] {
        assert!(
            logits(&format!("straight-{features}")) == logits(&format!("turned-{features}")),
            "{features}"
        );
        let score = |name: &str| ok(path, &format!("eval r --data {name}-{features} -q"));
        assert_eq!(score("straight"), score("turned"));
    }
    let numbers = |name: &str| -> Vec<f32> {
        logits(name).chunks_exact(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect()
    };
    let differs = |(a, b): (f32, f32)| (a - b).abs() > 1e-4 * a.abs().max(1.0);
    assert!(!numbers("shards").into_iter().zip(numbers("straight-f32")).any(differs));

    // Other names are refused by both commands.
    ok(
        path,
        "data import csv april-tables -o other --id-col account --feature-cols logins,amount,age_unknown -q",
    );
    for verb in ["eval", "predict -o x.csv"] {
        let message = refused(path, &format!("{verb} r --data other"));
        assert!(message.contains("feature columns differ from those of r: missing: age_days"), "{message}");
    }
    let table = path.join("april-tables/nodes.csv");
    let renamed = fs::read_to_string(&table).unwrap().replace(",age_days,", ",age,");
    fs::write(&table, renamed).unwrap();
    ok(path, "data import csv april-tables -o other --id-col account -q --overwrite");
    let message = refused(path, "predict r -o x.csv --data other");
    assert!(message.contains("missing: age_days; not in the run: age\n"), "{message}");
    assert!(message.contains("--feature-cols") && !path.join("x.csv").exists(), "{message}");
}

#[test]
fn another_kind_of_graph_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    story(path);
    let edges = path.join("april-tables/edges.csv");
    let renamed = fs::read_to_string(&edges).unwrap().replace("from,to,weight", "from,to,wt");
    ok(path, "data import csv april-tables -o directed --id-col account --directed -q");
    fs::write(&edges, renamed).unwrap();
    ok(path, "data import csv april-tables -o bare --id-col account -q");
    ok(path, "train march --out gat --model gat --hidden 8 --layers 2 --epochs 1 --threads 1 -q");
    let said = |run: &str, data: &str| {
        let out = common::halograph(path, &format!("predict {run} --data {data} --output classes -o -"));
        assert!(out.status.success());
        String::from_utf8(out.stderr).unwrap()
    };
    let note = |data: &str, edges: &str, trained: &str| {
        format!(
            "note: {data} has {edges}; the model was trained on march-tables, which has {trained}: results may be worse\n"
        )
    };
    assert_eq!(said("r", "april"), "");
    assert_eq!(said("r", "bare"), note("bare", "no edge weights", "edge weights"));
    assert_eq!(said("r", "directed"), note("directed", "directed edges", "undirected edges"));
    assert_eq!(said("gat", "bare"), "", "gat uses no edge weights");
    assert!(common::halograph(path, "predict r --data bare -o b.csv -q").stderr.is_empty());
}

#[test]
fn data_without_labels_are_not_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_month(&path.join("tables"), 4, &APRIL);
    ok(path, "data import csv tables -o april --id-col account -q");
    let message = refused(path, "train april --out r");
    assert!(message.contains("april/label.npy: no node has a label"), "{message}");
    assert!(message.contains("--label-col"), "{message}");
    let message = refused(path, "data import csv tables -o x --id-col account --split 0.5,0.25,0.25");
    assert!(message.contains("no node has a label"), "{message}");
    let message = refused(path, "data import csv tables -o x --id-col account --label-col kind");
    assert!(message.contains("no column \"kind\""), "{message}");
    for (ratio, named) in [
        ("0.6,0.2,0.1", "add up to 0.9"),
        ("1.1,-0.1,0", "1.1 is not a ratio"),
        ("-0.2,0.6,0.6", "-0.2 is not a ratio"),
        ("0.6,0.4", "three ratios"),
    ] {
        let message = refused(path, &format!("data import csv tables -o x --id-col account --split {ratio}"));
        assert!(message.contains("--split") && message.contains(named), "{ratio}: {message}");
    }
    assert_eq!(names(path), ["april", "tables"]);
}

#[test]
fn eval_refuses_data_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    story(path);
    let message = refused(path, "eval r --data april");
    assert!(message.contains("no node has a label") && message.contains("predict needs none"), "{message}");
    let message = refused(path, "predict r --data april --split test -o x.csv");
    assert!(message.contains("--split test: no node of april"), "{message}");
    // Shards have no ids of the user: a note, and node numbers.
    ok(path, "partition april -k 2 --method random -o shards -q");
    let out = common::halograph(path, "predict r --data shards --output classes -o -");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success() && text.starts_with("id,class\n0,"), "{text}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("node numbers"));
}

#[test]
fn tables_hold_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    story(path);
    let text = ok(path, "predict r --split test --output classes -o -");
    let rows = read_csv(&text);
    let march = Dataset::open(&path.join("march")).unwrap();
    let test: Vec<usize> = (0..ACCOUNTS).filter(|&v| march.split()[v] == 3).collect();
    let ids: Vec<String> = test.iter().map(|v| format!("acc-{v:03}")).collect();
    assert_eq!(rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), ids);
    // The accuracy of these rows is that of `eval`.
    let right = rows.iter().zip(&test).filter(|(row, v)| (row["class"] == "fraud") == is_fraud(**v)).count();
    let scores: Value = serde_json::from_str(&ok(path, "eval r --json")).unwrap();
    let accuracy = scores["classes"]["test"]["accuracy"].as_f64().unwrap();
    assert!((right as f64 / test.len() as f64 - accuracy).abs() < 1e-9);
    // The same table as parquet: imported again as features, it has the same numbers.
    ok(path, "predict r -o p.parquet -q");
    ok(path, "predict r -o p.npy --output probabilities -q");
    fs::create_dir(path.join("again")).unwrap();
    fs::copy(path.join("p.parquet"), path.join("again/nodes.parquet")).unwrap();
    let columns = ["src", "dst"].map(|name| (name.to_string(), ColumnType::Text));
    let mut edges = TableWriter::create(&path.join("again/edges.parquet"), &columns).unwrap();
    let ends = [["acc-000", "acc-001"], ["acc-002", "acc-003"]];
    let end = |k: usize| ColumnValues::Texts(ends.iter().map(|pair| pair[k].to_string()).collect());
    edges.write(vec![end(0), end(1)]).unwrap();
    edges.finish().unwrap();
    ok(path, "data import parquet again -o copy --label-col class -q");
    let copy = Dataset::open(&path.join("copy")).unwrap();
    assert_eq!(copy.manifest.feature_names, ["p_fraud", "p_ok"]);
    assert_eq!(copy.manifest.class_names, ["fraud", "ok"]);
    assert_eq!(copy.ids().unwrap().unwrap()[7], "acc-007");
    let array = Array::open(&path.join("p.npy")).unwrap();
    assert_eq!(copy.features().as_slice::<f32>().unwrap(), array.as_slice::<f32>().unwrap());
    assert!(refused(path, "predict r -o p.parquet").contains("--overwrite"));
    let message = refused(path, "predict r -o none/p.csv");
    assert!(message.contains("none/p.csv: there is no folder none\n  help: "), "{message}");
}

#[test]
fn predictions_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_month(&path.join("march-tables"), 3, &MARCH);
    ok(path, "data import csv march-tables -o march --id-col account --split 0.6,0.2,0.2 -q");
    ok(path, "train march --out r --model gcn --hidden 8 --layers 2 --epochs 2 --threads 1 -q");
    write_month(&path.join("april-tables"), 4, &APRIL);
    let table = path.join("april-tables/nodes.csv");
    let huge = fs::read_to_string(&table).unwrap().replace(",600,", ",3e38,");
    fs::write(&table, huge).unwrap();
    ok(path, "data import csv april-tables -o april --id-col account -q");
    let out = common::halograph(path, "predict r --data april -o april.csv");
    let message = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{message}");
    assert!(message.contains("r: the outputs for april are not finite numbers\n  help: "), "{message}");
    assert!(!path.join("april.csv").exists());
}

#[test]
fn several_classes_are_columns_of_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 200 --edges 1600 --features 8 --classes 3 --multi-label -o g -q");
    ok(path, "train g --out r --hidden 8 --layers 2 --epochs 3 --threads 1 -q");
    let rows = read_csv(&ok(path, "predict r -o -"));
    assert_eq!(rows.len(), 200);
    for row in &rows {
        for class in 0..3 {
            let probability: f64 = row[&format!("p_{class}")].parse().unwrap();
            assert_eq!(row[&format!("class_{class}")] == "1", probability > 0.5, "{row:?}");
        }
    }
    ok(path, "predict r -o c.npy --output classes -q");
    let array = Array::open(&path.join("c.npy")).unwrap();
    let flags = rows.iter().flat_map(|row| (0..3).map(|c| row[&format!("class_{c}")].parse::<u8>().unwrap()));
    assert_eq!(array.as_slice::<u8>().unwrap(), flags.collect::<Vec<_>>());
}

#[test]
fn a_folder_of_arrays_needs_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 200 --edges 1600 --features 8 --classes 3 -o g -q");
    ok(path, "train g --out r --hidden 8 --layers 2 --epochs 3 --threads 1 -q");
    fs::create_dir(path.join("arrays")).unwrap();
    for (from, to) in [("feat.npy", "x.npy"), ("indptr.npy", "indptr.npy"), ("indices.npy", "indices.npy")] {
        fs::copy(path.join("g").join(from), path.join("arrays").join(to)).unwrap();
    }
    ok(path, "data import npy arrays -o new -q");
    ok(path, "predict r -o own.csv -q");
    ok(path, "predict r --data new -o new.csv -q");
    let [own, new] = ["own.csv", "new.csv"].map(|name| fs::read(path.join(name)).unwrap());
    assert!(own == new && own.starts_with(b"id,class,p_0,p_1,p_2\n0,"));
}
