//! Scores of single classes on training, validation and test nodes.

use halograph_graph::dataset::Metric;
use halograph_nn::metrics::class_counts::{ClassCounts, ClassScores};
use serde::Serialize;

use crate::event::Scores;
use crate::objective::Objective;

/// Scores of single classes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassReport {
    /// Names of the classes, if they have any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// On training nodes; `None` without such nodes, as the next two.
    pub train: Option<ClassScores>,
    /// On validation nodes.
    pub val: Option<ClassScores>,
    /// On test nodes.
    pub test: Option<ClassScores>,
    /// The score of always predicting the majority class; `None` without validation and test nodes.
    pub majority: Option<Majority>,
}

/// The score of a model that predicts the majority class of the training nodes for every node; for multi-label data, the
/// classes that more than half of the training nodes have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Majority {
    /// The nodes that are scored: test nodes or, without any, validation nodes.
    pub subset: ScoredSubset,
    /// The majority class, or classes of multi-label data.
    pub classes: Vec<usize>,
    /// The score, by the metric of the run.
    pub score: f64,
}

/// The nodes that the majority class is scored on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoredSubset {
    /// Validation nodes.
    Val,
    /// Test nodes.
    Test,
}

impl ClassReport {
    /// Computes the scores from the counts on training, validation and test nodes.
    pub(crate) fn new(objective: &Objective, counts: &[ClassCounts; 3]) -> Self {
        let [train, val, test] = counts;
        let subsets = [(ScoredSubset::Test, test), (ScoredSubset::Val, val)];
        let scored = subsets.into_iter().find(|(_, counts)| counts.rows() > 0);
        let majority = scored.filter(|_| train.rows() > 0).and_then(|(subset, counts)| {
            let classes = train.majority();
            let score = match objective.metric {
                // Equal scores for all nodes.
                Metric::Auc => 0.5,
                metric => counts.constant(&classes).score(metric)?,
            };
            Some(Majority { subset, classes, score })
        });
        let names = objective.names.clone();
        ClassReport { names, train: train.scores(), val: val.scores(), test: test.scores(), majority }
    }

    /// Returns the name of a class, or its number.
    pub fn name(&self, class: usize) -> String {
        self.names.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// Returns the scores on test nodes or, without any, on validation nodes; and the name of the subset.
    pub fn held_out(&self) -> Option<(&'static str, &ClassScores)> {
        let subsets = [("test", &self.test), ("validation", &self.val)];
        subsets.into_iter().find_map(|(name, scores)| Some((name, scores.as_ref()?)))
    }

    /// Returns the score of the majority class, with that of the model, if the model is not better.
    pub fn no_better_than_majority(&self, scores: &Scores) -> Option<(&Majority, f64)> {
        let majority = self.majority.as_ref()?;
        let score = match majority.subset {
            ScoredSubset::Test => scores.test,
            ScoredSubset::Val => scores.val,
        };
        Some((majority, score.filter(|&score| score <= majority.score)?))
    }
}

#[cfg(test)]
mod tests {
    use halograph_graph::dataset::{Manifest, Task};
    use halograph_nn::Matrix;
    use halograph_nn::metrics::Targets;

    use super::*;

    fn report(test: &[u32], metric: Metric) -> ClassReport {
        let logits = Matrix::<f32>::new(4, 2, vec![0.0; 8]);
        let counts = |classes: &[u32]| {
            let rows: Vec<u32> = (0..classes.len() as u32).collect();
            ClassCounts::of(&logits, &rows, Targets::Single(classes), true)
        };
        let manifest = Manifest { classes: 2, ..Manifest::new("x".into(), Task::SingleLabel, metric) };
        let counts = [counts(&[1, 1, 0]), counts(&[0, 0, 1, 1]), counts(test)];
        ClassReport::new(&Objective::of(&manifest), &counts)
    }

    fn scores(val: f64, test: Option<f64>) -> Scores {
        Scores { train: None, val: Some(val), test, val_loss: None }
    }

    #[test]
    fn the_majority_of_training_nodes_is_scored_on_test_nodes() {
        let report = report(&[1, 1, 1, 0], Metric::Accuracy);
        let majority = report.majority.clone().unwrap();
        assert_eq!(majority, Majority { subset: ScoredSubset::Test, classes: vec![1], score: 0.75 });
        assert!(report.no_better_than_majority(&scores(1.0, Some(0.75))).is_some());
        assert_eq!(report.no_better_than_majority(&scores(0.0, Some(0.76))), None);
    }

    #[test]
    fn without_test_nodes_validation_nodes_are_scored() {
        for (metric, score) in
            [(Metric::BalancedAccuracy, 0.5), (Metric::Auc, 0.5), (Metric::MacroF1, 1.0 / 3.0)]
        {
            let report = report(&[], metric);
            let majority = report.majority.clone().unwrap();
            assert_eq!((majority.subset, majority.score, &report.test), (ScoredSubset::Val, score, &None));
            assert!(report.no_better_than_majority(&scores(score, None)).is_some());
        }
    }
}
