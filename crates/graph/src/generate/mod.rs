//! Random graphs of any size from a seed, with nested communities.
//!
//! The model is a degree-corrected stochastic block model whose blocks are the leaves of a binary tree (`blocks`). An edge
//! starts at a node drawn by weight and ends in its block or in a larger community around it (`edges`). Partitions of such
//! a graph resemble those of real graphs: the halo grows with the number of parts. Labels follow the blocks (`labels`),
//! features follow the labels (`features`); both have noise, so that neighbours help and no model is perfect.
//!
//! Every random value is a function of seed and purpose: the same [`Spec`] gives the same bytes for any number of threads
//! and on any platform.

mod blocks;
mod edges;
mod features;
mod labels;
pub mod presets;

use std::path::Path;

pub use presets::{PRESETS, Preset};

use crate::build::MAX_NODES;
use crate::csr::Csr;
use crate::dataset::Dataset;
use crate::dataset::manifest::{Manifest, Metric, Task};
use crate::dataset::write::{self, FeatureLayout, FeatureType, OwnedContents};
use crate::error::{Error, Result};
use crate::import::{SplitRule, SplitSource};
use crate::progress::Progress;
use blocks::Blocks;
use features::Features;
use labels::Classes;

/// Maximum number of blocks of a graph without more classes: enough for a tree deeper than 64 parts.
const MAX_BLOCKS: usize = 256;
/// Least nodes per block, as a multiple of the mean degree.
const ROOM: usize = 6;

/// Parameters of a generated graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Vertices.
    pub nodes: usize,
    /// Exact number of directed edges: even, since every edge is stored both ways.
    pub edges: u64,
    /// Feature columns.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// Several classes per node instead of one.
    pub multi_label: bool,
    /// Fraction of training nodes.
    pub train: f64,
    /// Fraction of validation nodes.
    pub val: f64,
    /// Fraction of edges that may end anywhere in the graph.
    pub mixing: f64,
    /// Fraction of edges that stay inside a community, as a multiple of that of the community twice its size.
    pub nesting: f64,
    /// Separation of classes by features: at 1, about half of the nodes are nearest to their class mean.
    pub signal: f64,
    /// Fraction of labels replaced at random.
    pub label_noise: f64,
    /// Seed of all random values.
    pub seed: u64,
}

/// A generated dataset.
#[derive(Debug, Clone, serde::Serialize)]
pub struct GenerateReport {
    /// Manifest of the new dataset.
    pub manifest: Manifest,
    /// Provenance of the split.
    pub split: String,
}

/// Generates a dataset and writes it to the directory `target`. Replaces an existing dataset only if `overwrite`.
pub fn make(
    spec: &Spec,
    name: &str,
    target: &Path,
    overwrite: bool,
    progress: &dyn Progress,
) -> Result<GenerateReport> {
    write::may_write(target, overwrite)?;
    let store = |contents: OwnedContents| write::write(target, overwrite, &contents.borrowed(), progress);
    let (manifest, split) = draw(spec, name, progress, store)?;
    Ok(GenerateReport { manifest, split })
}

/// Generates a dataset in memory: the same as [`make`] writes.
pub fn make_in_memory(spec: &Spec, name: &str, progress: &dyn Progress) -> Result<Dataset> {
    let store = |contents: OwnedContents| Dataset::from_contents(contents, progress);
    draw(spec, name, progress, store).map(|(dataset, _)| dataset)
}

/// Generates a dataset, and passes it to `store`; returns its result and the provenance of the split.
fn draw<R>(
    spec: &Spec,
    name: &str,
    progress: &dyn Progress,
    store: impl FnOnce(OwnedContents) -> Result<R>,
) -> Result<(R, String)> {
    spec.check()?;
    let blocks = Blocks::new(spec);
    let csr = edges::draw(spec, &blocks, progress)?;
    let classes = Classes::new(spec, &blocks);
    drop(blocks);
    let labels = classes.labels();
    let rule = SplitRule::Fraction { train: spec.train, val: spec.val };
    let source = SplitSource { given: Vec::new(), labels: &labels, nodes: spec.nodes, seed: spec.seed };
    let (splits, split_from) = rule.apply(source)?;
    let stored = store(OwnedContents {
        name: name.into(),
        csr,
        directed: false,
        features: Box::new(Features::new(spec, &classes)),
        feature_type: FeatureType::F32,
        feature_layout: FeatureLayout::Dense,
        metric: match labels.task() {
            Task::SingleLabel => Metric::Accuracy,
            Task::MultiLabel => Metric::MicroF1,
        },
        labels,
        classes: spec.classes,
        class_names: Vec::new(),
        splits,
        ids: None,
        source: spec.command(),
    })?;
    Ok((stored, split_from))
}

