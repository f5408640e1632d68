//! Counts of predictions by class, and the scores that follow from them, as scikit-learn defines them.
//!
//! | score | |
//! |---|---|
//! | precision | true positives / predicted |
//! | recall | true positives / support |
//! | F1 | 2 · true positives / (predicted + support) |
//! | macro-F1 | mean F1 over classes that are true or predicted in some row; multi-label: over all classes |
//! | micro-F1 | F1 of the counts summed over classes; single-label: accuracy |
//! | balanced accuracy | mean recall over classes with support; single-label only |
//!
//! A ratio without anything to count is 0 (`zero_division=0`).

use halograph_graph::dataset::Metric;
use halograph_kernels::Real;
use serde::Serialize;

use super::{Targets, check_targets, largest, ratio};
use crate::matrix::Matrix;

/// Largest number of classes with a confusion matrix.
pub const MAX_CONFUSION: usize = 100;
/// Largest number of classes whose scores are listed.
pub const MAX_LISTED: usize = 1000;

/// Numbers of a class: true positives, predicted rows, true rows.
const NUMBERS: usize = 3;

/// Counts of the predictions for a list of rows, by class. Those of parts of the rows can be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassCounts {
    classes: usize,
    is_single: bool,
    has_confusion: bool,
    /// Number of rows; [`NUMBERS`] per class; the confusion matrix, a row for each true class.
    numbers: Vec<u64>,
}

impl ClassCounts {
    /// Returns counts of no rows. `is_single`: one class a row. `confusion`: whether to count pairs of classes; never for
    /// multi-label data and for more than [`MAX_CONFUSION`] classes.
    pub fn none(classes: usize, is_single: bool, confusion: bool) -> Self {
        let has_confusion = confusion && is_single && classes <= MAX_CONFUSION;
        let pairs = if has_confusion { classes * classes } else { 0 };
        ClassCounts { classes, is_single, has_confusion, numbers: vec![0; 1 + NUMBERS * classes + pairs] }
    }

    /// Counts the predictions for the listed `rows` of `logits`, given their `targets` in the same order.
    ///
    /// # Panics
    /// If the number of targets does not match the rows (and classes), or a row is not in `logits`.
    pub fn of<T: Real>(logits: &Matrix<T>, rows: &[u32], targets: Targets, confusion: bool) -> Self {
        check_targets(logits, rows, targets);
        let width = logits.cols();
        let mut counts = Self::none(width, matches!(targets, Targets::Single(_)), confusion);
        for (at, &row) in rows.iter().enumerate() {
            let logits = logits.run(row as usize..row as usize + 1);
            match targets {
                Targets::Single(classes) => counts.add_row(classes[at] as usize, largest(logits)),
                Targets::Multi(flags) => counts.add_flags(&flags[at * width..][..width], logits),
            }
        }
        counts
    }

    fn add_row(&mut self, truth: usize, predicted: usize) {
        self.numbers[0] += 1;
        self.add(predicted, truth == predicted, true, truth == predicted);
        if truth != predicted {
            self.add(truth, false, false, true);
        }
        if self.has_confusion {
            self.numbers[1 + (NUMBERS + truth) * self.classes + predicted] += 1;
        }
    }

    fn add_flags<T: Real>(&mut self, flags: &[u8], logits: &[T]) {
        self.numbers[0] += 1;
        for (class, (&z, &y)) in logits.iter().zip(flags).enumerate() {
            let (is_predicted, is_true) = (z > T::zero(), y != 0);
            self.add(class, is_predicted && is_true, is_predicted, is_true);
        }
    }

    fn add(&mut self, class: usize, is_hit: bool, is_predicted: bool, is_true: bool) {
        let numbers = self.numbers[1 + NUMBERS * class..].iter_mut();
        numbers.zip([is_hit, is_predicted, is_true]).for_each(|(number, is)| *number += u64::from(is));
    }

    /// Returns the numbers to add to those of other rows.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the numbers to add to those of other rows.
    pub fn numbers_mut(&mut self) -> &mut [u64] {
        &mut self.numbers
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.numbers[0]
    }

    /// Returns true positives, predicted rows and true rows of a class.
    fn of_class(&self, class: usize) -> [u64; NUMBERS] {
        let at = 1 + NUMBERS * class;
        [self.numbers[at], self.numbers[at + 1], self.numbers[at + 2]]
    }

