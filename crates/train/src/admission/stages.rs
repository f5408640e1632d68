//! Memory of ranks that compute some stages of the model, chunk by chunk.
//!
//! The dry runs are of the whole model in one process, on all rows of a part. To that are added stores, rows handed over
//! between groups, chunks of features, and blocks. One rank of several hosts has the share of its stages, by columns.

use std::ops::Range;

use halograph_graph::dataset::Manifest;
use halograph_graph::partition::PartitionInfo;
use halograph_graph::partition::assign::chunks_peak_bytes;
use halograph_nn::model::{Kind, StageMessages, StageSize};

use super::bound::{Least, WeightBytes, number_bytes};
use super::dry_run::DryRuns;
use super::shape::Shape;
use super::{HaloBytes, OWNED, PartSize, ROW, THREAD, graph_bytes};
use crate::config::Config;
use crate::pool::threads;
use crate::strategy::chunks::{split, stage_costs};

/// Bytes of a halo row of a chunk: id, degree, stored row, number, row start of the transpose.
const CHUNK_HALO: u64 = 24;

/// Matrices of the size of its output that a stage keeps for the backward, at least.
const KEPT_MATRICES: u64 = 1;

/// The stages of a model and the rows of a part.
pub(super) struct Stages<'a> {
    config: &'a Config,
    dataset: &'a Manifest,
    shape: &'a Shape,
    part: PartSize,
    messages: Vec<StageMessages>,
    sizes: Vec<StageSize>,
    groups: Vec<Range<usize>>,
    /// Bytes of a number.
    number: u64,
    /// Chunks of the part.
    chunks: u64,
}

impl<'a> Stages<'a> {
    pub fn new(part: &PartSize, whole: &'a PartitionInfo, shape: &'a Shape, config: &'a Config) -> Self {
        let [inputs, outputs] = [whole.dataset.features, whole.dataset.classes].map(|n| n as usize);
        Stages {
            config,
            dataset: &whole.dataset,
            shape,
            part: *part,
            messages: config.model.messages(inputs, outputs),
            sizes: config.model.stage_sizes(inputs, outputs),
            groups: split(&stage_costs(&config.model, &whole.dataset), config.stage_groups()),
            number: number_bytes(config).into(),
            chunks: (config.chunks() / config.parts()) as u64,
        }
    }

    /// Returns the peak bytes of the ranks of all groups of the part in one process.
    pub fn all_groups(&self, runs: &DryRuns, halo: HaloBytes) -> u64 {
        let groups = self.groups.len() as u64;
        let steps = runs.at(self.part.owned, halo.times(self.part.halo)) + self.chunked_features();
        let own = |group: &Range<usize>| self.stores(group) + self.handed_over(group);
        let dropped: u64 = self.groups.iter().map(|group| self.dropped(group)).sum();
        let steps = steps.saturating_sub(dropped);
        let structure = groups * (self.structure() + threads(&self.config.train) as u64 * THREAD);
        let built = groups * self.weights(&(0..self.sizes.len())).built();
        let setup = structure + self.chunking() + built;
        (steps + structure + self.groups.iter().map(own).sum::<u64>()).max(setup)
    }

    /// Returns the peak bytes of the rank of a group, in a process of its own.
    pub fn group(&self, group: usize, runs: &DryRuns, halo: HaloBytes) -> u64 {
        let group = &self.groups[group];
        let features = self.part.owned * self.shape.feature_bytes(self.number);
        let steps = runs.at(self.part.owned, halo.times(self.part.halo));
        let columns = |stages: &[StageSize]| stages.iter().map(|size| size.outputs as u64).sum::<u64>();
        let share = columns(&self.sizes[group.clone()]) as f64 / columns(&self.sizes).max(1) as f64;
        let whole = self.weights(&(0..self.sizes.len()));
        let activations = steps.saturating_sub(features + whole.training()) as f64 * share;
        let first = if group.start == 0 { features + self.chunked_features() } else { 0 };
        let own =
            self.weights(group).training() + (activations as u64).saturating_sub(self.dropped(group)) + first;
        let structure = self.structure() + threads(&self.config.train) as u64 * THREAD;
        structure + (own + self.stores(group) + self.handed_over(group)).max(self.chunking() + whole.built())
    }

    /// Returns what ranks of these groups need at least: their weights and activations. Before training, each builds the whole
    /// model.
    pub fn least(&self, groups: impl Iterator<Item = usize>) -> Least {
        let built = self.weights(&(0..self.sizes.len())).built();
        let add = |(own, all): (Least, u64), group: usize| {
            let group = &self.groups[group];
            let one = Least::new(self.weights(group), self.least_activations(group));
            (own.plus(one), all.saturating_add(built))
        };
        let (own, built) = groups.fold(Default::default(), add);
        Least { bytes: own.bytes.max(built), ..own }
    }

    /// Returns what the ranks of all groups need at least.
    pub fn least_of_all(&self) -> Least {
        self.least(0..self.groups.len())
    }

