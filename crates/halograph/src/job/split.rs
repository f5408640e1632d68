//! Comparison of partitions by their expected cost in split-parallel training.

use halograph_graph::error::Result;
use halograph_graph::partition::{
    Assignment, Balance, Method, Objective, PartitionSpec, Presample, SplitCost, cache, split_costs,
};
use halograph_graph::{Dataset, Progress};
use serde::Serialize;

use super::prepare::assignment;

/// With more parts, METIS takes long for the communication volume with several balanced quantities.
const MANY_PARTS: u32 = 16;

/// Partitions without presampling.
const METHODS: [(&str, Method); 4] = [
    ("metis volume", Method::Metis(Objective::Volume)),
    ("metis cut", Method::Metis(Objective::Cut)),
    ("stream", Method::Stream),
    ("random", Method::Random),
];

/// A partition and its expected cost.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedPartition {
    /// How it was computed.
    pub method: &'static str,
    /// Its cost.
    #[serde(flatten)]
    pub cost: SplitCost,
}

/// Returns the cost of the presampled assignment `presampled`, and of partitions without presampling into as many parts, as
/// strategy `minibatch` uses them. Stored ones are taken, others are computed and stored. With many parts, METIS is not run
/// for the communication volume. Blocks.
pub fn compare_splits(
    dataset: &Dataset,
    presample: &Presample,
    seed: u64,
    presampled: &Assignment,
    force: bool,
    progress: &dyn Progress,
) -> Result<Vec<ComparedPartition>> {
    let mut others = Vec::new();
    for (name, method) in METHODS {
        let balance = Balance { edges: true, train: true };
        let spec = PartitionSpec { parts: presampled.parts(), method, balance, seed: 0 };
        let is_slow = spec.method == Method::Metis(Objective::Volume) && spec.parts > MANY_PARTS;
        if is_slow && cache::load(dataset, &spec).is_none() {
            continue;
        }
        let (found, is_new) = assignment(dataset, &spec, force, progress)?;
        if is_new {
            cache::store(dataset, &spec, &found);
        }
        others.push((name, found));
    }
    let all: Vec<&Assignment> = std::iter::once(presampled).chain(others.iter().map(|(_, a)| a)).collect();
    let costs = split_costs(dataset, presample, seed, &all, progress)?;
    let methods = std::iter::once("presampled").chain(others.iter().map(|(name, _)| *name));
    Ok(methods.zip(costs).map(|(method, cost)| ComparedPartition { method, cost }).collect())
}
