//! The split into training, validation and test nodes.

use std::str::FromStr;

use halograph_kernels::keyed::Key;

use crate::dataset::Subset;
use crate::dataset::write::Labels;
use crate::error::{Error, Result};

/// How the split is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum SplitRule {
    /// The split in the files; without one, 20 + 30 nodes per class (multi-label: 60 % + 20 %).
    #[default]
    Auto,
    /// The split in the files, or an error.
    Given,
    /// Random training and validation nodes of each class; all others are test nodes.
    PerClass {
        /// Training nodes per class.
        train: usize,
        /// Validation nodes per class.
        val: usize,
    },
    /// Random fractions of the labelled nodes; all others are test nodes.
    Fraction {
        /// Fraction of training nodes.
        train: f64,
        /// Fraction of validation nodes.
        val: f64,
    },
}

impl FromStr for SplitRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, numbers) = text.split_once(':').unwrap_or((text, ""));
        let two =
            || numbers.split_once(',').ok_or(format!("{text:?}: two numbers are needed, as in {kind}:20,30"));
        let bad = |_| format!("{text:?}: not a number");
        match (kind, numbers) {
            ("auto", "") => Ok(SplitRule::Auto),
            ("given", "") => Ok(SplitRule::Given),
            ("per-class", "") => Ok(SplitRule::PerClass { train: 20, val: 30 }),
            ("per-class", _) => {
                let (train, val) = two()?;
                let parse = |s: &str| s.trim().parse().map_err(|_| bad(()));
                Ok(SplitRule::PerClass { train: parse(train)?, val: parse(val)? })
            }
            ("fraction", "") => Ok(SplitRule::Fraction { train: 0.6, val: 0.2 }),
            ("fraction", _) => {
                let (train, val) = two()?;
                let parse = |s: &str| s.trim().parse::<f64>().map_err(|_| bad(()));
                let (train, val) = (parse(train)?, parse(val)?);
                if !(train >= 0.0 && val >= 0.0 && train + val <= 1.0) {
                    return Err(format!("{text:?}: fractions must be at least 0 and add up to at most 1"));
                }
                Ok(SplitRule::Fraction { train, val })
            }
            _ => {
                Err(format!("{text:?}: not one of auto, given, per-class[:TRAIN,VAL], fraction[:TRAIN,VAL]"))
            }
        }
    }
}

impl SplitRule {
    /// Returns the split of `nodes` nodes and its provenance.
    pub(crate) fn apply(
        self,
        given: Option<Vec<u8>>,
        labels: &Labels,
        nodes: usize,
        seed: u64,
    ) -> Result<(Vec<u8>, String)> {
        let rule = match (self, &given, labels) {
            (SplitRule::Auto, Some(_), _) => SplitRule::Given,
            (SplitRule::Auto, None, Labels::Single(_)) => SplitRule::PerClass { train: 20, val: 30 },
            (SplitRule::Auto, None, Labels::Multi { .. }) => SplitRule::Fraction { train: 0.6, val: 0.2 },
            (rule, ..) => rule,
        };
        match rule {
            SplitRule::Given | SplitRule::Auto => {
                let split = given.ok_or_else(|| {
                    Error::input("--split given", "the files hold no split")
                        .help("use --split per-class or --split fraction")
                })?;
                check(&split, nodes)?;
                Ok((split, "as given".into()))
            }
            SplitRule::PerClass { train, val } => {
                let Labels::Single(labels) = labels else {
                    return Err(Error::input("--split per-class", "multi-label nodes have no single class")
                        .help("use --split fraction"));
                };
                Ok((per_class(labels, train, val, seed), format!("{train} + {val} per class, seed {seed}")))
            }
            SplitRule::Fraction { train, val } => Ok((
                fraction(labels, nodes, train, val, seed),
                format!("fractions {train} + {val}, seed {seed}"),
            )),
        }
    }
}

fn check(split: &[u8], nodes: usize) -> Result<()> {
    if split.len() != nodes {
        return Err(Error::input("split", format!("{} entries for {nodes} nodes", split.len())));
    }
    match split.iter().position(|&part| part > Subset::Test as u8) {
        None => Ok(()),
        Some(v) => Err(Error::input(format!("split, node {v}"), format!("{} is no subset", split[v]))
            .help("subsets are 0 (none), 1 (train), 2 (validation), 3 (test)")),
    }
}

