//! Which part every vertex belongs to.

mod import;
mod metis;
mod stream;
mod weights;

use halograph_kernels::keyed::Key;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};

/// Most parts a graph can be cut into.
pub const MAX_PARTS: u32 = 1 << 16;

/// The part of each vertex. Parts may be empty, and more than there are vertices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    parts: u32,
    of: Vec<u32>,
}

impl Assignment {
    /// Vertex `v` belongs to part `of[v]` of `parts`.
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

    /// Number of parts.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The part of each vertex.
    pub fn of(&self) -> &[u32] {
        &self.of
    }
}

fn check_parts(parts: u32) -> Result<()> {
    if (1..=MAX_PARTS).contains(&parts) {
        return Ok(());
    }
    Err(Error::input("parts", format!("{parts} where 1 to {MAX_PARTS} are possible")))
}

/// Everything that decides an assignment of a dataset's vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionSpec {
    /// Number of parts.
    pub parts: u32,
    /// How they are found.
    pub method: Method,
    /// What they shall have equally much of.
    pub balance: Balance,
    /// Seed of everything random.
    pub seed: u64,
}

/// How parts are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// METIS k-way: the best cuts, one thread, many times the memory of the graph.
    Metis(Objective),
    /// Vertices placed one by one where most of their in-neighbours are, in several passes; a few bytes a vertex.
    Stream,
    /// A part at random for each vertex. What the others are measured against.
    Random,
}

/// What METIS keeps small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Rows that travel: for each vertex, other parts that hold a neighbour of it.
    Volume,
    /// Edges between parts.
    Cut,
}

/// What parts have equally much of, besides vertices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// In-edges: the work of aggregation.
    pub edges: bool,
    /// Training vertices.
    pub train: bool,
}

impl PartitionSpec {
    /// Finds the assignment. Equal specs give equal assignments, METIS as far as the C library's `rand` is the same.
    pub fn assign(&self, dataset: &Dataset, progress: &dyn Progress) -> Result<Assignment> {
        check_parts(self.parts)?;
        dataset.check_edges()?;
        let of = match self.method {
            Method::Random => self.random(dataset.graph().nodes()),
            Method::Stream => stream::assign(dataset, self, progress)?,
            Method::Metis(objective) => metis::assign(dataset, self, objective, progress)?,
        };
        Ok(Assignment { parts: self.parts, of })
    }

    fn random(&self, nodes: usize) -> Vec<u32> {
        let key = Key::new(self.seed, "partition random");
        (0..nodes as u64).into_par_iter().map(|v| key.below(v, self.parts.into()) as u32).collect()
    }

    /// Most bytes that [`PartitionSpec::assign`] will take at once, the mapped dataset not counted.
    pub fn peak_bytes(&self, dataset: &Dataset) -> u64 {
        let weights = weights::Weights::count(self.balance) as u64;
        match self.method {
            Method::Random => 4 * dataset.manifest.nodes,
            Method::Stream => stream::peak_bytes(&dataset.manifest, weights),
            Method::Metis(_) => metis::peak_bytes(&dataset.manifest, weights),
        }
    }
}

/// Where an assignment came from, for people and for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `metis`, `stream`, `random` or `imported`.
    pub method: String,
    /// `volume` or `cut`, of METIS.
    pub objective: Option<String>,
    /// What parts were to have equally much of.
    pub balance: Vec<String>,
    /// Seed.
    pub seed: Option<u64>,
}

impl Origin {
    /// An assignment that somebody else made.
    pub fn imported() -> Self {
        Origin { method: "imported".into(), objective: None, balance: Vec::new(), seed: None }
    }
}

impl From<&PartitionSpec> for Origin {
    fn from(spec: &PartitionSpec) -> Self {
        let (method, objective) = match spec.method {
            Method::Metis(Objective::Volume) => ("metis", Some("volume")),
            Method::Metis(Objective::Cut) => ("metis", Some("cut")),
            Method::Stream => ("stream", None),
            Method::Random => ("random", None),
        };
        let Balance { edges, train } = spec.balance;
        let balance = [("nodes", true), ("edges", edges), ("train", train)];
        Origin {
            method: method.into(),
            objective: objective.map(String::from),
            balance: balance.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.into()).collect(),
            seed: Some(spec.seed),
        }
    }
}

/// One vertex a part, as long as there are any: what is left to do with more parts than vertices.
fn one_each(nodes: usize) -> Vec<u32> {
    (0..nodes as u32).collect()
}

/// Tells `progress` of a stage whose length nobody knows.
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
    fn parts_that_do_not_exist_are_refused() {
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
                    let found =
                        PartitionSpec { balance, ..spec(parts, method) }.assign(&dataset, &Silent).unwrap();
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
            let make = |seed| PartitionSpec { seed, ..spec(4, method) }.assign(&dataset, &Silent).unwrap();
            assert!(make(1) == make(1) && make(1) != make(2), "{method:?}");
        }
    }

    #[test]
    fn searching_beats_chance_and_keeps_balance() {
        let (_folder, dataset) = communities(4000, 60_000);
        let graph = dataset.graph();
        let make = |method| spec(4, method).assign(&dataset, &Silent).unwrap();
        let cut = |a: &Assignment| {
            let other = |v: usize| graph.row(v).iter().filter(move |&&u| a.of()[u as usize] != a.of()[v]);
            (0..graph.nodes()).map(|v| other(v).count()).sum::<usize>()
        };
        let chance = cut(&make(Method::Random));
        for method in &METHODS[..3] {
            let found = make(*method);
            assert!(cut(&found) * 2 < chance, "{method:?}: {} of {chance}", cut(&found));
            for part in 0..4 {
                let size = found.of().iter().filter(|&&p| p == part).count();
                assert!((900..=1060).contains(&size), "{method:?}: {size}");
            }
        }
    }

    #[test]
    fn what_is_asked_for_is_balanced() {
        let (_folder, dataset) = communities(4000, 60_000);
        let (graph, split) = (dataset.graph(), dataset.split());
        for method in &METHODS[..3] {
            let balance = Balance { edges: true, train: true };
            let found = PartitionSpec { balance, ..spec(4, *method) }.assign(&dataset, &Silent).unwrap();
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
