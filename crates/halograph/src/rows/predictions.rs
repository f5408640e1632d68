//! Predictions as a table: ids, predicted classes, and numbers of chosen nodes.

use halograph_graph::dataset::Task;
use halograph_nn::Matrix;

/// What is written of the outputs of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A probability per class: softmax, or of multi-label data sigmoid.
    Probabilities,
    /// A logit per class.
    Logits,
    /// The predicted classes alone.
    Classes,
}

/// Ids of the nodes of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeIds {
    /// Whole numbers.
    Numbers(Vec<i64>),
    /// Any text.
    Texts(Vec<String>),
}

impl NodeIds {
    /// Returns the ids of `nodes`: of all of them `ids`, or their numbers.
    fn of(nodes: &[u32], ids: Option<&[String]>) -> Self {
        let Some(ids) = ids else {
            return NodeIds::Numbers(nodes.iter().map(|&node| i64::from(node)).collect());
        };
        // Only numbers that are written back the same way: ids such as 007 stay text. The type is that of all ids, whatever
        // nodes are chosen.
        let number = |id: &String| id.parse::<i64>().ok().filter(|number| number.to_string() == *id);
        match ids.iter().map(number).collect::<Option<Vec<i64>>>() {
            Some(numbers) => NodeIds::Numbers(nodes.iter().map(|&node| numbers[node as usize]).collect()),
            None => NodeIds::Texts(nodes.iter().map(|&node| ids[node as usize].clone()).collect()),
        }
    }
}

/// Predicted classes.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictedClasses {
    /// The most probable class of each node, as an index.
    One(Vec<u32>),
    /// Nodes × classes: whether each class is predicted.
    Flags(Matrix<u8>),
}

/// The classes that a model was trained on.
pub struct Classes<'a> {
    /// Single-label or multi-label.
    pub task: Task,
    /// Number of classes.
    pub count: usize,
    /// Names of the first classes, perhaps of none.
    pub names: &'a [String],
}

/// A table of predictions or embeddings.
pub struct Predictions {
    /// The ids.
    pub ids: NodeIds,
    /// Predicted classes; `None` in tables of embeddings.
    pub classes: Option<PredictedClasses>,
    /// Names of the classes, or their numbers.
    pub class_names: Vec<String>,
    /// Whether the classes have names, not only numbers.
    pub has_names: bool,
    /// Numbers, one column for each of `columns`; `None`: none.
    pub numbers: Option<Matrix<f32>>,
    /// Names of the columns of `numbers`.
    pub columns: Vec<String>,
}

/// The nodes that are written.
pub struct Chosen<'a> {
    /// Their numbers.
    pub nodes: &'a [u32],
    /// Ids of all nodes of the dataset; `None`: their numbers.
    pub ids: Option<&'a [String]>,
}

impl Predictions {
    /// Makes a table of `logits` of all nodes.
    pub fn of_logits(logits: &Matrix<f32>, chosen: &Chosen, classes: &Classes, output: Output) -> Self {
        let mut numbers = selected(logits, chosen.nodes);
        let predicted = match classes.task {
            Task::SingleLabel => PredictedClasses::One(row_by_row(&numbers, most_probable)),
            Task::MultiLabel => {
                // As scores count: a probability above one half.
                let flags = numbers.data().iter().map(|&x| u8::from(x > 0.0)).collect();
                PredictedClasses::Flags(Matrix::new(numbers.rows(), numbers.cols(), flags))
            }
        };
        if output == Output::Probabilities {
            to_probabilities(&mut numbers, classes.task);
        }
        let has_names = !classes.names.is_empty();
        let name = |class: usize| classes.names.get(class).cloned().unwrap_or_else(|| class.to_string());
        let class_names: Vec<String> = (0..classes.count).map(name).collect();
        let prefix = match output {
            Output::Probabilities => "p_",
            Output::Logits | Output::Classes => "logit_",
        };
        let columns = class_names.iter().map(|name| format!("{prefix}{name}")).collect();
        let numbers = (output != Output::Classes).then_some(numbers);
        let ids = NodeIds::of(chosen.nodes, chosen.ids);
        Predictions { ids, classes: Some(predicted), class_names, has_names, numbers, columns }
    }