/// Generates the graph without features and labels.
pub fn graph(spec: &Spec, progress: &dyn Progress) -> Result<Csr> {
    spec.check()?;
    edges::draw(spec, &Blocks::new(spec), progress)
}

impl Spec {
    /// Refuses impossible parameters, naming the flag.
    fn check(&self) -> Result<()> {
        self.check_sizes()?;
        let share = |flag: &str, x: f64| {
            let problem = || Error::input(format!("{flag} {x}"), "not a fraction between 0 and 1");
            if (0.0..=1.0).contains(&x) { Ok(()) } else { Err(problem()) }
        };
        share("--train", self.train)?;
        share("--val", self.val)?;
        share("--label-noise", self.label_noise)?;
        share("--mixing", self.mixing)?;
        if self.train + self.val > 1.0 {
            let place = format!("--train {} --val {}", self.train, self.val);
            return Err(Error::input(place, "the two fractions add up to more than 1"));
        }
        for (flag, x) in [("--nesting", self.nesting), ("--signal", self.signal)] {
            if !(x.is_finite() && (0.0..=1000.0).contains(&x)) {
                return Err(Error::input(format!("{flag} {x}"), "not a number between 0 and 1000"));
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<()> {
        let least_one = [("--nodes", self.nodes), ("--features", self.features), ("--classes", self.classes)];
        if let Some((flag, _)) = least_one.iter().find(|(_, n)| *n == 0) {
            return Err(Error::input(format!("{flag} 0"), "at least 1 is needed"));
        }
        if self.nodes > MAX_NODES {
            let problem = format!("more than the {MAX_NODES} that ids can number");
            return Err(Error::input(format!("--nodes {}", self.nodes), problem));
        }
        if self.classes > self.nodes {
            let problem = format!("more classes than the {} nodes", self.nodes);
            return Err(Error::input(format!("--classes {}", self.classes), problem));
        }
        let place = || format!("--edges {}", self.edges);
        if self.edges % 2 == 1 {
            return Err(Error::input(place(), "an odd number, but every edge is stored both ways")
                .help("give an even number of directed edges"));
        }
        let most = self.nodes as u64 * (self.nodes as u64 - 1);
        if self.edges > most {
            return Err(Error::input(place(), format!("{} nodes have room for {most}", self.nodes))
                .help("give fewer edges or more nodes"));
        }
        self.check_memory()
    }

    /// Refuses graphs that need more memory than the system can allocate.
    fn check_memory(&self) -> Result<()> {
        let flags = if self.multi_label { self.classes as u128 } else { 0 };
        let bytes = self.nodes as u128 * (64 + flags)
            + self.edges as u128 * 10
            + self.features as u128 * 4 * (self.classes as u128 + 1);
        let fits = usize::try_from(bytes).is_ok_and(|n| Vec::<u8>::new().try_reserve_exact(n).is_ok());
        if fits {
            return Ok(());
        }
        let place = format!("--nodes {} --edges {} --features {}", self.nodes, self.edges, self.features);
        let problem = format!("needs {} GiB of memory, more than there is", bytes >> 30);
        Err(Error::out_of_memory(place, problem).help("make a smaller graph"))
    }

    /// Returns the number of blocks: a power of two if possible, so that the tree is balanced; at least one per class.
    fn blocks(&self) -> usize {
        let ends = (self.edges as usize / self.nodes).max(1);
        let roomy = (self.nodes / (ROOM * ends)).clamp(1, MAX_BLOCKS);
        let power = 1 << roomy.ilog2();
        self.classes.next_power_of_two().max(power).min(self.nodes)
    }

    /// Returns the command that generates the same graph.
    fn command(&self) -> String {
        let mut line = format!("make --nodes {} --edges {}", self.nodes, self.edges);
        line += &format!(" --features {} --classes {}", self.features, self.classes);
        line += &format!(" --train {} --val {}", self.train, self.val);
        line += &format!(" --mixing {} --nesting {}", self.mixing, self.nesting);
        line += &format!(" --signal {} --label-noise {}", self.signal, self.label_noise);
        line += &format!(" --seed {}", self.seed);
        if self.multi_label { line + " --multi-label" } else { line }
    }
}

#[cfg(test)]
mod tests;
