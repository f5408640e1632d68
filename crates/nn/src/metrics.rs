//! Scores of predictions.
//!
//! | metric | single-label | multi-label |
//! |---|---|---|
//! | accuracy | fraction of rows whose largest logit is that of their class; among equal logits, the first counts | fraction of (row, class) pairs that are correct |
//! | micro-F1 | the same as accuracy | `2 tp / (2 tp + fp + fn)` over all (row, class) pairs; 0 if there are no positives |
//! | balanced accuracy | recall, averaged over classes with true rows | |
//! | macro-F1 | F1, averaged over classes that are true or predicted in some row | F1, averaged over all classes |
//! | AUC | two classes: by the difference of the logits; more: one class against the rest, by its logit, averaged over classes | by the logit of a class, averaged over classes |
//!
//! Multi-label predicts a class if its logit is above 0. All but AUC are functions of counts, which can be added over parts
//! of the rows. AUC (area under the ROC curve) is the probability that a positive row has a higher score
//! than a negative one, ties counting half; it needs all rows together. Classes without positive or without negative rows
//! have no AUC and are left out of the average. NaN counts as −∞.

use halograph_graph::dataset::Metric;
use halograph_kernels::Real;

use crate::matrix::Matrix;

pub mod class_counts;

use class_counts::ClassCounts;

/// The true labels of a list of rows, in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Targets<'a> {
    /// The class of each row.
    Single(&'a [u32]),
    /// A 0 or 1 for each row and class, row by row.
    Multi(&'a [u8]),
}

/// Returns the score of the listed `rows` of `logits`, given their `targets` in the same order.
///
/// `None` if no row is listed, or for AUC if no class has both positive and negative rows.
///
/// # Panics
/// If the number of targets does not match the rows (and classes), or a row is not in `logits`.
pub fn score<T: Real>(metric: Metric, logits: &Matrix<T>, rows: &[u32], targets: Targets) -> Option<f64> {
    check_targets(logits, rows, targets);
    if rows.is_empty() {
        return None;
    }
    match counts(metric, logits, rows, targets) {
        Some(counts) => counts.score(),
        None => Listed { logits, rows }.auc(targets),
    }
}

/// Returns the counts that the score of these rows is a function of; those of several parts can be added. `None` for AUC.
pub fn counts<T: Real>(metric: Metric, logits: &Matrix<T>, rows: &[u32], targets: Targets) -> Option<Counts> {
    let listed = Listed { logits, rows };
    match (metric, targets) {
        (Metric::Auc, _) => None,
        (Metric::BalancedAccuracy | Metric::MacroF1, _) => {
            Some(Counts::Classes { metric, counts: ClassCounts::of(logits, rows, targets, false) })
        }
        (_, Targets::Single(classes)) => Some(Counts::Ratio(listed.correct_rows(classes))),
        (Metric::Accuracy, Targets::Multi(flags)) => Some(Counts::Ratio(listed.correct_pairs(flags))),
        (Metric::MicroF1, Targets::Multi(flags)) => Some(Counts::Ratio(listed.f1_counts(flags))),
    }
}

/// Counts that a score is a function of.
#[derive(Debug, Clone, PartialEq)]
pub enum Counts {
    /// The score is the first divided by the second.
    Ratio([u64; 2]),
    /// The score is computed from counts of every class.
    Classes {
        /// Which score.
        metric: Metric,
        /// The counts.
        counts: ClassCounts,
    },
}

impl Counts {
    /// Returns the numbers to add to those of other rows; there are as many for all rows of a dataset.
    pub fn numbers_mut(&mut self) -> &mut [u64] {
        match self {
            Counts::Ratio(numbers) => numbers,
            Counts::Classes { counts, .. } => counts.numbers_mut(),
        }
    }

    /// Returns the score; `None` if it is not defined.
    pub fn score(&self) -> Option<f64> {
        match self {
            Counts::Ratio([part, whole]) => Some(ratio(*part, *whole)),
            Counts::Classes { metric, counts } => counts.score(*metric),
        }
    }
}

/// Returns `part` / `whole`; 0 if there is nothing to count.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn check_targets<T: Real>(logits: &Matrix<T>, rows: &[u32], targets: Targets) {
    let targets = match targets {
        Targets::Single(classes) => classes.len(),
        Targets::Multi(flags) => {
            assert_eq!(flags.len(), rows.len() * logits.cols(), "a target for every row and class");
            rows.len()
        }
    };
    assert_eq!(targets, rows.len(), "a target for every row");
}

