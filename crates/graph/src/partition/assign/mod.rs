//! Assignments of vertices to parts.

mod chunks;
mod import;
mod metis;
mod presampled;
mod stream;
mod weights;

pub use chunks::{chunk_rows, chunks_peak_bytes};
use halograph_kernels::keyed::Key;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::partition::presample::Presample;
use crate::progress::{Progress, Unit};

/// Maximum number of parts.
pub const MAX_PARTS: u32 = 1 << 16;

/// The part of each vertex. Parts may be empty, and there may be more parts than vertices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    parts: u32,
    of: Vec<u32>,
}

impl Assignment {
    /// Creates an assignment: vertex `v` belongs to part `of[v]`, which must be below `parts`.
    pub fn new(parts: u32, of: Vec<u32>) -> Result<Self> {
        check_parts(parts)?;
        match of.iter().position(|&part| part >= parts) {
            None => Ok(Assignment { parts, of }),
            Some(v) => Err(Error::input(
                format!("assignment, vertex {v}"),
                format!("part {} where parts are numbered 0 to {}", of[v], parts - 1),
            )),
        }
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// Returns the part of each vertex.
    pub fn of(&self) -> &[u32] {
        &self.of
    }
}

fn check_parts(parts: u32) -> Result<()> {
    if (1..=MAX_PARTS).contains(&parts) {
        return Ok(());
    }
    Err(Error::input("number of parts", format!("{parts} where 1 to {MAX_PARTS} are possible")))
}

/// How to partition a dataset: everything that determines the assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Number of parts.
    pub parts: u32,
    /// Partitioning method.
    pub method: Method,
    /// What is balanced besides vertices; of no effect for [`Method::Presampled`], which balances work.
    pub balance: Balance,
    /// Seed of all random values.
    pub seed: u64,
}

/// Partitioning method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// METIS k-way: the best partitions; one thread, many times the memory of the graph.
    Metis(Objective),
    /// METIS k-way with weights from presampling, for split-parallel training: least exchange of hidden rows, even work.
    Presampled(Presample),
    /// Streaming: each vertex goes to the part of most of its in-neighbours, in several passes; a few bytes per vertex.
    Stream,
    /// A random part for each vertex, as a baseline.
    Random,
}

/// Objective of METIS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Communication volume: halo rows of all parts.
    Volume,
    /// Edge cut.
    Cut,
}

/// What is balanced besides vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// In-edges: the work of aggregation.
    pub edges: bool,
    /// Training vertices.
    pub train: bool,
}

impl PartitionSpec {
    /// Computes the assignment. Blocks; METIS cannot be cancelled. Equal specs give equal assignments; with METIS only for
    /// the same `rand` of the C library.
    pub fn assign(&self, dataset: &Dataset, progress: &dyn Progress) -> Result<Assignment> {
        check_parts(self.parts)?;
        dataset.check_edges()?;
        if self.parts == 1 {
            return Ok(Assignment { parts: 1, of: vec![0; dataset.graph().nodes()] });
        }
        let of = match &self.method {
            Method::Random => self.random(dataset.graph().nodes()),
            Method::Stream => stream::assign(dataset, self, progress)?,
            Method::Metis(objective) => metis::assign(dataset, self, *objective, progress)?,
            Method::Presampled(presample) => presampled::assign(dataset, self, presample, progress)?,
        };
        Ok(Assignment { parts: self.parts, of })
    }

    fn random(&self, nodes: usize) -> Vec<u32> {
        let key = Key::new(self.seed, "partition random");
        (0..nodes as u64).into_par_iter().map(|v| key.below(v, self.parts.into()) as u32).collect()
    }

    /// Returns the peak memory of [`PartitionSpec::assign`] in bytes, without the mapped dataset.
    pub fn peak_bytes(&self, dataset: &Dataset) -> u64 {
        if self.parts == 1 {
            return 4 * dataset.manifest.nodes;
        }
        let weights = weights::Weights::count(self.balance) as u64;
        match &self.method {
            Method::Presampled(presample) => presampled::peak_bytes(&dataset.manifest, presample),
            Method::Random => 4 * dataset.manifest.nodes,
            Method::Stream => stream::peak_bytes(&dataset.manifest, weights),
            Method::Metis(_) => metis::peak_bytes(&dataset.manifest, weights),
        }
    }
}

/// Provenance of an assignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `metis`, `presampled`, `stream`, `random` or `imported`.
    pub method: String,
    /// Objective of METIS: `volume` or `cut`.
    pub objective: Option<String>,
    /// What was balanced.
    pub balance: Vec<String>,
    /// Seed.
    pub seed: Option<u64>,
    /// The sampling that weighed the graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presample: Option<Presample>,
}

impl Origin {
    /// Creates the provenance of an imported assignment.
    pub fn imported() -> Self {
        Origin {
            method: "imported".into(),
            objective: None,
            balance: Vec::new(),
            seed: None,
            presample: None,
        }
    }
}