/// Shuffles nodes by keyed random numbers, so that their order depends on seed and ids only.
/// Returns `nodes` in a random order that depends on the seed only.
fn shuffled(mut nodes: Vec<u32>, seed: u64) -> Vec<u32> {
    let key = Key::new(seed, "split");
    nodes.sort_unstable_by_key(|&v| (key.at(v as u64), v));
    nodes
}

/// Assigns the first `train` nodes of `order` to training, the next `val` to validation, the rest to test.
fn assign(split: &mut [u8], order: &[u32], train: usize, val: usize) {
    for (i, &v) in order.iter().enumerate() {
        let subset = if i < train {
            Subset::Train
        } else if i < train.saturating_add(val) {
            Subset::Val
        } else {
            Subset::Test
        };
        split[v as usize] = subset as u8;
    }
}

fn per_class(labels: &[i64], train: usize, val: usize, seed: u64) -> Vec<u8> {
    let mut split = vec![Subset::None as u8; labels.len()];
    let labelled = (0..labels.len() as u32).filter(|&v| labels[v as usize] >= 0).collect();
    let mut order = shuffled(labelled, seed);
    order.sort_by_key(|&v| labels[v as usize]);
    for class in order.chunk_by(|&a, &b| labels[a as usize] == labels[b as usize]) {
        assign(&mut split, class, train, val);
    }
    split
}

fn fraction(labels: &Labels, nodes: usize, train: f64, val: f64, seed: u64) -> Vec<u8> {
    let labelled = |v: &u32| match labels {
        Labels::Single(labels) => labels[*v as usize] >= 0,
        Labels::Multi { .. } => true,
    };
    let mut split = vec![Subset::None as u8; nodes];
    let order = shuffled((0..nodes as u32).filter(labelled).collect(), seed);
    let share = |x: f64| (x * order.len() as f64).round() as usize;
    assign(&mut split, &order, share(train), share(train + val) - share(train));
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(split: &[u8], part: Subset) -> usize {
        split.iter().filter(|&&p| p == part as u8).count()
    }

    #[test]
    fn rules_parse() {
        assert_eq!("per-class:5,7".parse(), Ok(SplitRule::PerClass { train: 5, val: 7 }));
        assert_eq!("fraction".parse(), Ok(SplitRule::Fraction { train: 0.6, val: 0.2 }));
        for bad in
            ["", "perclass", "per-class:5", "per-class:a,b", "fraction:0.9,0.2", "fraction:-1,0", "given:1,2"]
        {
            assert!(bad.parse::<SplitRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn per_class_takes_a_number_of_each_class_and_skips_unlabelled_nodes() {
        let labels: Vec<i64> = (0..400).map(|v| v % 4 - 1).collect();
        let split = per_class(&labels, 20, 30, 1);
        for class in 0..3 {
            let of = |part| (0..400).filter(|&v| labels[v] == class && split[v] == part as u8).count();
            assert_eq!((of(Subset::Train), of(Subset::Val), of(Subset::Test)), (20, 30, 50));
        }
        assert_eq!(count(&split, Subset::None), 100);
        assert_eq!(split, per_class(&labels, 20, 30, 1));
        assert_ne!(split, per_class(&labels, 20, 30, 2));
    }

    #[test]
    fn small_classes_may_have_fewer_nodes() {
        assert_eq!(per_class(&[0, 0, 0], 2, 5, 0).iter().filter(|&&p| p == 1).count(), 2);
    }

    #[test]
    fn fractions_cover_all_nodes() {
        let split = fraction(&Labels::Multi { classes: 1, flags: vec![0; 10] }, 10, 0.6, 0.2, 3);
        assert_eq!(
            (count(&split, Subset::Train), count(&split, Subset::Val), count(&split, Subset::Test)),
            (6, 2, 2)
        );
    }

    #[test]
    fn a_given_split_is_checked() {
        let labels = Labels::Single(vec![0; 3]);
        assert!(SplitRule::Auto.apply(Some(vec![1, 2, 4]), &labels, 3, 0).is_err());
        assert!(SplitRule::Auto.apply(Some(vec![1, 2]), &labels, 3, 0).is_err());
        assert!(SplitRule::Given.apply(None, &labels, 3, 0).is_err());
        assert_eq!(SplitRule::Auto.apply(Some(vec![1, 2, 3]), &labels, 3, 0).unwrap().1, "as given");
    }
}
