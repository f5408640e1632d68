//! Arrays of another program in this process, such as those of numpy: a dataset in memory.

use super::arrays::{self, DenseFeatures, PairEdges, SparseFeatures, WeightedEdges};
use super::{ImportOptions, Prepared, RawGraph, prepare};
use crate::build::EdgeInput;
use crate::dataset::write::{FeatureSource, Labels};
use crate::dataset::{Dataset, Subset, Task};
use crate::error::{Error, Result};
use crate::io::npy::Array;
use crate::progress::Progress;

/// A dataset as arrays of any type and shape, unchecked. Their names are those in messages.
pub struct ImportArrays {
    /// Name of the dataset.
    pub name: String,
    /// Sources and destinations: 2×E or E×2.
    pub edges: Array,
    /// Weights of the edges, if they have any.
    pub edge_weights: Option<Array>,
    /// Features, one row per node.
    pub features: MatrixArrays,
    /// Names of the feature columns; may be empty.
    pub feature_names: Vec<String>,
    /// Labels: N or N×1 (classes; NaN or -1 is none), or N×C (flags).
    pub labels: Option<Array>,
    /// Task of the labels; by default by their shape.
    pub task: Option<Task>,
    /// Names of the classes; may be empty.
    pub class_names: Vec<String>,
    /// Masks of training, validation and test nodes: N, or one column or row per split.
    pub masks: [Option<Array>; 3],
    /// The user's own ids.
    pub ids: Option<Vec<String>>,
}

/// A matrix in arrays.
#[expect(clippy::large_enum_variant, reason = "there is one per import")]
pub enum MatrixArrays {
    /// All elements. A matrix of 32-bit floats in row order is shared, not copied, and must not change.
    Dense(Array),
    /// Compressed sparse rows.
    Sparse {
        /// Row starts.
        indptr: Array,
        /// Columns.
        indices: Array,
        /// Values.
        values: Array,
        /// Rows and columns.
        shape: [usize; 2],
    },
}

