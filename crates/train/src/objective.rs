//! What a run optimises and how it is scored: the metric, and the weights of classes in the loss.

use halograph_graph::dataset::{Manifest, Metric, Task};
use halograph_graph::error::{Error, Result};

use crate::config::{ClassWeights, TrainConfig};

/// The key of the class weights, for errors.
pub const CLASS_WEIGHTS: &str = "train.class_weights";
/// The key of the metric, for errors.
pub const METRIC: &str = "train.metric";

/// Metric and class weights of a run on a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// The metric of scores.
    pub metric: Metric,
    /// Single-label or multi-label.
    pub task: Task,
    /// Number of classes.
    pub classes: usize,
    /// Names of the classes, if they have any.
    pub names: Vec<String>,
    /// Weight of each class in the loss; `None`: all are 1.
    pub weights: Option<Vec<f64>>,
}

/// Numbers of training nodes of all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainingCounts {
    /// Training nodes.
    pub nodes: u64,
    /// Those of each class.
    pub per_class: Vec<u64>,
}

impl Objective {
    /// Returns the metric of a dataset, without class weights.
    pub fn of(dataset: &Manifest) -> Self {
        Objective {
            metric: dataset.metric,
            task: dataset.task,
            classes: dataset.classes as usize,
            names: dataset.class_names.clone(),
            weights: None,
        }
    }

    /// Returns the objective of a run. `counts` is called for balanced weights; it may communicate. Refuses a metric that is
    /// not defined for the dataset, and weights that do not fit it.
    pub fn new<E: From<Error>>(
        train: &TrainConfig,
        dataset: &Manifest,
        counts: impl FnOnce() -> Result<TrainingCounts, E>,
    ) -> Result<Self, E> {
        let metric = metric(train, dataset)?;
        let weights = match &train.class_weights {
            None => None,
            Some(ClassWeights::Balanced) => Some(balanced(dataset.task, &counts()?)),
            Some(ClassWeights::Given(weights)) => Some(weights.clone()),
            Some(ClassWeights::File(path)) => {
                return Err(Error::input(CLASS_WEIGHTS, format!("{} was not read", path.display())).into());
            }
        };
        // A trained model may know more classes than the dataset that it is scored on.
        if let Some(given) = weights.as_ref().map(Vec::len).filter(|&given| (given as u64) < dataset.classes)
        {
            let problem = format!("{given} weights for {} classes", dataset.classes);
            return Err(Error::input(CLASS_WEIGHTS, problem).help("give one weight per class").into());
        }
        Ok(Objective { metric, weights, ..Objective::of(dataset) })
    }

    /// Returns the weight of each class.
    pub fn weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// Returns what the loss of so many rows is divided by; `None` if that depends on their classes.
    pub fn divisor_of_count(&self, rows: u64) -> Option<f64> {
        match (self.task, &self.weights) {
            (Task::MultiLabel, _) => Some((rows * self.classes as u64) as f64),
            (Task::SingleLabel, None) => Some(rows as f64),
            (Task::SingleLabel, Some(_)) => None,
        }
    }
}

/// Refuses weights of 0 for all training nodes. `divisor`: what their loss is divided by.
pub(crate) fn check_divisor(divisor: f64) -> Result<()> {
    if divisor > 0.0 {
        return Ok(());
    }
    Err(Error::input(CLASS_WEIGHTS, "all training nodes have weight 0")
        .help("give a class with training nodes a weight above 0"))
}

/// Returns the metric of a run; refuses one that is not defined for the dataset.
pub fn metric(train: &TrainConfig, dataset: &Manifest) -> Result<Metric> {
    let Some(metric) = train.metric else { return Ok(dataset.metric) };
    Metric::choose(Some(metric), dataset.task, dataset.classes as usize).map_err(|problem| {
        let fitting = match dataset.task {
            Task::SingleLabel if dataset.classes == 2 => {
                "accuracy, balanced-accuracy, macro-f1, micro-f1 or auc"
            }
            Task::SingleLabel => "accuracy, balanced-accuracy, macro-f1 or micro-f1",
            Task::MultiLabel => "macro-f1, micro-f1 or auc",
        };
        Error::input(METRIC, problem).help(format!("choose {fitting}"))
    })
}

