//! `halograph data make PRESET -o DIR`

use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use halograph_graph::Error;
use halograph_graph::generate::{self, PRESETS, Preset, Spec, presets};
use indicatif::HumanCount;

use super::output::Output;
use crate::cli::cores;

#[derive(clap::Args)]
pub struct Args {
    /// Preset, whose values the flags below override. Without a preset, --nodes, --edges, --features and --classes are
    /// required.
    #[arg(value_parser = PossibleValuesParser::new(PRESETS.iter().map(possible)))]
    preset: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    shape: Shape,
    /// Seed; the same seed gives the same bytes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of threads; does not change the result [default: all cores].
    #[arg(long, value_name = "T")]
    threads: Option<std::num::NonZeroUsize>,
}

/// Parameters of the graph. Without a preset, the defaults are those of `small`.
#[derive(clap::Args)]
struct Shape {
    /// Number of nodes.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Number of directed edges; even, because every edge is stored in both directions.
    #[arg(long, value_name = "M")]
    edges: Option<u64>,
    /// Number of features.
    #[arg(long, value_name = "F")]
    features: Option<usize>,
    /// Number of classes.
    #[arg(long, value_name = "C")]
    classes: Option<usize>,
    /// Give nodes several classes each (multi-label), scored by micro-F1.
    #[arg(long)]
    multi_label: bool,
    /// Fraction of training nodes [default: the preset's, or 0.6].
    #[arg(long, value_name = "FRACTION")]
    train: Option<f64>,
    /// Fraction of validation nodes; the rest are test nodes [default: the preset's, or 0.2].
    #[arg(long, value_name = "FRACTION")]
    val: Option<f64>,
    /// Fraction of edges whose end is drawn from all nodes; a higher value gives larger halos [default: the preset's, or 0.03].
    #[arg(long, value_name = "FRACTION")]
    mixing: Option<f64>,
    /// Fraction of edges that stay within a community, relative to the community twice its size; a higher value gives
    /// larger halos with many parts [default: the preset's, or 1.1].
    #[arg(long, value_name = "RATIO")]
    nesting: Option<f64>,
    /// Separation of classes by features; 0: none, 1: about half of the nodes are nearest to the mean of their class [default: the preset's, or 1].
    #[arg(long, value_name = "X")]
    signal: Option<f64>,
    /// Fraction of labels that are replaced at random [default: the preset's, or 0.05].
    #[arg(long, value_name = "FRACTION")]
    label_noise: Option<f64>,
}

impl Shape {
    /// Returns whether no preset is needed.
    fn is_complete(&self) -> bool {
        self.nodes.is_some() && self.edges.is_some() && self.features.is_some() && self.classes.is_some()
    }
}

fn missing_size() -> Error {
    Error::input("data make", "neither a preset nor all of --nodes, --edges, --features and --classes")
        .help("start with `halograph data make demo -o demo`; `halograph data make --help` lists the presets")
}

fn possible(preset: &Preset) -> PossibleValue {
    let Spec { nodes, edges, features, classes, .. } = preset.spec;
    PossibleValue::new(preset.name).help(format!(
        "{} nodes, {} edges, {features} features, {classes} classes",
        HumanCount(nodes as u64),
        HumanCount(edges)
    ))
}

impl Args {
    fn spec(&self) -> anyhow::Result<Spec> {
        let shape = &self.shape;
        let base = match &self.preset {
            Some(name) => name,
            None if shape.is_complete() => "small",
            None => return Err(missing_size().into()),
        };
        let base = &presets::find(base).expect("clap accepts only the names of presets").spec;
        Ok(Spec {
            nodes: shape.nodes.unwrap_or(base.nodes),
            edges: shape.edges.unwrap_or(base.edges),
            features: shape.features.unwrap_or(base.features),
            classes: shape.classes.unwrap_or(base.classes),
            multi_label: shape.multi_label,
            train: shape.train.unwrap_or(base.train),
            val: shape.val.unwrap_or(base.val),
            mixing: shape.mixing.unwrap_or(base.mixing),
            nesting: shape.nesting.unwrap_or(base.nesting),
            signal: shape.signal.unwrap_or(base.signal),
            label_noise: shape.label_noise.unwrap_or(base.label_noise),
            seed: self.seed,
        })
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let spec = args.spec()?;
    let output = &args.output;
    let name = output.name.as_deref().or(args.preset.as_deref()).unwrap_or("made");
    let threads = args.threads.map_or_else(cores, |t| t.get());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let bar = output.bar();
    let report = pool.install(|| generate::make(&spec, name, &output.out, output.overwrite, &bar))?;
    drop(bar);
    output.report(&report.manifest, &[format!("split: {}", report.split)], &[], &report)?;
    Ok(ExitCode::SUCCESS)
}
