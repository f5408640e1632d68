//! The batches of epochs, sampled.

use std::ops::Range;

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::Presample;
use crate::block::Block;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::partition::layout::{Subgraph, training};
use crate::progress::{Progress, Unit};
use crate::sample::{Neighbors, Sample, SampleSpec, Sampler};

/// Samples the batches of epochs. Rows of its samples are vertices.
pub(in crate::partition) struct Batches<'d> {
    graph: Block<'d>,
    training: Vec<u32>,
    spec: SampleSpec,
    batch_size: usize,
    key: Key,
}

impl<'d> Batches<'d> {
    /// Lists the training vertices of `dataset`. Exchanged hops are sampled; the edges of a last hop that reads input rows
    /// follow from degrees. Copies the edges of the training graph if training is inductive.
    pub fn new(dataset: &'d Dataset, presample: &Presample, seed: u64) -> Self {
        Batches {
            graph: if presample.inductive { training_graph(dataset) } else { Block::whole(dataset.graph()) },
            training: training(dataset),
            spec: SampleSpec { kind: presample.sampler, fanouts: presample.exchanged().to_vec() },
            batch_size: usize::try_from(presample.batch_size).unwrap_or(usize::MAX).max(1),
            key: Key::new(seed, "presample"),
        }
    }

    /// Returns the graph that is sampled.
    pub fn graph(&self) -> &Block<'d> {
        &self.graph
    }

    /// Returns the number of batches of an epoch; the last one may be short.
    pub fn per_epoch(&self) -> usize {
        self.training.len().div_ceil(self.batch_size)
    }

    /// Samples the batches of `epochs` in parallel. Calls `visit` with each; returns the states that `start` creates and
    /// `visit` changes, in no particular order. Blocks; can be cancelled.
    pub fn for_each<S: Send>(
        &self,
        epochs: Range<u64>,
        progress: &dyn Progress,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, &Sample) + Sync,
    ) -> Result<Vec<S>> {
        let (neighbors, steps) = (Neighbors::of(&self.graph), self.per_epoch());
        progress.begin("sampling", Some((epochs.end - epochs.start) * steps as u64), Unit::Items);
        // A sampler holds several bytes per vertex: one for each thread, not for each batch.
        let workers = rayon::current_num_threads().min(steps);
        let mut states = Vec::new();
        for epoch in epochs {
            let key = self.key.with(epoch);
            let shuffled = self.shuffled(key);
            let batches: Vec<&[u32]> = shuffled.chunks(self.batch_size).collect();
            let work = |worker: usize| {
                let (mut sampler, mut sample) = (Sampler::new(&neighbors, &self.spec), Sample::default());
                let mut state = start();
                for step in (worker..steps).step_by(workers) {
                    sampler.sample(key.with(step as u64), batches[step], &mut sample);
                    visit(&mut state, &sample);
                    progress.tick(1)?;
                }
                Ok(state)
            };
            states.extend((0..workers).into_par_iter().map(work).collect::<Result<Vec<S>>>()?);
        }
        Ok(states)
    }

    /// Returns the training vertices in the order of an epoch.
    fn shuffled(&self, key: Key) -> Vec<u32> {
        let mut order = self.training.clone();
        for last in (1..order.len()).rev() {
            order.swap(last, key.below(last as u64, last as u64 + 1) as usize);
        }
        order
    }
}

/// Returns the edges between training vertices; row `v` is vertex `v`.
fn training_graph(dataset: &Dataset) -> Block<'static> {
    let (graph, split) = (dataset.graph(), dataset.split());
    let holds = |v: u32| Subgraph::Train.holds(split[v as usize]);
    let (mut indptr, mut indices, mut degrees) = (vec![0], Vec::new(), Vec::new());
    for v in 0..graph.nodes() as u32 {
        let first = indices.len();
        if holds(v) {
            indices.extend(graph.row(v as usize).iter().copied().filter(|&u| holds(u)));
        }
        degrees.push(indices[first..].iter().filter(|&&u| u != v).count() as u32);
        indptr.push(indices.len() as u64);
    }
    Block::new(indptr, indices, 0..graph.nodes(), degrees, None)
}
