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
    /// What to make; flags below override its values. Without one, --nodes, --edges, --features and --classes
    /// are needed.
    #[arg(value_parser = PossibleValuesParser::new(PRESETS.iter().map(possible)))]
    preset: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    shape: Shape,
    /// Seed of everything random; the same seed gives the same bytes.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads to use; they do not change the result [default: all cores].
    #[arg(long, value_name = "T")]
    threads: Option<std::num::NonZeroUsize>,
}

/// What shapes the graph. Without a preset, values not given are those of `small`.
#[derive(clap::Args)]
struct Shape {
    /// Nodes.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Directed edges, an even number: every edge is stored both ways.
    #[arg(long, value_name = "M")]
    edges: Option<u64>,
    /// Feature columns.
    #[arg(long, value_name = "F")]
    features: Option<usize>,
    /// Classes.
    #[arg(long, value_name = "C")]
    classes: Option<usize>,
    /// Several classes a node, scored by micro-F1.
    #[arg(long)]
    multi_label: bool,
    /// Share of nodes to train on [default: the preset's, or 0.6].
    #[arg(long, value_name = "SHARE")]
    train: Option<f64>,
    /// Share of nodes to validate on; the rest is for testing [default: the preset's, or 0.2].
    #[arg(long, value_name = "SHARE")]
    val: Option<f64>,
    /// Share of edges that may end anywhere: more means larger halos [default: the preset's, or 0.03].
    #[arg(long, value_name = "SHARE")]
    mixing: Option<f64>,
    /// Share of edges that stay in a community, over that of the community twice its size: more means larger
    /// halos at many parts [default: the preset's, or 1.1].
    #[arg(long, value_name = "RATIO")]
    nesting: Option<f64>,
    /// How well features alone tell classes apart; 0 for not at all [default: the preset's, or 1].
    #[arg(long, value_name = "SIZE")]
    signal: Option<f64>,
    /// Share of labels replaced at random [default: the preset's, or 0.05].
    #[arg(long, value_name = "SHARE")]
    label_noise: Option<f64>,
}

impl Shape {
    /// Returns whether it says enough to do without a preset.
    fn is_whole(&self) -> bool {
        self.nodes.is_some() && self.edges.is_some() && self.features.is_some() && self.classes.is_some()
    }
}

fn nothing_to_make() -> Error {
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
            None if shape.is_whole() => "small",
            None => return Err(nothing_to_make().into()),
        };
        let base = &presets::find(base).expect("clap lets only presets through").spec;
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
    output.tell(&report.manifest, &[format!("split: {}", report.split)], &[], &report)?;
    Ok(ExitCode::SUCCESS)
}