    fn all(&self) -> impl Iterator<Item = [u64; NUMBERS]> {
        (0..self.classes).map(|class| self.of_class(class))
    }

    fn sums(&self) -> [u64; NUMBERS] {
        self.all().fold([0; NUMBERS], |sums, of| [sums[0] + of[0], sums[1] + of[1], sums[2] + of[2]])
    }

    /// Returns the true rows of each class.
    pub fn support(&self) -> Vec<u64> {
        self.all().map(|[.., support]| support).collect()
    }

    /// Returns a score of these counts; `None` without rows, if the score is not defined, or for AUC.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        if self.rows() == 0 {
            return None;
        }
        match metric {
            Metric::Accuracy => Some(self.accuracy()),
            Metric::MicroF1 => Some(f1(self.sums())),
            Metric::MacroF1 => mean(self.all().filter(|of| !self.is_single || of[1] + of[2] > 0).map(f1)),
            Metric::BalancedAccuracy if self.is_single => {
                mean(self.all().filter(|of| of[2] > 0).map(|[hits, _, support]| ratio(hits, support)))
            }
            Metric::BalancedAccuracy | Metric::Auc => None,
        }
    }

    fn accuracy(&self) -> f64 {
        let [hits, predicted, support] = self.sums();
        let pairs = self.rows() * self.classes as u64;
        if self.is_single {
            ratio(hits, self.rows())
        } else {
            ratio(pairs + 2 * hits - predicted - support, pairs)
        }
    }

    /// Returns the classes that these rows make most likely: that of most rows; multi-label: those of more than half of them.
    pub fn majority(&self) -> Vec<usize> {
        let support = self.support();
        if self.is_single {
            let first_largest =
                |best: usize, class: usize| if support[class] > support[best] { class } else { best };
            return (0..self.classes).reduce(first_largest).into_iter().collect();
        }
        (0..self.classes).filter(|&class| 2 * support[class] > self.rows()).collect()
    }

    /// Returns the counts of a model that predicts `classes` for every row.
    pub fn constant(&self, classes: &[usize]) -> Self {
        let mut counts = Self::none(self.classes, self.is_single, false);
        counts.numbers[0] = self.rows();
        for class in 0..self.classes {
            let support = self.of_class(class)[2];
            let (hits, predicted) = if classes.contains(&class) { (support, self.rows()) } else { (0, 0) };
            counts.numbers[1 + NUMBERS * class..][..NUMBERS].copy_from_slice(&[hits, predicted, support]);
        }
        counts
    }

    /// Returns all scores of these counts; `None` without rows.
    pub fn scores(&self) -> Option<ClassScores> {
        let macro_f1 = self.score(Metric::MacroF1)?;
        let only = |holds: bool, metric: Metric| self.score(metric).filter(|_| holds);
        let is_listed = self.classes <= MAX_LISTED;
        let listed = || self.all().filter(move |_| is_listed);
        let confusion = &self.numbers[1 + NUMBERS * self.classes..];
        Some(ClassScores {
            nodes: self.rows(),
            accuracy: only(self.is_single, Metric::Accuracy),
            balanced_accuracy: self.score(Metric::BalancedAccuracy),
            macro_f1,
            micro_f1: only(!self.is_single, Metric::MicroF1),
            precision: listed().map(|[hits, predicted, _]| ratio(hits, predicted)).collect(),
            recall: listed().map(|[hits, _, support]| ratio(hits, support)).collect(),
            f1: listed().map(f1).collect(),
            support: listed().map(|[.., support]| support).collect(),
            confusion: self
                .has_confusion
                .then(|| confusion.chunks_exact(self.classes.max(1)).map(<[u64]>::to_vec).collect()),
        })
    }
}