    fn weights(&self, stages: &Range<usize>) -> WeightBytes {
        let parameters = self.sizes[stages.clone()].iter().map(|size| size.parameters as u128).sum();
        WeightBytes::of_parameters(parameters, self.config)
    }

    /// One matrix of every hidden layer of these stages, of the rows that the loss needs.
    fn least_activations(&self, stages: &Range<usize>) -> u64 {
        let row = self.config.model.hidden as u64 * self.number;
        let hops =
            |stage: usize| self.messages[stage + 1..].iter().filter(|messages| messages.width > 0).count();
        let rows =
            |stage: usize| self.shape.nodes_within(if self.config.data.inductive { 0 } else { hops(stage) });
        let hidden = stages.start..stages.end.min(self.sizes.len() - 1);
        hidden.map(|stage| row.saturating_mul(rows(stage))).fold(0, u64::saturating_add)
    }

    /// Cutting the part into chunks.
    fn chunking(&self) -> u64 {
        if self.chunks == 1 { 0 } else { chunks_peak_bytes(self.part.owned, self.part.edges) }
    }

    /// Features of all chunks, which are copied for the step.
    fn chunked_features(&self) -> u64 {
        let aggregate = if self.messages[0].is_static { self.number * self.shape.features as u64 } else { 0 };
        match self.chunks {
            1 => 0,
            _ => self.part.owned * (self.shape.feature_bytes(self.number) + aggregate),
        }
    }

    /// Stored rows of the stages of a group, their versions and gradients, and the halo rows of one chunk.
    fn stores(&self, group: &Range<usize>) -> u64 {
        if self.chunks == 1 {
            return 0;
        }
        let has_two = self.config.layers.history_epochs > 1 || self.config.recomputes();
        let versions = if has_two { 2 } else { 1 };
        let rows = self.part.owned + self.part.halo;
        let stored = |messages: &StageMessages| match messages {
            StageMessages { width: 0, .. } | StageMessages { is_static: true, .. } => 0,
            StageMessages { width, has_gradient, .. } => {
                rows * *width as u64 * (versions + u64::from(*has_gradient))
            }
        };
        let messages = &self.messages[group.clone()];
        let widest = messages.iter().map(|messages| messages.width as u64).max().unwrap_or(0);
        // Read, and their gradients; attention keeps what it has read until the backward.
        let halo = match self.config.model.kind {
            Kind::Gat => {
                self.chunk_halo() * messages.iter().map(|messages| messages.width as u64).sum::<u64>()
            }
            _ => 2 * rows * widest,
        };
        self.number * (messages.iter().map(stored).sum::<u64>() + halo)
    }

    /// Activations of the stages of a group that are computed again, at least: beyond the budget and one chunk.
    fn dropped(&self, group: &Range<usize>) -> u64 {
        let Some(budget) = self.config.layers.activation_memory.filter(|_| self.config.recomputes()) else {
            return 0;
        };
        let per_step = self.config.chunks_per_step() as u64;
        let columns: u64 = self.sizes[group.clone()].iter().map(|size| size.outputs as u64).sum();
        let computed = (self.shape.train * self.part.owned as f64) as u64;
        // Of a chunk of the step, the activations of the others; METIS makes chunks of about one size.
        let chunk = KEPT_MATRICES * computed * columns * self.number / self.chunks;
        (chunk * (per_step - 1)).saturating_sub(budget)
    }

    /// Halo rows of all chunks, at most.
    fn chunk_halo(&self) -> u64 {
        let rows = self.part.owned + self.part.halo;
        ((self.chunks - 1) * self.part.owned + self.part.halo).min(self.part.edges).max(rows)
    }

    /// Rows received from the group before and their gradients, each as a message and as a matrix.
    fn handed_over(&self, group: &Range<usize>) -> u64 {
        let Some(before) = group.start.checked_sub(1) else { return 0 };
        let initial = self.sizes[..before].iter().find(|size| size.is_initial);
        let width = self.sizes[before].outputs + initial.map_or(0, |size| size.outputs);
        3 * self.part.owned * width as u64 * self.number
    }

    /// Blocks: those of chunks with transposes for each level of rows, and the whole one for evaluation.
    fn structure(&self) -> u64 {
        let &PartSize { owned, halo, edges } = &self.part;
        let levels = match self.config.data.inductive {
            true => 1.0,
            false => {
                1.0 + self.shape.within[..self.shape.within.len() - 1]
                    .iter()
                    .filter(|&&s| s < 0.97)
                    .sum::<f64>()
            }
        };
        let graphs = if self.config.data.inductive { 3.0 } else { 1.0 };
        let copies = 1.0 + graphs + 2.0 * levels;
        let chunks = if self.chunks == 1 { 0 } else { CHUNK_HALO * self.chunk_halo() };
        let (edges, rows) = ((copies * edges as f64) as u64, 4 * (owned + halo) + chunks / CHUNK_HALO);
        let graphs = graph_bytes(self.config, self.dataset, edges, rows);
        2 * ROW * (owned + halo) + 2 * OWNED * owned + graphs + chunks
    }
}
