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
    /// Random nodes of each class, by ratios that add up to 1. Multi-label nodes: of all nodes.
    Ratio([f64; 3]),
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
            _ if text.contains(',') => ratio(text).map(SplitRule::Ratio),
            _ => Err(format!(
                "{text:?}: not one of auto, given, TRAIN,VAL,TEST as in 0.6,0.2,0.2, per-class[:TRAIN,VAL], \
                 fraction[:TRAIN,VAL]"
            )),
        }
    }
}

/// How far the sum of ratios may be from 1: three thirds with three digits are accepted.
const RATIO_TOLERANCE: f64 = 2e-3;

/// Parses `TRAIN,VAL,TEST`; returns numbers that add up to 1.
fn ratio(text: &str) -> Result<[f64; 3], String> {
    let numbers: Vec<f64> = text
        .split(',')
        .map(|number| number.trim().parse().map_err(|_| format!("{text:?}: {number:?} is not a number")))
        .collect::<Result<_, _>>()?;
    let Ok(ratios) = <[f64; 3]>::try_from(numbers) else {
        return Err(format!("{text:?}: three ratios are needed, as in 0.6,0.2,0.2"));
    };
    if let Some(bad) = ratios.iter().find(|x| !(0.0..=1.0).contains(*x)) {
        return Err(format!("{text:?}: {bad} is not a ratio from 0 to 1"));
    }
    let sum: f64 = ratios.iter().sum();
    if (sum - 1.0).abs() > RATIO_TOLERANCE {
        return Err(format!("{text:?}: the ratios add up to {sum}, not to 1"));
    }
    Ok(ratios.map(|x| x / sum))
}

/// What a split is made of.
pub(crate) struct SplitSource<'a> {
    /// The splits in the files, perhaps none.
    pub given: Vec<Vec<u8>>,
    pub labels: &'a Labels,
    pub nodes: usize,
    pub seed: u64,
}

impl SplitRule {
    /// Returns whether the rule draws a split even if none is given.
    pub(crate) fn draws(self) -> bool {
        !matches!(self, SplitRule::Given)
    }

    /// Returns the splits, at least one, and their provenance.
    pub(crate) fn apply(self, source: SplitSource) -> Result<(Vec<Vec<u8>>, String)> {
        let SplitSource { given, labels, nodes, seed } = source;
        let rule = match (self, given.is_empty(), labels) {
            (SplitRule::Auto, false, _) => SplitRule::Given,
            (SplitRule::Auto, true, Labels::Single(_)) => SplitRule::PerClass { train: 20, val: 30 },
            (SplitRule::Auto, true, Labels::Multi { .. }) => SplitRule::Fraction { train: 0.6, val: 0.2 },
            (rule, ..) => rule,
        };
        if !matches!(self, SplitRule::Auto | SplitRule::Given) && !super::has_labels(labels) {
            return Err(Error::input(
                "--split",
                "no node has a label, and only nodes with a label are split",
            )
            .help("leave --split out: a dataset without labels can be predicted on"));
        }
        let (split, from) = match rule {
            SplitRule::Given | SplitRule::Auto => return as_given(given, nodes),
            SplitRule::PerClass { train, val } => {
                let Labels::Single(labels) = labels else {
                    return Err(Error::input("--split per-class", "multi-label nodes have no single class")
                        .help("use --split fraction"));
                };
                (per_class(labels, train, val, seed), format!("{train} + {val} per class, seed {seed}"))
            }
            SplitRule::Ratio(ratios) => {
                let [train, val, test] = ratios;
                let (split, how) = match labels {
                    Labels::Single(labels) => (stratified(labels, ratios, seed), "stratified by class, "),
                    Labels::Multi { .. } => (fraction(labels, nodes, train, val, seed), ""),
                };
                (split, format!("ratios {train:.3}, {val:.3}, {test:.3}, {how}seed {seed}"))
            }
            SplitRule::Fraction { train, val } => {
                (fraction(labels, nodes, train, val, seed), format!("fractions {train} + {val}, seed {seed}"))
            }
        };
        Ok((vec![split], from))
    }
}