/// Returns balanced weights: scikit-learn's n / (k · count) over the classes that have training nodes; for multi-label data
/// negatives / positives. A class without training nodes, or without negatives, has weight 1.
fn balanced(task: Task, counts: &TrainingCounts) -> Vec<f64> {
    let nodes = counts.nodes as f64;
    let occurring = counts.per_class.iter().filter(|&&count| count > 0).count() as f64;
    let weight = |&count: &u64| match (task, count) {
        (_, 0) => 1.0,
        (Task::SingleLabel, count) => nodes / (occurring * count as f64),
        (Task::MultiLabel, count) if count >= counts.nodes => 1.0,
        (Task::MultiLabel, count) => (counts.nodes - count) as f64 / count as f64,
    };
    counts.per_class.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use halograph_nn::model::Kind;

    use super::*;
    use crate::config::Config;

    fn manifest(task: Task, classes: u64) -> Manifest {
        Manifest { classes, ..Manifest::new("x".into(), task, Metric::choose(None, task, 2).unwrap()) }
    }

    fn train(weights: Option<ClassWeights>, metric: Option<Metric>) -> TrainConfig {
        TrainConfig { class_weights: weights, metric, ..Config::new(Kind::Gcn).train }
    }

    fn weights(task: Task, nodes: u64, per_class: &[u64]) -> Vec<f64> {
        let counts = || Ok::<_, Error>(TrainingCounts { nodes, per_class: per_class.to_vec() });
        let train = train(Some(ClassWeights::Balanced), None);
        Objective::new(&train, &manifest(task, per_class.len() as u64), counts).unwrap().weights.unwrap()
    }

    #[test]
    fn balanced_weights_are_scikit_learns() {
        // compute_class_weight("balanced", classes=[0, 1, 3], y=[0] * 6 + [1] * 3 + [3])
        let want = [10.0 / 18.0, 10.0 / 9.0, 1.0, 10.0 / 3.0];
        assert_eq!(weights(Task::SingleLabel, 10, &[6, 3, 0, 1]), want);
        assert_eq!(weights(Task::MultiLabel, 10, &[2, 0, 10, 5]), [4.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_metric_must_fit_the_task() {
        let refused = |metric, task, classes| {
            metric_of(metric, task, classes).expect_err("must be refused").to_string()
        };
        fn metric_of(metric: Metric, task: Task, classes: u64) -> Result<Metric> {
            metric_for(Some(metric), task, classes)
        }
        fn metric_for(wanted: Option<Metric>, task: Task, classes: u64) -> Result<Metric> {
            metric(&train(None, wanted), &manifest(task, classes))
        }
        assert_eq!(metric_for(None, Task::MultiLabel, 3).unwrap(), Metric::MicroF1);
        assert_eq!(metric_of(Metric::MacroF1, Task::MultiLabel, 3).unwrap(), Metric::MacroF1);
        let message = refused(Metric::BalancedAccuracy, Task::MultiLabel, 3);
        assert!(message.contains("balanced-accuracy is not defined for multi-label data"), "{message}");
        assert!(message.contains("choose macro-f1, micro-f1 or auc"), "{message}");
        assert!(refused(Metric::Auc, Task::SingleLabel, 3).contains("auc needs two classes"));
    }

    #[test]
    fn as_many_weights_as_classes() {
        let given = train(Some(ClassWeights::Given(vec![1.0, 2.0])), None);
        let none = || -> Result<TrainingCounts> { unreachable!("weights are given") };
        let message = Objective::new(&given, &manifest(Task::SingleLabel, 3), none).unwrap_err().to_string();
        assert!(message.contains("2 weights for 3 classes"), "{message}");
    }

    #[test]
    fn the_divisor_of_weighted_rows_depends_on_their_classes() {
        let given = train(Some(ClassWeights::Given(vec![0.5, 2.0])), None);
        let none = || -> Result<TrainingCounts> { unreachable!("weights are given") };
        let of = |task| Objective::new(&given, &manifest(task, 2), none).unwrap();
        assert_eq!(of(Task::SingleLabel).divisor_of_count(3), None);
        assert_eq!(of(Task::MultiLabel).divisor_of_count(3), Some(6.0), "pos_weight is not in the mean");
        assert_eq!(Objective::of(&manifest(Task::SingleLabel, 2)).divisor_of_count(3), Some(3.0));
    }
}