fn f1([hits, predicted, support]: [u64; NUMBERS]) -> f64 {
    ratio(2 * hits, predicted + support)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// Scores of the classes on a list of nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassScores {
    /// Number of nodes.
    pub nodes: u64,
    /// Fraction of nodes with the right class; single-label only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean recall of classes that have nodes; single-label only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balanced_accuracy: Option<f64>,
    /// Mean F1.
    pub macro_f1: f64,
    /// F1 over all (node, class) pairs; multi-label only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_f1: Option<f64>,
    /// By class; empty for more than [`MAX_LISTED`] classes, as the next three.
    pub precision: Vec<f64>,
    /// By class.
    pub recall: Vec<f64>,
    /// By class.
    pub f1: Vec<f64>,
    /// True nodes by class.
    pub support: Vec<u64>,
    /// Numbers of nodes by true class (rows) and predicted class (columns); `None` for multi-label data and for more than
    /// [`MAX_CONFUSION`] classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three classes; the third is never predicted. Rows of the matrix are logits.
    fn counts() -> ClassCounts {
        let logits =
            Matrix::<f32>::new(5, 3, vec![1., 0., 0., 1., 0., 0., 0., 1., 0., 0., 1., 0., 0., 1., 0.]);
        ClassCounts::of(&logits, &[0, 1, 2, 3, 4], Targets::Single(&[0, 0, 0, 1, 2]), true)
    }

    #[test]
    fn a_class_that_is_never_predicted_has_no_precision_and_no_recall() {
        let scores = counts().scores().unwrap();
        assert_eq!(scores.precision, [1.0, 1.0 / 3.0, 0.0]);
        assert_eq!(scores.recall, [2.0 / 3.0, 1.0, 0.0]);
        assert_eq!(scores.f1, [0.8, 0.5, 0.0]);
        assert_eq!((scores.support, scores.nodes), (vec![3, 1, 1], 5));
        assert_eq!(scores.confusion.unwrap(), [[2, 1, 0], [0, 1, 0], [0, 1, 0]]);
        assert_eq!(scores.accuracy, Some(0.6));
        assert!((scores.macro_f1 - 1.3 / 3.0).abs() < 1e-15);
        assert!((scores.balanced_accuracy.unwrap() - 5.0 / 9.0).abs() < 1e-15);
    }

    #[test]
    fn counts_of_parts_add_up() {
        let logits = Matrix::<f32>::new(4, 2, vec![1., -1., 1., 2., -1., -2., -3., 4.]);
        let (single, multi) = ([0, 1, 1, 0], [1, 0, 0, 1, 1, 1, 0, 0]);
        for targets in [Targets::Single(&single), Targets::Multi(&multi)] {
            let part = |rows: std::ops::Range<usize>| {
                let numbers: Vec<u32> = rows.clone().map(|row| row as u32).collect();
                let of_rows = match targets {
                    Targets::Single(classes) => Targets::Single(&classes[rows]),
                    Targets::Multi(flags) => Targets::Multi(&flags[2 * rows.start..2 * rows.end]),
                };
                ClassCounts::of(&logits, &numbers, of_rows, true)
            };
            let (mut head, tail) = (part(0..1), part(1..4));
            head.numbers_mut().iter_mut().zip(tail.numbers()).for_each(|(a, b)| *a += b);
            assert_eq!(head, part(0..4));
        }
    }

    #[test]
    fn the_majority_is_predicted_for_every_row() {
        let counts = counts();
        let constant = counts.constant(&counts.majority());
        assert_eq!(constant.score(Metric::Accuracy), Some(0.6));
        assert_eq!(constant.score(Metric::BalancedAccuracy), Some(1.0 / 3.0));
        assert_eq!(constant.score(Metric::MacroF1), Some(0.25), "F1 of 0.75, 0 and 0");
        let logits = Matrix::<f32>::new(3, 2, vec![0.0; 6]);
        let multi = ClassCounts::of(&logits, &[0, 1, 2], Targets::Multi(&[1, 0, 1, 1, 0, 0]), false);
        assert_eq!(multi.majority(), [0]);
        assert_eq!(multi.constant(&[0]).score(Metric::MicroF1), Some(4.0 / 6.0));
    }

    #[test]
    fn large_numbers_of_classes_are_summed_up_only() {
        let scores = |classes: usize| {
            let logits = Matrix::<f32>::new(1, classes, vec![0.0; classes]);
            ClassCounts::of(&logits, &[0], Targets::Single(&[0]), true).scores().unwrap()
        };
        assert!(scores(MAX_CONFUSION).confusion.is_some() && scores(MAX_CONFUSION + 1).confusion.is_none());
        assert_eq!([scores(MAX_LISTED).recall.len(), scores(MAX_LISTED + 1).recall.len()], [MAX_LISTED, 0]);
        assert_eq!(scores(MAX_LISTED + 1).macro_f1, 1.0);
    }

    #[test]
    fn no_rows_have_no_score() {
        let none = ClassCounts::none(3, true, true);
        assert_eq!((none.scores(), none.score(Metric::Accuracy)), (None, None));
    }
}