/// The rows of a matrix that are scored.
struct Listed<'a, T: Real> {
    logits: &'a Matrix<T>,
    rows: &'a [u32],
}

impl<'a, T: Real> Listed<'a, T> {
    fn rows(&self) -> impl Iterator<Item = &'a [T]> {
        self.rows.iter().map(|&r| self.logits.run(r as usize..r as usize + 1))
    }

    /// Returns, for each listed (row, class) pair, whether it is predicted and whether it is true.
    fn decisions(&self, flags: &[u8]) -> impl Iterator<Item = (bool, bool)> {
        self.rows().flatten().zip(flags).map(|(&z, &y)| (z > T::zero(), y != 0))
    }

    /// Returns the number of correct rows and of all rows.
    fn correct_rows(&self, classes: &[u32]) -> [u64; 2] {
        let right = self.rows().zip(classes).filter(|&(row, &class)| largest(row) == class as usize);
        [right.count() as u64, self.rows.len() as u64]
    }

    /// Returns the number of correct pairs and of all pairs.
    fn correct_pairs(&self, flags: &[u8]) -> [u64; 2] {
        [self.decisions(flags).filter(|(said, is)| said == is).count() as u64, flags.len() as u64]
    }

    /// Returns `2 tp` and `2 tp + fp + fn`.
    fn f1_counts(&self, flags: &[u8]) -> [u64; 2] {
        self.decisions(flags).fold([0, 0], |[part, whole], (said, is)| {
            [part + 2 * (said && is) as u64, whole + said as u64 + is as u64]
        })
    }

    fn auc(&self, targets: Targets) -> Option<f64> {
        let width = self.logits.cols();
        let areas: Vec<f64> = match targets {
            Targets::Single(classes) if width == 2 => {
                area(self.rows().map(|row| row[1] - row[0]).zip(classes.iter().map(|&y| y == 1)))
                    .into_iter()
                    .collect()
            }
            Targets::Single(classes) => {
                let area_of = |c| area(self.column(c).zip(classes.iter().map(|&y| y as usize == c)));
                (0..width).filter_map(area_of).collect()
            }
            Targets::Multi(flags) => {
                let is = |c| flags.iter().skip(c).step_by(width).map(|&y| y != 0);
                (0..width).filter_map(|c| area(self.column(c).zip(is(c)))).collect()
            }
        };
        (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
    }

    fn column(&self, column: usize) -> impl Iterator<Item = T> {
        self.rows().map(move |row| row[column])
    }
}

/// Returns `z` in double precision, NaN as −∞.
fn comparable<T: Real>(z: T) -> f64 {
    if z.is_nan() { f64::NEG_INFINITY } else { z.wide() }
}

/// Returns the position of the largest number, the first among equals.
fn largest<T: Real>(row: &[T]) -> usize {
    (1..row.len()).fold(0, |best, c| if comparable(row[c]) > comparable(row[best]) { c } else { best })
}

/// Returns the area under the ROC curve of (score, is positive) pairs; `None` unless both classes occur.
fn area<T: Real>(scored: impl Iterator<Item = (T, bool)>) -> Option<f64> {
    let mut scored: Vec<(f64, bool)> = scored.map(|(z, is)| (comparable(z), is)).collect();
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut inside, mut outside, mut half_wins) = (0u64, 0u64, 0u128);
    for ties in scored.chunk_by(|a, b| a.0 == b.0) {
        let positives = ties.iter().filter(|(_, is)| *is).count() as u64;
        let negatives = ties.len() as u64 - positives;
        half_wins += positives as u128 * (2 * outside + negatives) as u128;
        inside += positives;
        outside += negatives;
    }
    let pairs = inside as f64 * outside as f64;
    (pairs > 0.0).then(|| half_wins as f64 / (2.0 * pairs))
}

#[cfg(test)]
mod tests {
    use halograph_kernels::keyed::Key;

