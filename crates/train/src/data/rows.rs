//! Labelled rows, which losses and scores are computed from.

use std::ops::Range;

use bytemuck::Pod;
use halograph_comm::{Comm, Message, Tag};
use halograph_kernels::{Real, rows};
use halograph_nn::Matrix;
use halograph_nn::metrics::Targets;

use crate::error::Result;
use crate::objective::TrainingCounts;

/// Rows of a view with their labels.
pub struct Rows {
    /// Row numbers in the view, ascending.
    pub rows: Vec<u32>,
    pub(super) labels: Labels,
}

pub(super) enum Labels {
    Single(Vec<u32>),
    Multi(Vec<u8>),
}

impl Rows {
    /// Pairs rows with their labels.
    pub fn new(rows: Vec<u32>, targets: Targets) -> Self {
        let labels = match targets {
            Targets::Single(classes) => Labels::Single(classes.to_vec()),
            Targets::Multi(flags) => Labels::Multi(flags.to_vec()),
        };
        Rows { rows, labels }
    }

    /// Returns the labels of the rows at these positions, as rows 0, 1, ….
    pub fn select(&self, positions: &[u32]) -> Self {
        let at = positions.iter().map(|&at| at as usize);
        let labels = match &self.labels {
            Labels::Single(classes) => Labels::Single(at.map(|at| classes[at]).collect()),
            Labels::Multi(flags) => {
                let classes = flags.len() / self.rows.len().max(1);
                Labels::Multi(at.flat_map(|at| &flags[at * classes..][..classes]).copied().collect())
            }
        };
        Rows { rows: (0..positions.len() as u32).collect(), labels }
    }

    /// Returns the rows of a range of row numbers, counted from its start.
    pub fn within(&self, range: Range<usize>) -> Self {
        let at = |row: usize| self.rows.partition_point(|&r| (r as usize) < row) as u32;
        let positions: Vec<u32> = (at(range.start)..at(range.end)).collect();
        let rows = positions.iter().map(|&at| self.rows[at as usize] - range.start as u32).collect();
        Rows { rows, ..self.select(&positions) }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns what the loss of these rows is divided by; the sum over ranks and chunks is global. Without class weights, and
    /// for multi-label data, this is a whole number.
    pub fn divisor(&self, weights: Option<&[f64]>) -> f64 {
        match (&self.labels, weights) {
            (Labels::Single(classes), None) => classes.len() as f64,
            (Labels::Single(classes), Some(weights)) => {
                classes.iter().map(|&class| weights[class as usize]).sum()
            }
            (Labels::Multi(flags), _) => flags.len() as f64,
        }
    }

    /// Returns the class weight of each row, if the loss is divided by their sum.
    pub(crate) fn weights(&self, weights: Option<&[f64]>) -> Option<Vec<f64>> {
        match (&self.labels, weights) {
            (Labels::Single(classes), Some(weights)) => {
                Some(classes.iter().map(|&class| weights[class as usize]).collect())
            }
            _ => None,
        }
    }

    /// Counts the rows of each class.
    pub(super) fn class_counts(&self, classes: usize) -> TrainingCounts {
        let mut per_class = vec![0; classes];
        match &self.labels {
            Labels::Single(labels) => labels.iter().for_each(|&class| per_class[class as usize] += 1),
            Labels::Multi(flags) => {
                let rows = flags.chunks_exact(classes.max(1));
                rows.for_each(|row| {
                    row.iter().zip(&mut per_class).for_each(|(&y, n)| *n += u64::from(y != 0))
                });
            }
        }
        TrainingCounts { nodes: self.count(), per_class }
    }

    /// Gathers the rows of all ranks with their logits, in the order of ranks. Collective; blocks.
    pub(crate) fn gathered<T: Real>(
        &self,
        logits: &Matrix<T>,
        comm: &Comm,
        tag: Tag,
    ) -> Result<(Matrix<T>, Rows)> {
        let width = logits.cols();
        let mut own = Message::new::<T>(self.rows.len() * width);
        rows::gather(logits.data(), width, &self.rows, own.as_mut_slice());
        let labels = match &self.labels {
            Labels::Single(classes) => Message::of(classes),
            Labels::Multi(flags) => Message::of(flags),
        };
        let mut all = Vec::new();
        for message in comm.all_gather(tag, own)? {
            all.extend_from_slice(message.as_slice::<T>()?);
        }
        let found = comm.all_gather(tag, labels)?;
        let labels = match &self.labels {
            Labels::Single(_) => Labels::Single(joined(&found)?),
            Labels::Multi(_) => Labels::Multi(joined(&found)?),
        };
        let count = all.len() / width.max(1);
        Ok((Matrix::new(count, width, all), Rows { rows: (0..count as u32).collect(), labels }))
    }

    /// Returns the labels, in the order of the rows.
    pub fn targets(&self) -> Targets<'_> {
        match &self.labels {
            Labels::Single(classes) => Targets::Single(classes),
            Labels::Multi(flags) => Targets::Multi(flags),
        }
    }
}

fn joined<E: Pod>(messages: &[Message]) -> Result<Vec<E>> {
    let mut all = Vec::new();
    for message in messages {
        all.extend_from_slice(message.as_slice()?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_is_the_sum_of_weights_or_a_count() {
        let single = Rows::new(vec![0, 1, 2], Targets::Single(&[0, 1, 1]));
        let multi = Rows::new(vec![0, 1], Targets::Multi(&[0, 1, 1, 1]));
        let weights = Some(&[0.5, 2.0][..]);
        assert_eq!([single.divisor(None), single.divisor(weights)], [3.0, 4.5]);
        assert_eq!([multi.divisor(None), multi.divisor(weights)], [4.0; 2], "pos_weight is not in the mean");
        assert_eq!((single.weights(weights), multi.weights(weights)), (Some(vec![0.5, 2.0, 2.0]), None));
        let counts = |rows: &Rows| rows.class_counts(2);
        assert_eq!(counts(&single), TrainingCounts { nodes: 3, per_class: vec![1, 2] });
        assert_eq!(counts(&multi), TrainingCounts { nodes: 2, per_class: vec![1, 2] });
    }
}
