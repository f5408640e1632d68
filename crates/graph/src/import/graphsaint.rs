//! `graphsaint`: the folder layout of GraphSAINT (Zeng et al., 2020): Flickr, Reddit, Yelp, PPI, Amazon.
//!
//! | file | contents |
//! |---|---|
//! | `adj_full.npz` | scipy CSR of the whole graph: `indptr`, `indices`, `shape`, `format`; row = source |
//! | `feats.npy` | N×F features, not standardised |
//! | `class_map.json` | node id → class, or → a list of 0 and 1 for each class |
//! | `role.json` | the ids of training (`tr`), validation (`va`) and test (`te`) nodes |
//!
//! `adj_train.npz`, the edges between training nodes, is not read: it follows from the graph and the split.

use std::path::Path;

use serde::Deserialize;

use super::arrays::{self, DenseFeatures};
use super::class_map;
use super::npz::{row_count, square};
use super::{RawGraph, name_of};
use crate::build::{EdgeInput, Rows};
use crate::dataset::Subset;
use crate::error::{Error, IoContext, Result};
use crate::io::npy::{self, Array};
use crate::io::npz::Npz;
use crate::io::strings;

/// Reads the folder `source`.
pub(super) fn read(source: &Path) -> Result<RawGraph> {
    std::fs::read_dir(source).at(source, "open")?;
    let adj = Npz::open(&source.join("adj_full.npz"))?;
    check_format(&adj.need("format")?)?;
    let indptr = adj.need("indptr")?;
    let nodes = row_count(&indptr)?;
    square(&adj.need("shape")?, nodes)?;
    let features = DenseFeatures::for_nodes(Array::open(&source.join("feats.npy"))?, nodes)?;
    let classes = source.join("class_map.json");
    Ok(RawGraph {
        name: name_of(source),
        nodes,
        edges: EdgeInput::Rows {
            indptr,
            indices: adj.need("indices")?,
            weights: None,
            rows: Rows::AreSources,
        },
        features: Box::new(features),
        labels: class_map::read(&classes, nodes)?,
        labels_from: classes.display().to_string(),
        class_names: Vec::new(),
        splits: vec![roles(&source.join("role.json"), nodes)?],
        ids: None,
        notes: arrays::ignored_weights(adj.get("data")?)?.into_iter().collect(),
    })
}

fn check_format(member: &Array) -> Result<()> {
    let format = strings::strings(member)?;
    if format == ["csr"] {
        return Ok(());
    }
    let problem = format!("{format:?} where a csr matrix is needed");
    Err(Error::input(&member.name, problem).help("save it as a scipy.sparse.csr_matrix"))
}

#[derive(Deserialize)]
struct Roles {
    tr: Vec<i64>,
    va: Vec<i64>,
    te: Vec<i64>,
}