    use super::*;

    const NODES: usize = 40;

    /// Returns logits with many ties, and with NaNs if `nans` is set.
    fn logits(width: usize, nans: bool) -> Matrix<f32> {
        let key = Key::new(1, "test logits");
        let value = |i: u64| match key.below(i, 9) {
            0 if nans => f32::NAN,
            z => z as f32 - 4.0,
        };
        Matrix::new(NODES, width, (0..(NODES * width) as u64).map(value).collect())
    }

    /// Every third row, backwards.
    fn rows() -> Vec<u32> {
        (0..NODES as u32).rev().step_by(3).collect()
    }

    fn classes(width: u64) -> Vec<u32> {
        let key = Key::new(2, "test classes");
        rows().iter().map(|&r| key.below(r as u64, width) as u32).collect()
    }

    fn flags(width: usize) -> Vec<u8> {
        let key = Key::new(3, "test flags");
        (0..(rows().len() * width) as u64).map(|i| key.below(i, 2) as u8).collect()
    }

    /// Computes the AUC pair by pair.
    fn naive_area(scores: &[f32], is: &[bool]) -> Option<f64> {
        let (mut wins, mut pairs) = (0.0, 0.0);
        for (a, _) in scores.iter().zip(is).filter(|(_, is)| **is) {
            for (b, _) in scores.iter().zip(is).filter(|(_, is)| !**is) {
                wins += if a > b { 1.0 } else { 0.5 * (a == b) as u8 as f64 };
                pairs += 1.0;
            }
        }
        (pairs > 0.0).then_some(wins / pairs)
    }

    fn column(logits: &Matrix<f32>, c: usize) -> Vec<f32> {
        rows().iter().map(|&r| logits.data()[r as usize * logits.cols() + c]).collect()
    }

    #[track_caller]
    fn assert_score(got: Option<f64>, want: f64) {
        assert!((got.expect("a score") - want).abs() < 1e-12, "{got:?} where {want} was expected");
    }

    #[test]
    fn accuracy_counts_rows_whose_class_is_the_first_largest() {
        let z = Matrix::new(4, 3, vec![1., 2., 2., 0., 0., 0., -1., -2., 5., 3., 9., 4.]);
        let of = |rows: &[u32], classes: &[u32]| {
            score(Metric::Accuracy, &z, rows, Targets::Single(classes)).expect("there are rows")
        };
        assert_eq!(of(&[0, 1, 2, 3], &[1, 0, 2, 1]), 1.0);
        assert_eq!(of(&[0, 1, 2, 3], &[2, 1, 2, 0]), 0.25);
        assert_eq!(of(&[3, 0], &[1, 0]), 0.5, "rows in any order, others do not count");
    }

    #[test]
    fn micro_f1_of_one_class_a_row_is_accuracy() {
        let (z, rows, classes) = (logits(4, false), rows(), classes(4));
        let of = |metric| score(metric, &z, &rows, Targets::Single(&classes));
        assert_eq!(of(Metric::MicroF1), of(Metric::Accuracy));
    }

    #[test]
    fn flags_are_scored_pair_by_pair() {
        let (z, rows, flags) = (logits(3, false), rows(), flags(3));
        let [mut tp, mut fp, mut fne, mut tn] = [0.0; 4];
        for (i, &r) in rows.iter().enumerate() {
            for c in 0..3 {
                match (z.data()[r as usize * 3 + c] > 0.0, flags[i * 3 + c] == 1) {
                    (true, true) => tp += 1.0,
                    (true, false) => fp += 1.0,
                    (false, true) => fne += 1.0,
                    (false, false) => tn += 1.0,
                }
            }
        }
        let (precision, recall) = (tp / (tp + fp), tp / (tp + fne));
        let of = |metric| score(metric, &z, &rows, Targets::Multi(&flags));
        assert_score(of(Metric::MicroF1), 2.0 * precision * recall / (precision + recall));
        assert_score(of(Metric::Accuracy), (tp + tn) / (tp + tn + fp + fne));
        let no = Matrix::new(1, 2, vec![-1.0, -1.0]);
        assert_eq!(score(Metric::MicroF1, &no, &[0], Targets::Multi(&[0, 0])), Some(0.0));
    }

