//! `halograph data info DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use halograph::nn::model::{Kind, Spec};
use halograph::train::config::StrategyKind;
use halograph::train::{Config, admission};
use halograph_graph::Dataset;
use halograph_graph::dataset::Manifest;
use halograph_graph::dataset::info::{DatasetInfo, info};
use indicatif::{HumanBytes, HumanCount};

use crate::cli::print;

#[derive(clap::Args)]
pub struct Args {
    /// The dataset directory.
    dir: PathBuf,
    /// Print everything as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let dataset = Dataset::open(&args.dir)?;
    let info = info(&dataset);
    let memory = training_memory(&dataset);
    if args.json {
        print(&json(&dataset.manifest, &info, &memory).to_string())?;
    } else {
        let lines = lines(&dataset.manifest, &info, &memory);
        lines.iter().try_for_each(|(key, value)| print(&format!("{key:<12} {value}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Models of sizes people start with.
const MODELS: [(&str, Kind, usize, usize, StrategyKind); 7] = [
    ("gcn 3x256", Kind::Gcn, 3, 256, StrategyKind::Single),
    ("sage 3x256", Kind::Sage, 3, 256, StrategyKind::Single),
    ("gat 2x(4x64)", Kind::Gat, 2, 256, StrategyKind::Single),
    ("gin 3x256", Kind::Gin, 3, 256, StrategyKind::Single),
    ("gcnii 32x64", Kind::Gcnii, 32, 64, StrategyKind::Single),
    ("resgcn 8x128", Kind::Resgcn, 8, 128, StrategyKind::Single),
    ("sage 3x256 minibatch", Kind::Sage, 3, 256, StrategyKind::Minibatch),
];

/// Returns the bytes that training each of [`MODELS`] would take.
fn training_memory(dataset: &Dataset) -> Vec<(&'static str, u64)> {
    // No model has outputs for it.
    if dataset.manifest.classes == 0 {
        return Vec::new();
    }
    let predict = |(name, kind, layers, hidden, strategy)| {
        let mut config = Config { model: Spec { layers, hidden, ..Spec::new(kind) }, ..Config::new(kind) };
        config.train.strategy = strategy;
        config.resolve_fanout();
        config.resolve_input(dataset.manifest.is_sparse());
        Some((name, admission::predict(dataset, &config).ok()??.bytes))
    };
    MODELS.into_iter().filter_map(predict).collect()
}

fn json(manifest: &Manifest, info: &DatasetInfo, memory: &[(&str, u64)]) -> serde_json::Value {
    let memory: serde_json::Map<String, serde_json::Value> =
        memory.iter().map(|&(model, bytes)| (model.into(), bytes.into())).collect();
    let warnings = info.labels.warnings(manifest);
    serde_json::json!({ "manifest": manifest, "info": info, "warnings": warnings, "training_memory_bytes": memory })
}

fn lines(m: &Manifest, info: &DatasetInfo, memory: &[(&str, u64)]) -> Vec<(&'static str, String)> {
    let count = |n: u64| HumanCount(n).to_string();
    let d = &info.degrees;
    let direction = if m.directed { "directed" } else { "stored, both ways" };
    let [none, train, val, test] = info.split.map(count);
    let mut lines = vec![
        ("name", m.name.clone()),
        ("source", m.source.clone()),
        ("nodes", count(m.nodes)),
        ("edges", format!("{} {direction}", count(m.edges))),
        (
            "degree",
            format!("min {}, median {}, mean {:.1}, p99 {}, max {}", d.min, d.median, d.mean, d.p99, d.max),
        ),
        ("isolated", count(d.isolated)),
        ("edge weights", weight_line(info)),
        ("features", feature_line(m, info)),
        ("task", format!("{}, scored by {}", m.task, m.metric)),
        ("classes", class_line(m, info)),
        ("labelled", count(info.labels.labelled)),
        ("homophily", info.homophily.map_or("no labelled edge".into(), |h| format!("{h:.3}"))),
        ("split", format!("train {train}, validation {val}, test {test}, none {none}{}", more_splits(m))),
        ("on disk", HumanBytes(info.bytes).to_string()),
        ("fingerprint", m.fingerprint.clone()),
    ];
    lines.extend(info.labels.warnings(m).into_iter().map(|warning| ("warning", warning)));
    for (i, &(model, bytes)) in memory.iter().enumerate() {
        let key = if i == 0 { "training" } else { "" };
        lines.push((key, format!("{model:<20} about {}", HumanBytes(bytes))));
    }
    lines
}

/// Returns the range of edge weights.
fn weight_line(info: &DatasetInfo) -> String {
    match &info.edge_weights {
        None => "none".into(),
        Some(w) => format!("min {}, median {}, max {}, zero {}", w.min, w.median, w.max, HumanCount(w.zeros)),
    }
}

/// Says how many splits there are, if there are several.
fn more_splits(m: &Manifest) -> String {
    if m.splits > 1 { format!(" (the first of {})", m.splits) } else { String::new() }
}

/// Returns the number of features, how they are stored, and their first names.
fn feature_line(m: &Manifest, info: &DatasetInfo) -> String {
    const SHOWN: usize = 6;
    let mut line = format!("{} as {}", HumanCount(m.features), info.feature_type);
    if let (Some(density), Some(values)) = (info.feature_density, m.feature_values) {
        line += &format!(", sparse: {} values stored, {:.2} %", HumanCount(values), 100.0 * density);
    }
    if m.feature_names.is_empty() {
        return line;
    }
    let names = m.feature_names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = if m.feature_names.len() > SHOWN { ", …" } else { "" };
    format!("{line}: {names}{more}")
}

/// Returns the number of classes, and how uneven they are.
fn class_line(m: &Manifest, info: &DatasetInfo) -> String {
    let extreme = |best: Option<(usize, &u64)>| {
        best.map(|(class, n)| match m.class_names.get(class) {
            Some(name) => format!("{name} {}", HumanCount(*n)),
            None => format!("class {class} {}", HumanCount(*n)),
        })
    };
    let all = || info.labels.per_class.iter().enumerate();
    let (small, large) = (extreme(all().min_by_key(|c| c.1)), extreme(all().max_by_key(|c| c.1)));
    match (small, large) {
        (Some(small), Some(large)) => format!("{} (smallest: {small}, largest: {large})", m.classes),
        _ => m.classes.to_string(),
    }
}