    /// Makes a table of `embeddings` of all nodes.
    pub fn of_embeddings(embeddings: &Matrix<f32>, chosen: &Chosen) -> Self {
        let numbers = selected(embeddings, chosen.nodes);
        Predictions {
            ids: NodeIds::of(chosen.nodes, chosen.ids),
            classes: None,
            class_names: Vec::new(),
            has_names: false,
            columns: (0..numbers.cols()).map(|column| format!("e{column}")).collect(),
            numbers: Some(numbers),
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match &self.ids {
            NodeIds::Numbers(ids) => ids.len(),
            NodeIds::Texts(ids) => ids.len(),
        }
    }
}

fn selected(all: &Matrix<f32>, nodes: &[u32]) -> Matrix<f32> {
    let mut out = Matrix::unspecified(nodes.len(), all.cols());
    for (row, &node) in nodes.iter().enumerate() {
        out.run_mut(row..row + 1).copy_from_slice(all.run(node as usize..node as usize + 1));
    }
    out
}

fn row_by_row<R>(numbers: &Matrix<f32>, work: impl Fn(&[f32]) -> R) -> Vec<R> {
    (0..numbers.rows()).map(|row| work(numbers.run(row..row + 1))).collect()
}

/// Returns the index of the largest logit, of equal ones the first.
fn most_probable(logits: &[f32]) -> u32 {
    let better = |best: usize, k: usize| if logits[k] > logits[best] { k } else { best };
    (0..logits.len()).reduce(better).unwrap_or(0) as u32
}

fn to_probabilities(logits: &mut Matrix<f32>, task: Task) {
    for row in 0..logits.rows() {
        let values = logits.run_mut(row..row + 1);
        match task {
            Task::SingleLabel => softmax(values),
            Task::MultiLabel => values.iter_mut().for_each(|x| *x = sigmoid(*x) as f32),
        }
    }
}

fn softmax(values: &mut [f32]) {
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponentials: Vec<f64> = values.iter().map(|&x| f64::from(x - max).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    values.iter_mut().zip(exponentials).for_each(|(value, x)| *value = (x / sum) as f32);
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + f64::from(-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn probabilities_of_one_class_add_up_to_one() {
        let logits = Matrix::new(3, 2, vec![0.0, 0.0, 1000.0, 0.0, -1.0, 1.0]);
        let ids = names(&["a", "b", "c"]);
        let chosen = Chosen { nodes: &[1, 2], ids: Some(&ids) };
        let class_names = names(&["no", "yes"]);
        let classes = Classes { task: Task::SingleLabel, count: 2, names: &class_names };
        let table = Predictions::of_logits(&logits, &chosen, &classes, Output::Probabilities);
        assert_eq!(table.ids, NodeIds::Texts(names(&["b", "c"])));
        assert_eq!(table.columns, ["p_no", "p_yes"]);
        assert_eq!(table.classes, Some(PredictedClasses::One(vec![0, 1])));
        let numbers = table.numbers.unwrap();
        assert_eq!(numbers.run(0..1), [1.0, 0.0]);
        assert!((numbers.run(1..2)[1] - 0.880_797).abs() < 1e-6, "{:?}", numbers.run(1..2));
        // Of equal logits, the first counts.
        let first = Chosen { nodes: &[0], ids: None };
        let table = Predictions::of_logits(&logits, &first, &classes, Output::Classes);
        assert_eq!(table.classes, Some(PredictedClasses::One(vec![0])));
        assert!(table.numbers.is_none());
    }

    #[test]
    fn several_classes_are_predicted_by_a_threshold() {
        let logits = Matrix::new(2, 2, vec![0.0, -1.0, 3.0, 1e-30]);
        let classes = Classes { task: Task::MultiLabel, count: 2, names: &[] };
        let chosen = Chosen { nodes: &[0, 1], ids: None };
        let table = Predictions::of_logits(&logits, &chosen, &classes, Output::Probabilities);
        let expected = Matrix::new(2, 2, vec![0, 0, 1, 1]);
        assert_eq!(table.classes, Some(PredictedClasses::Flags(expected)));
        assert_eq!(table.numbers.unwrap().run(0..1)[0], 0.5);
        assert_eq!(table.class_names, ["0", "1"]);
    }

    #[test]
    fn ids_are_numbers_only_if_all_are_written_as_such() {
        let of = |list: &[&str]| NodeIds::of(&[0, 1], Some(&names(list)));
        assert_eq!(of(&["10", "-3"]), NodeIds::Numbers(vec![10, -3]));
        assert_eq!(of(&["10", "007"]), NodeIds::Texts(names(&["10", "007"])));
        let one_of = NodeIds::of(&[0], Some(&names(&["10", "007"])));
        assert_eq!(one_of, NodeIds::Texts(names(&["10"])), "a subset has the type of all");
    }
}