impl From<&PartitionSpec> for Origin {
    fn from(spec: &PartitionSpec) -> Self {
        let (method, objective) = match &spec.method {
            Method::Presampled(_) => ("presampled", Some("cut")),
            Method::Metis(Objective::Volume) => ("metis", Some("volume")),
            Method::Metis(Objective::Cut) => ("metis", Some("cut")),
            Method::Stream => ("stream", None),
            Method::Random => ("random", None),
        };
        let presample = match &spec.method {
            Method::Presampled(presample) => Some(presample.clone()),
            _ => None,
        };
        let Balance { edges, train } = spec.balance;
        let balance = match &presample {
            None => [("nodes", true), ("edges", edges), ("train", train)],
            Some(_) => [("nodes", true), ("work", true), ("train", false)],
        };
        Origin {
            method: method.into(),
            objective: objective.map(String::from),
            balance: balance.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.into()).collect(),
            seed: Some(spec.seed),
            presample,
        }
    }
}

/// Returns the assignment of one vertex to each part, for at least as many parts as vertices.
fn one_each(nodes: usize) -> Vec<u32> {
    (0..nodes as u32).collect()
}

/// Reports a stage of unknown length to `progress`.
fn announce(progress: &dyn Progress, stage: &str) -> Result<()> {
    progress.begin(stage, None, Unit::Items);
    progress.tick(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{Toy, communities};
    use crate::progress::Silent;

    fn spec(parts: u32, method: Method) -> PartitionSpec {
        PartitionSpec { parts, method, balance: Balance::default(), seed: 1 }
    }

    const METHODS: [Method; 4] =
        [Method::Metis(Objective::Volume), Method::Metis(Objective::Cut), Method::Stream, Method::Random];

    #[test]
    fn parts_out_of_range_are_refused() {
        let error = Assignment::new(2, vec![0, 2]).unwrap_err().to_string();
        assert!(error.contains("vertex 1") && error.contains("0 to 1"), "{error}");
        assert!(Assignment::new(0, vec![]).is_err() && Assignment::new(MAX_PARTS + 1, vec![]).is_err());
        assert_eq!(Assignment::new(5, vec![4]).unwrap().parts(), 5);
    }

    #[test]
    fn every_method_takes_any_graph_and_any_number_of_parts() {
        let odd = [
            Toy::new(0, &[]),
            Toy::new(1, &[[0, 0]]),
            Toy::new(5, &[]),
            Toy::new(6, &[[0, 1], [1, 2], [3, 3], [5, 0], [0, 5]]),
            Toy::new(40, &(0..39).map(|v| [v, v + 1]).collect::<Vec<_>>()),
            Toy::new(40, &(1..40).map(|v| [0, v]).collect::<Vec<_>>()),
        ];
        for toy in &odd {
            let dataset = toy.dataset();
            for method in METHODS {
                for parts in [1, 2, 3, 7, 8, 39, 40, 1000] {
                    let balance = Balance { edges: parts % 2 == 0, train: parts % 3 == 0 };
                    let found = PartitionSpec { balance, ..spec(parts, method.clone()) }
                        .assign(&dataset, &Silent)
                        .unwrap();
                    assert_eq!((found.of().len(), found.parts()), (toy.nodes(), parts));
                    assert!(found.of().iter().all(|&part| part < parts), "{method:?} {parts}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_parts() {
        let (_folder, dataset) = communities(2000, 20_000);
        for method in METHODS {
            let make =
                |seed| PartitionSpec { seed, ..spec(4, method.clone()) }.assign(&dataset, &Silent).unwrap();
            assert!(make(1) == make(1) && make(1) != make(2), "{method:?}");
        }
    }

    #[test]
    fn metis_and_streaming_cut_less_than_random_and_are_balanced() {
        let (_folder, dataset) = communities(4000, 60_000);
        let graph = dataset.graph();
        let make = |method| spec(4, method).assign(&dataset, &Silent).unwrap();
        let cut = |a: &Assignment| {
            let other = |v: usize| graph.row(v).iter().filter(move |&&u| a.of()[u as usize] != a.of()[v]);
            (0..graph.nodes()).map(|v| other(v).count()).sum::<usize>()
        };
        let chance = cut(&make(Method::Random));
        for method in &METHODS[..3] {
            let found = make(method.clone());
            assert!(cut(&found) * 2 < chance, "{method:?}: {} of {chance}", cut(&found));
            for part in 0..4 {
                let size = found.of().iter().filter(|&&p| p == part).count();
                assert!((900..=1060).contains(&size), "{method:?}: {size}");
            }
        }
    }

    #[test]
    fn edges_and_training_vertices_are_balanced_on_request() {
        let (_folder, dataset) = communities(4000, 60_000);
        let (graph, split) = (dataset.graph(), dataset.split());
        for method in &METHODS[..3] {
            let balance = Balance { edges: true, train: true };
            let found =
                PartitionSpec { balance, ..spec(4, method.clone()) }.assign(&dataset, &Silent).unwrap();
            let (mut edges, mut train) = ([0.0; 4], [0.0; 4]);
            for (v, &part) in found.of().iter().enumerate() {
                edges[part as usize] += graph.degree(v) as f64;
                train[part as usize] += f64::from(split[v] == 1);
            }
            for loads in [edges, train] {
                let (most, sum) = (loads.iter().copied().fold(0.0, f64::max), loads.iter().sum::<f64>());
                assert!(4.0 * most < 1.1 * sum, "{method:?}: {loads:?}");
            }
        }
    }
}