    #[test]
    fn counts_of_parts_add_up() {
        let (z, rows, classes, flags) = (logits(3, false), rows(), classes(3), flags(3));
        let counts = |range: std::ops::Range<usize>| {
            let listed = Listed { logits: &z, rows: &rows[range.clone()] };
            let flags = &flags[range.start * 3..range.end * 3];
            [listed.correct_rows(&classes[range]), listed.correct_pairs(flags), listed.f1_counts(flags)]
        };
        let (all, head, tail) = (counts(0..rows.len()), counts(0..5), counts(5..rows.len()));
        for i in 0..3 {
            assert_eq!(all[i], [head[i][0] + tail[i][0], head[i][1] + tail[i][1]]);
        }
    }

    #[test]
    fn auc_of_two_classes_ranks_by_the_difference() {
        let (z, rows, classes) = (logits(2, false), rows(), classes(2));
        let differences: Vec<f32> = column(&z, 1).iter().zip(column(&z, 0)).map(|(b, a)| b - a).collect();
        let is: Vec<bool> = classes.iter().map(|&y| y == 1).collect();
        let want = naive_area(&differences, &is).expect("both classes occur");
        assert_score(score(Metric::Auc, &z, &rows, Targets::Single(&classes)), want);
    }

    #[test]
    fn auc_of_more_is_the_mean_over_classes_that_have_one() {
        let (z, rows) = (logits(3, false), rows());
        let mut flags = flags(3);
        flags.iter_mut().skip(1).step_by(3).for_each(|y| *y = 1);
        let area = |c: usize, is: Vec<bool>| naive_area(&column(&z, c), &is);
        let of = |c| area(c, flags.iter().skip(c).step_by(3).map(|&y| y == 1).collect());
        assert_eq!(of(1), None, "all rows are in class 1");
        let want = (of(0).expect("mixed") + of(2).expect("mixed")) / 2.0;
        assert_score(score(Metric::Auc, &z, &rows, Targets::Multi(&flags)), want);

        let classes = classes(3);
        let of = |c| area(c, classes.iter().map(|&y| y as usize == c).collect()).expect("every class occurs");
        let want = (of(0) + of(1) + of(2)) / 3.0;
        assert_score(score(Metric::Auc, &z, &rows, Targets::Single(&classes)), want);
    }

    #[test]
    fn without_rows_or_without_contrast_there_is_no_score() {
        let z = logits(2, false);
        for metric in [Metric::Accuracy, Metric::MicroF1, Metric::Auc] {
            assert_eq!(score(metric, &z, &[], Targets::Single(&[])), None);
            assert_eq!(score(metric, &z, &[], Targets::Multi(&[])), None);
        }
        assert_eq!(score(Metric::Auc, &z, &[0, 1], Targets::Single(&[1, 1])), None);
    }

    #[test]
    fn a_nan_is_the_lowest_of_all() {
        let z = Matrix::new(2, 2, vec![f32::NAN, f32::MIN, f32::NAN, f32::NAN]);
        let of = |metric, targets| score(metric, &z, &[0, 1], targets);
        assert_eq!(of(Metric::Accuracy, Targets::Single(&[1, 0])), Some(1.0));
        assert_eq!(of(Metric::MicroF1, Targets::Multi(&[1, 1, 0, 0])), Some(0.0));
        assert_eq!(of(Metric::Auc, Targets::Multi(&[0, 1, 1, 0])), Some(0.75), "a tie and a win");

        let z = logits(3, true);
        assert!(z.data().iter().any(|z| z.is_nan()));
        let lowest = z.data().iter().map(|z| if z.is_nan() { f32::NEG_INFINITY } else { *z }).collect();
        let lowest = Matrix::new(NODES, 3, lowest);
        let (rows, classes, flags) = (rows(), classes(3), flags(3));
        for metric in [Metric::Accuracy, Metric::MicroF1, Metric::Auc] {
            for targets in [Targets::Single(&classes), Targets::Multi(&flags)] {
                assert_eq!(score(metric, &z, &rows, targets), score(metric, &lowest, &rows, targets));
            }
        }
    }
}