fn roles(path: &Path, nodes: usize) -> Result<Vec<u8>> {
    let roles: Roles = serde_json::from_slice(&npy::map(path)?)
        .map_err(|e| Error::input(path.display(), format!("not lists of node ids tr, va and te: {e}")))?;
    let mut split = vec![Subset::None as u8; nodes];
    for (list, part, ids) in
        [("tr", Subset::Train, roles.tr), ("va", Subset::Val, roles.va), ("te", Subset::Test, roles.te)]
    {
        for (k, id) in ids.into_iter().enumerate() {
            let place = || format!("{}, {list}, element {k}", path.display());
            let slot = usize::try_from(id).ok().and_then(|v| split.get_mut(v));
            let slot = slot
                .ok_or_else(|| Error::input(place(), format!("node id {id} in a graph of {nodes} nodes")))?;
            if *slot != Subset::None as u8 {
                return Err(Error::input(place(), format!("node {id} is listed twice")));
            }
            *slot = part as u8;
        }
    }
    Ok(split)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zip::CompressionMethod;

    use super::*;
    use crate::Dataset;
    use crate::dataset::{LabelView, Task};
    use crate::import::{ImportFormat, ImportOptions, ImportReport, import};
    use crate::io::npz::tests::{archive, list, matrix, npy};
    use crate::progress::Silent;

    type Files = Vec<(&'static str, Vec<u8>)>;

    fn adjacency(format: Vec<u8>, shape: &[i64]) -> Vec<u8> {
        let members = [
            ("indices", list(&[1i32, 0, 2, 1])),
            ("indptr", list(&[0i32, 1, 3, 4])),
            ("format", format),
            ("shape", list(shape)),
            ("data", npy("|b1", false, "(4,)", &[1; 4])),
        ];
        archive(&members, CompressionMethod::Deflated)
    }

    /// A path of 3 nodes.
    fn files() -> Files {
        vec![
            ("adj_full.npz", adjacency(npy("|S3", false, "()", b"csr"), &[3, 3])),
            ("feats.npy", matrix(3, 1, &[0.5f64, 1.5, 2.5])),
            ("class_map.json", br#"{"2": 1, "0": 0}"#.to_vec()),
            ("role.json", br#"{"tr": [0], "va": [], "te": [2], "other": 7}"#.to_vec()),
        ]
    }

    fn imported(files: &Files) -> Result<(ImportReport, Dataset, tempfile::TempDir)> {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, data)| std::fs::write(dir.path().join(name), data).unwrap());
        let out = dir.path().join("out");
        let report = import(&ImportFormat::GraphSaint, dir.path(), &out, &ImportOptions::default(), &Silent)?;
        let dataset = Dataset::open(&out)?;
        Ok((report, dataset, dir))
    }

    fn with(name: &'static str, data: &[u8]) -> Files {
        let mut files = files();
        files.retain(|(n, _)| *n != name);
        files.push((name, data.to_vec()));
        files
    }

    #[test]
    fn the_folder_is_read() {
        let (_, dataset, _dir) = imported(&files()).unwrap();
        assert_eq!(dataset.graph().indices, [1, 0, 2, 1]);
        assert_eq!(dataset.features().as_slice::<f32>().unwrap(), [0.5, 1.5, 2.5]);
        assert!(matches!(dataset.labels(), LabelView::Single([0, -1, 1])));
        assert_eq!(dataset.split(), [1, 0, 3]);
    }

    #[test]
    fn lists_of_flags_make_it_multi_label() {
        let (report, dataset, _dir) =
            imported(&with("class_map.json", br#"{"0": [1, 0], "2": [1, 1.0]}"#)).unwrap();
        assert_eq!(report.manifest.task, Task::MultiLabel);
        assert!(matches!(dataset.labels(), LabelView::Multi { classes: 2, flags: [1, 0, 0, 0, 1, 1] }));
    }

    #[test]
    fn the_format_may_be_unicode_and_must_be_csr() {
        let utf32: Vec<u8> = "csr".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        let unicode = adjacency(npy("<U3", false, "()", &utf32), &[3, 3]);
        assert!(imported(&with("adj_full.npz", &unicode)).is_ok());
        let other = adjacency(npy("|S3", false, "()", b"csc"), &[3, 3]);
        let error = imported(&with("adj_full.npz", &other)).err().unwrap().to_string();
        assert!(error.contains("[\"csc\"] where a csr matrix"), "{error}");
    }

    #[test]
    fn inconsistent_files_are_refused_with_their_position() {
        let cases: [(&str, &[u8], &str); 9] = [
            ("adj_full.npz", &adjacency(npy("|S3", false, "()", b"csr"), &[3, 2]), "[shape]: 3 × 2"),
            ("feats.npy", &matrix(2, 1, &[1f32, 2.0]), "2 feature rows for 3 nodes"),
            ("role.json", br#"{"tr": [0], "va": [0], "te": []}"#, "va, element 0: node 0 is listed twice"),
            ("role.json", br#"{"tr": [0, 0], "va": [], "te": []}"#, "tr, element 1: node 0 is listed twice"),
            ("role.json", br#"{"tr": [3], "va": [], "te": []}"#, "node id 3 in a graph of 3 nodes"),
            ("role.json", br#"{"tr": [-1], "va": [], "te": []}"#, "node id -1"),
            ("role.json", br#"{"tr": ["a"], "va": [], "te": []}"#, "role.json"),
            ("role.json", br#"{"tr": [], "va": []}"#, "missing field `te`"),
            ("role.json", b"", "role.json"),
        ];
        for (name, data, message) in cases {
            let error = imported(&with(name, data)).err().unwrap().to_string();
            assert!(error.contains(message), "{error}\nwhere {message} was expected");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn damage_never_panics(file in 0usize..4, at in 0usize..2000, value: u8, cut: bool) {
            let mut files = files();
            let data = &mut files[file].1;
            let at = at % data.len();
            data[at] = value;
            if cut {
                data.truncate(at);
            }
            let _ = imported(&files);
        }
    }
}