/// Makes a dataset in memory of `given`, as [`import`](super::import()) makes one on disk; returns notes for the user too.
/// Without masks
/// and with [`SplitRule::Given`](super::SplitRule), no node is in a subset.
pub fn import_arrays(
    given: ImportArrays,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<(Dataset, Vec<String>)> {
    let Prepared { contents, notes, .. } = prepare(
        read(given, options)?,
        options,
        |split| format!("arrays in memory; split: {split}"),
        progress,
    )?;
    Ok((Dataset::from_contents(contents, progress)?, notes))
}

fn read(given: ImportArrays, options: &ImportOptions) -> Result<RawGraph> {
    let ImportArrays {
        name, edges, edge_weights, feature_names, labels, task, class_names, masks, ids, ..
    } = given;
    let (features, nodes) = features(given.features, feature_names)?;
    let edges = PairEdges::new(edges)?;
    let edges: EdgeInput = match edge_weights {
        None => EdgeInput::Source(Box::new(edges)),
        Some(weights) => EdgeInput::Source(Box::new(WeightedEdges::new(edges, &weights)?)),
    };
    let mut splits = splits(&masks, nodes)?;
    if splits.is_empty() && !options.split.draws() {
        splits = vec![vec![Subset::None as u8; nodes]];
    }
    let labels_from = labels.as_ref().map_or("y", |labels| &labels.name).to_string();
    let labels = match (&labels, task) {
        (None, _) => Labels::Single(vec![-1; nodes]),
        (Some(labels), Some(Task::MultiLabel)) => arrays::flags(labels)?,
        (Some(labels), task) => {
            let read = arrays::labels(labels)?;
            if task.is_some_and(|task| task != read.task()) {
                let problem = format!("shape {:?} where one class per node is needed", labels.header.shape);
                return Err(Error::input(&labels.name, problem));
            }
            read
        }
    };
    check_class_names(&class_names, &labels)?;
    check_ids(ids.as_deref(), nodes)?;
    Ok(RawGraph {
        name,
        nodes,
        edges,
        features,
        labels,
        labels_from,
        class_names,
        splits,
        ids,
        notes: Vec::new(),
    })
}

/// Returns the features and the number of nodes.
fn features(given: MatrixArrays, names: Vec<String>) -> Result<(Box<dyn FeatureSource>, usize)> {
    let check = |columns: usize| {
        if names.is_empty() || names.len() == columns {
            return Ok(());
        }
        let problem = format!("{} names for {columns} feature columns", names.len());
        Err(Error::input("feature_names", problem).help("give one name for each column of the features"))
    };
    match given {
        MatrixArrays::Dense(matrix) => {
            let dense = DenseFeatures::new(matrix)?;
            check(dense.cols())?;
            let nodes = dense.rows();
            Ok((Box::new(dense.named(names)), nodes))
        }
        MatrixArrays::Sparse { indptr, indices, values, shape } => {
            check(shape[1])?;
            let sparse = SparseFeatures::of_matrix(&indptr, indices, values, shape)?;
            let nodes = sparse.rows();
            Ok((Box::new(sparse.named(names)), nodes))
        }
    }
}

/// Reads the splits in the masks that are given; a missing mask has no node.
fn splits(masks: &[Option<Array>; 3], nodes: usize) -> Result<Vec<Vec<u8>>> {
    if masks.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let none = Array::from_vec("empty mask".into(), vec![nodes], vec![0u8; nodes])?;
    arrays::masks(&masks.clone().map(|mask| Some(mask.unwrap_or_else(|| none.clone()))), nodes, None)
}

/// Refuses names for fewer classes than there are.
fn check_class_names(names: &[String], labels: &Labels) -> Result<()> {
    let classes = match labels {
        Labels::Single(labels) => {
            labels.iter().copied().max().unwrap_or(-1).saturating_add(1).max(0) as usize
        }
        Labels::Multi { classes, .. } => *classes,
    };
    if names.is_empty() || names.len() >= classes {
        return Ok(());
    }
    let problem = format!("{} names for {classes} classes", names.len());
    Err(Error::input("class_names", problem).help("give one name for each class, that of class 0 first"))
}

fn check_ids(ids: Option<&[String]>, nodes: usize) -> Result<()> {
    let Some(ids) = ids else { return Ok(()) };
    if ids.len() != nodes {
        return Err(Error::input("ids", format!("{} ids for {nodes} nodes", ids.len())));
    }
    match ids.iter().position(|id| id.contains(['\n', '\r'])) {
        None => Ok(()),
        Some(v) => Err(Error::input(format!("ids, node {v}"), format!("id {:?} holds a line break", ids[v]))),
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::import::{ImportFormat, SplitRule, import};
    use crate::io::npy::{Element, Writer};
    use crate::progress::Silent;

    const NODES: usize = 70;
    const COLUMNS: usize = 64;

    fn array<T: Element>(name: &str, shape: &[usize], elements: Vec<T>) -> Array {
        Array::from_vec(name.into(), shape.to_vec(), elements).unwrap()
    }

    /// A ring with some chords, repeated edges and a loop; `x` has values other than 0 in every `gap`th place.
    fn ring(gap: usize) -> ImportArrays {
        let to = |v: usize| [(v + 1) % NODES, (v * v) % NODES];
        let pairs: Vec<[i64; 2]> = (0..NODES).flat_map(|v| to(v).map(|u| [v as i64, u as i64])).collect();
        let edges = (0..2).flat_map(|end| pairs.iter().map(move |pair| pair[end])).collect();
        let value = |k: usize| if k.is_multiple_of(gap) { k as f32 } else { 0.0 };
        let flags = |subset: usize| (0..NODES).map(|v| u8::from(v % 3 == subset)).collect();
        let mask = |name: &str, subset| Some(array::<u8>(name, &[NODES], flags(subset)));
        ImportArrays {
            name: "ring".into(),
            edges: array("edge_index", &[2, pairs.len()], edges),
            edge_weights: None,
            features: MatrixArrays::Dense(array(
                "x",
                &[NODES, COLUMNS],
                (0..NODES * COLUMNS).map(value).collect(),
            )),
            feature_names: Vec::new(),
            labels: Some(array("y", &[NODES], (0..NODES as i64).map(|v| v % 4).collect())),
            task: None,
            class_names: Vec::new(),
            masks: [mask("train_mask", 0), mask("val_mask", 1), mask("test_mask", 2)],
            ids: None,
        }
    }

    fn dense(given: &ImportArrays) -> &Array {
        match &given.features {
            MatrixArrays::Dense(x) => x,
            MatrixArrays::Sparse { .. } => panic!("dense features"),
        }
    }

    fn load(given: ImportArrays) -> Result<Dataset> {
        import_arrays(given, &ImportOptions::default(), &Silent).map(|(dataset, _)| dataset)
    }

    #[test]
    fn arrays_in_memory_and_in_files_are_the_same_dataset() {
        for (gap, is_sparse) in [(1, false), (20, true)] {
            let temp = tempfile::tempdir().unwrap();
            let given = ring(gap);
            let masks = given.masks.iter().flatten();
            for array in
                [&given.edges, dense(&given), given.labels.as_ref().unwrap()].into_iter().chain(masks)
            {
                let path = temp.path().join(format!("{}.npy", array.name));
                macro_rules! write {
                    ($t:ty) => {
                        if let Some(elements) = array.as_slice::<$t>() {
                            let mut writer = Writer::create(&path, &array.header.shape).unwrap();
                            writer.write(elements).unwrap();
                            writer.finish().unwrap();
                        }
                    };
                }
                write!(i64);
                write!(f32);
                write!(u8);
            }
            let target = temp.path().join("dataset");
            let format = ImportFormat::Npy { split_index: None };
            let report = import(&format, temp.path(), &target, &ImportOptions::default(), &Silent).unwrap();
            let dataset = load(given).unwrap();
            assert_eq!(dataset.manifest.is_sparse(), is_sparse);
            assert_eq!(dataset.manifest.fingerprint, report.manifest.fingerprint);
            assert_eq!(dataset.manifest.files, report.manifest.files);

            let copy = temp.path().join("copy");
            dataset.save(&copy, false, &Silent).unwrap();
            assert_eq!(Dataset::open(&copy).unwrap().manifest.fingerprint, dataset.manifest.fingerprint);
            assert!(dataset.save(&copy, false, &Silent).unwrap_err().to_string().contains("exists"));
        }
    }

    #[test]
    fn features_are_shared_if_they_can_be() {
        let given = ring(1);
        let x = dense(&given).raw().as_ptr();
        let shared = load(given).unwrap();
        assert_eq!(shared.features().as_slice::<f32>().unwrap().as_ptr().cast(), x);

        let mut given = ring(1);
        let halves = vec![f16::ONE; NODES * COLUMNS];
        given.features = MatrixArrays::Dense(array("x", &[NODES, COLUMNS], halves));
        assert_eq!(load(given).unwrap().features().as_slice::<f32>().unwrap()[5], 1.0);
    }

    #[test]
    fn a_split_is_that_of_the_masks_or_drawn_or_empty() {
        let split = |masks: [bool; 3], rule| {
            let mut given = ring(1);
            for (mask, is_given) in given.masks.iter_mut().zip(masks) {
                mask.take_if(|_| !is_given);
            }
            let options = ImportOptions { split: rule, ..ImportOptions::default() };
            let (dataset, _) = import_arrays(given, &options, &Silent).unwrap();
            [1, 2, 3].map(|subset| dataset.split().iter().filter(|&&x| x == subset).count())
        };
        assert_eq!(split([true; 3], SplitRule::Given), [24, 23, 23]);
        assert_eq!(split([false, true, false], SplitRule::Given), [0, 23, 0]);
        assert_eq!(split([false; 3], SplitRule::Given), [0, 0, 0]);
        assert_eq!(split([false; 3], SplitRule::Ratio([0.5, 0.25, 0.25])).iter().sum::<usize>(), NODES);
    }

    #[test]
    fn faults_name_the_array() {
        let refused = |change: fn(&mut ImportArrays)| {
            let mut given = ring(1);
            change(&mut given);
            load(given).err().expect("refused").to_string()
        };
        let message = refused(|a| a.feature_names = vec!["one".into()]);
        assert!(message.starts_with("feature_names: 1 names for 64 feature columns"), "{message}");
        let message = refused(|a| a.class_names = vec!["one".into()]);
        assert!(message.starts_with("class_names: 1 names for 4 classes"), "{message}");
        let message = refused(|a| a.ids = Some(vec!["a".into()]));
        assert!(message.starts_with("ids: 1 ids for 70 nodes"), "{message}");
        let message = refused(|a| a.task = Some(Task::MultiLabel));
        assert!(message.starts_with("y: shape [70] where flags need N×C"), "{message}");
        let message = refused(|a| a.edges = array("edge_index", &[2, 1], vec![0i64, 70]));
        assert!(message.starts_with("edge_index, edge 0"), "{message}");
        let message = refused(|a| {
            let mut x = vec![0f32; NODES * COLUMNS];
            x[COLUMNS + 3] = f32::NAN;
            a.features = MatrixArrays::Dense(array("x", &[NODES, COLUMNS], x));
        });
        assert!(message.starts_with("x, row 1, column 3: feature 3 of node 1 is NaN"), "{message}");
    }
}
