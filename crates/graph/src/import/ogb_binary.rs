//! The array form of an OGB raw directory, used by ogbn-papers100M.
//!
//! `data.npz` holds `edge_index` (2×E), `node_feat` (N×F), `num_nodes_list` and `num_edges_list`; `node-label.npz` holds
//! `node_label` (N×1, NaN = none).

use std::path::Path;

use super::RawGraph;
use super::arrays::{self, DenseFeatures, PairEdges};
use crate::build::{EdgeInput, EdgeSource};
use crate::dataset::write::FeatureSource;
use crate::error::{Error, Result};
use crate::io::npy::Array;
use crate::io::npz::Npz;

/// Reads the arrays in the folder `raw`; the caller fills in name and split.
pub(super) fn read(raw: &Path) -> Result<RawGraph> {
    let (data, label) = (raw.join("data.npz"), raw.join("node-label.npz"));
    let (data, label) = (Npz::open(&data)?, Npz::open(&label)?);
    let features = DenseFeatures::new(need(&data, raw, "node_feat")?)?;
    let edges = PairEdges::new(need(&data, raw, "edge_index")?)?;
    let labels = need(&label, raw, "node_label")?;
    let nodes = features.rows();
    agree(&need(&data, raw, "num_nodes_list")?, nodes as u64, &features.place(0, 0))?;
    agree(&need(&data, raw, "num_edges_list")?, edges.len().unwrap_or(0), &edges.place(0))?;
    Ok(RawGraph {
        name: String::new(),
        nodes,
        edges: EdgeInput::Source(Box::new(edges)),
        features: Box::new(features),
        labels_from: labels.name.clone(),
        labels: arrays::labels(&labels)?,
        class_names: Vec::new(),
        splits: Vec::new(),
        ids: None,
        notes: Vec::new(),
    })
}

fn need(archive: &Npz, raw: &Path, name: &str) -> Result<Array> {
    archive.get(name)?.ok_or_else(|| Error::input(raw.display(), format!("its archives hold no {name}")))
}

/// Checks that the one number in `list` is `found`, which was counted at `place`.
fn agree(list: &Array, found: u64, place: &str) -> Result<()> {
    if list.len() != 1 {
        return Err(Error::input(&list.name, format!("{} numbers where one is needed", list.len()))
            .help("only node-property datasets, which hold one graph, can be imported"));
    }
    match list.to_i64()?[0] {
        count if u64::try_from(count) == Ok(found) => Ok(()),
        count => Err(Error::input(&list.name, format!("{count} where {found} are found ({place})"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::dataset::write::Labels;
    use crate::io::npy::{Element, Writer};

    fn array<T: Element>(folder: &Path, shape: &[usize], values: &[T]) -> Vec<u8> {
        let path = folder.join("member.npy");
        let mut writer = Writer::create(&path, shape).unwrap();
        writer.write(values).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        bytes
    }

    fn archive(path: &Path, members: &[(&str, Vec<u8>)]) {
        let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        let stored =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, bytes) in members {
            zip.start_file(format!("{name}.npy"), stored).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    fn read_with_counts(nodes: i64, edges: i64) -> Result<RawGraph> {
        let folder = tempfile::tempdir().unwrap();
        let raw = folder.path();
        let members = [
            ("edge_index", array(raw, &[2, 3], &[0i64, 1, 2, 1, 2, 0])),
            ("node_feat", array(raw, &[3, 1], &[1f32, 2.0, 3.0])),
            ("num_nodes_list", array(raw, &[1], &[nodes])),
            ("num_edges_list", array(raw, &[1], &[edges])),
        ];
        archive(&raw.join("data.npz"), &members);
        let labels = [("node_label", array(raw, &[3, 1], &[1f32, f32::NAN, 0.0]))];
        archive(&raw.join("node-label.npz"), &labels);
        read(raw)
    }

    #[test]
    fn shapes_without_bytes_are_refused_before_allocation() {
        let folder = tempfile::tempdir().unwrap();
        let (source, nodes) = (folder.path(), 1usize << 62);
        let raw = source.join("raw");
        std::fs::create_dir_all(source.join("split/time")).unwrap();
        std::fs::create_dir(&raw).unwrap();
        let members = [
            ("edge_index", array(&raw, &[2, 0], &[0i64; 0])),
            ("node_feat", array(&raw, &[nodes, 0], &[0f32; 0])),
            ("num_nodes_list", array(&raw, &[1], &[nodes as i64])),
            ("num_edges_list", array(&raw, &[1], &[0i64])),
        ];
        archive(&raw.join("data.npz"), &members);
        archive(&raw.join("node-label.npz"), &[("node_label", array(&raw, &[3, 1], &[0f32; 3]))]);
        let error = super::super::ogb::read(source, None, &crate::progress::Silent).err().unwrap();
        assert!(error.to_string().ends_with(&format!("[node_label]: 3 labels for {nodes} nodes")), "{error}");
    }

    #[test]
    fn arrays_become_a_graph() {
        let graph = read_with_counts(3, 3).unwrap();
        assert_eq!((graph.nodes, graph.features.cols()), (3, 1));
        assert_eq!(graph.labels, Labels::Single(vec![1, -1, 0]));
    }

    #[test]
    fn counts_must_agree() {
        assert!(read_with_counts(4, 3).err().unwrap().to_string().contains("4 where 3 are found"));
        assert!(read_with_counts(3, 2).err().unwrap().to_string().contains("2 where 3 are found"));
    }
}