/// Returns the splits of the files.
fn as_given(given: Vec<Vec<u8>>, nodes: usize) -> Result<(Vec<Vec<u8>>, String)> {
    given.iter().try_for_each(|split| check(split, nodes))?;
    match given.len() {
        0 => {
            let problem = "the files hold no split";
            Err(Error::input("--split given", problem).help("use --split 0.6,0.2,0.2 to draw one"))
        }
        1 => Ok((given, "as given".into())),
        count => Ok((given, format!("as given, {count} splits"))),
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

/// Returns `nodes` in a random order that depends on seed and ids only.
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

/// Splits each class by `ratios`. A class with a node has a training node, unless there is to be none at all.
fn stratified(labels: &[i64], ratios: [f64; 3], seed: u64) -> Vec<u8> {
    let mut split = vec![Subset::None as u8; labels.len()];
    let labelled = (0..labels.len() as u32).filter(|&v| labels[v as usize] >= 0).collect();
    let mut order = shuffled(labelled, seed);
    order.sort_by_key(|&v| labels[v as usize]);
    for class in order.chunk_by(|&a, &b| labels[a as usize] == labels[b as usize]) {
        let share = |x: f64| (x * class.len() as f64).round() as usize;
        let train = share(ratios[0]).max(usize::from(ratios[0] > 0.0));
        let val = share(ratios[0] + ratios[1]).saturating_sub(train);
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

    fn apply(rule: SplitRule, given: Vec<Vec<u8>>, labels: &Labels) -> Result<(Vec<Vec<u8>>, String)> {
        rule.apply(SplitSource { given, labels, nodes: 3, seed: 0 })
    }

    #[test]
    fn ratios_add_up_to_one() {
        assert_eq!("0.5, 0.25,0.25".parse(), Ok(SplitRule::Ratio([0.5, 0.25, 0.25])));
        let Ok(SplitRule::Ratio(thirds)) = "0.333,0.333,0.333".parse() else { panic!("refused") };
        assert!((thirds.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (bad, named) in [
            ("0.6,0.2", "three ratios"),
            ("0.6,0.2,0.1,0.1", "three ratios"),
            ("0.6,0.2,0.1", "add up to 0.9"),
            ("1.2,-0.1,-0.1", "1.2 is not a ratio"),
            ("-0.1,0.6,0.5", "-0.1 is not a ratio"),
            ("NaN,0.5,0.5", "NaN is not a ratio"),
            ("a,0.5,0.5", "\"a\" is not a number"),
        ] {
            let error = bad.parse::<SplitRule>().unwrap_err();
            assert!(error.contains(named), "{bad}: {error}");
        }
    }

    #[test]
    fn ratios_hold_in_every_class() {
        let labels: Vec<i64> =
            (0..1111).map(|v| if v % 11 == 0 { -1 } else { i64::from(v % 10 == 1) }).collect();
        let split = stratified(&labels, [0.6, 0.2, 0.2], 5);
        for class in [0, 1] {
            let of = |part| (0..1111).filter(|&v| labels[v] == class && split[v] == part as u8).count();
            let all = labels.iter().filter(|&&label| label == class).count() as f64;
            let shares = [Subset::Train, Subset::Val, Subset::Test].map(|part| of(part) as f64 / all);
            for (share, wanted) in shares.iter().zip([0.6, 0.2, 0.2]) {
                assert!((share - wanted).abs() < 1.0 / all, "class {class}: {shares:?}");
            }
        }
        assert!((0..1111).all(|v| (split[v] == 0) == (labels[v] < 0)));
        assert_eq!(split, stratified(&labels, [0.6, 0.2, 0.2], 5));
        assert_ne!(split, stratified(&labels, [0.6, 0.2, 0.2], 6));
    }

    #[test]
    fn rare_classes_are_trained_on() {
        let split = stratified(&[0, 1, 1], [0.2, 0.4, 0.4], 0);
        assert_eq!((split[0], count(&split, Subset::Train)), (Subset::Train as u8, 2));
        let none = stratified(&[0, 1, 1], [0.0, 0.0, 1.0], 0);
        assert_eq!(count(&none, Subset::Test), 3);
    }

    #[test]
    fn nodes_without_labels_are_not_split() {
        let labels = Labels::Single(vec![-1; 3]);
        let error = apply(SplitRule::Ratio([1.0, 0.0, 0.0]), Vec::new(), &labels).unwrap_err().to_string();
        assert!(error.contains("no node has a label"), "{error}");
        assert_eq!(apply(SplitRule::Auto, Vec::new(), &labels).unwrap().0, [[0, 0, 0]]);
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
        assert!(apply(SplitRule::Auto, vec![vec![1, 2, 4]], &labels).is_err());
        assert!(apply(SplitRule::Auto, vec![vec![1, 2]], &labels).is_err());
        assert!(apply(SplitRule::Given, Vec::new(), &labels).is_err());
        assert_eq!(apply(SplitRule::Auto, vec![vec![1, 2, 3]], &labels).unwrap().1, "as given");
        let several = vec![vec![1, 2, 3], vec![3, 2, 1]];
        let (splits, from) = apply(SplitRule::Auto, several.clone(), &labels).unwrap();
        assert_eq!((splits, from.as_str()), (several, "as given, 2 splits"));
    }
}
