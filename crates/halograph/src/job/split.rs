//! Comparison of partitions by their expected cost in split-parallel training.

use halograph_graph::error::{Error, Result};
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

/// A presampled partition, beside others.
#[derive(Debug)]
pub struct SplitComparison {
    /// The presampled partition, then the others.
    pub partitions: Vec<ComparedPartition>,
    /// Partitions that were refused, for example because they need more memory than is free.
    pub refused: Vec<(&'static str, Error)>,
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
) -> Result<SplitComparison> {
    compare(dataset, presample, seed, presampled, progress, |spec| {
        let (found, is_new) = assignment(dataset, spec, force, progress)?;
        if is_new {
            cache::store(dataset, spec, &found);
        }
        Ok(found)
    })
}

/// As [`compare_splits`]; `partition` returns the other partitions.
fn compare(
    dataset: &Dataset,
    presample: &Presample,
    seed: u64,
    presampled: &Assignment,
    progress: &dyn Progress,
    partition: impl Fn(&PartitionSpec) -> Result<Assignment>,
) -> Result<SplitComparison> {
    let (mut names, mut others, mut refused) = (vec!["presampled"], Vec::new(), Vec::new());
    for (name, method) in METHODS {
        let balance = Balance { edges: true, train: true };
        let spec = PartitionSpec { parts: presampled.parts(), method, balance, seed: 0 };
        let is_slow = spec.method == Method::Metis(Objective::Volume) && spec.parts > MANY_PARTS;
        if is_slow && cache::load(dataset, &spec).is_none() {
            continue;
        }
        match partition(&spec) {
            Ok(found) => {
                names.push(name);
                others.push(found);
            }
            // The presampled partition is as good without the comparison.
            Err(error @ (Error::Input { .. } | Error::OutOfMemory { .. })) => refused.push((name, error)),
            Err(error) => return Err(error),
        }
    }
    let all: Vec<&Assignment> = std::iter::once(presampled).chain(&others).collect();
    let costs = split_costs(dataset, presample, seed, &all, progress)?;
    let partitions = names.into_iter().zip(costs).map(|(method, cost)| ComparedPartition { method, cost });
    Ok(SplitComparison { partitions: partitions.collect(), refused })
}

#[cfg(test)]
mod tests {
    use halograph_graph::generate::{self, presets};
    use halograph_graph::progress::Silent;
    use halograph_graph::sample::{Fanout, SamplerKind};

    use super::*;

    #[test]
    fn a_refused_partition_is_left_out_of_the_comparison() {
        let temp = tempfile::tempdir().unwrap();
        let spec = generate::Spec { nodes: 200, edges: 1000, ..presets::find("demo").unwrap().spec.clone() };
        generate::make(&spec, "small", temp.path().join("small").as_path(), false, &Silent).unwrap();
        let dataset = Dataset::open(&temp.path().join("small")).unwrap();
        let presample = Presample {
            epochs: 1,
            batch_size: 50,
            sampler: SamplerKind::Neighbor,
            fanouts: vec![Fanout::AtMost(3); 2],
            reads_inputs: true,
            cached_input: false,
            inductive: false,
        };
        let parts = Assignment::new(2, (0..200).map(|v| v % 2).collect()).unwrap();
        let compare = |error: fn() -> Error| {
            compare(&dataset, &presample, 0, &parts, &Silent, |spec| match spec.method {
                Method::Metis(_) => Err(error()),
                _ => Ok(parts.clone()),
            })
        };
        let found = compare(|| Error::out_of_memory("memory", "too little")).unwrap();
        let names: Vec<&str> = found.partitions.iter().map(|partition| partition.method).collect();
        assert_eq!(names, ["presampled", "stream", "random"]);
        let refused: Vec<(&str, String)> =
            found.refused.iter().map(|(name, error)| (*name, error.to_string())).collect();
        let problem = "memory: too little".to_string();
        assert_eq!(refused, [("metis volume", problem.clone()), ("metis cut", problem)]);
        assert!(matches!(compare(|| Error::Cancelled), Err(Error::Cancelled)));
    }
}
