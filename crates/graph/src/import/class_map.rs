//! `class_map.json`: a JSON object from node id to its class, or to a list of 0 and 1.
//!
//! Such files reach hundreds of megabytes, so entries are parsed from the mapped file directly into the labels.

use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::dataset::write::Labels;
use crate::error::{Error, Result};
use crate::io::npy;

/// Size of labels that is always allowed.
const SMALL: usize = 64 << 20;

/// Reads the labels of `nodes` nodes. Nodes that are not mentioned have no class.
pub(super) fn read(path: &Path, nodes: usize) -> Result<Labels> {
    let map = npy::map(path)?;
    // A list of C flags takes 2·C bytes, so the file cannot be much smaller than its labels.
    let limit = map.len().saturating_mul(8).max(SMALL);
    let mut classes = Classes { nodes, limit, seen: vec![false; nodes], row: Vec::new(), labels: None };
    let mut json = serde_json::Deserializer::from_slice(&map);
    json.deserialize_map(&mut classes)
        .and_then(|()| json.end())
        .map_err(|e| Error::input(path.display(), format!("not a map from node id to class: {e}")))?;
    Ok(classes.labels.unwrap_or_else(|| Labels::Single(vec![-1; nodes])))
}

/// Collects entries as they are parsed.
struct Classes {
    nodes: usize,
    /// Maximum size of the labels in bytes.
    limit: usize,
    seen: Vec<bool>,
    /// The flags of the current entry.
    row: Vec<u8>,
    /// Created by the first entry, which decides the task.
    labels: Option<Labels>,
}

impl Classes {
    /// Checks a key; returns its node.
    fn node(&mut self, key: &str) -> Result<usize, String> {
        let id = key.trim().parse::<usize>().ok().filter(|&id| id < self.nodes);
        let id = id.ok_or_else(|| {
            let key: String = key.chars().take(40).collect();
            format!("{key:?} is not the id of a node in a graph of {}", self.nodes)
        })?;
        if std::mem::replace(&mut self.seen[id], true) {
            return Err(format!("node {id} is listed twice"));
        }
        Ok(id)
    }

    fn set_class(&mut self, node: usize, class: i64) -> Result<(), String> {
        let nodes = self.nodes;
        match self.labels.get_or_insert_with(|| Labels::Single(vec![-1; nodes])) {
            Labels::Single(labels) => labels[node] = class,
            Labels::Multi { .. } => return Err(format!("node {node} has one class, others a list")),
        }
        Ok(())
    }

    /// Sets the flags of `node` to those in `row`.
    fn set_flags(&mut self, node: usize) -> Result<(), String> {
        let width = self.row.len();
        if self.labels.is_none() {
            let size = self.nodes.checked_mul(width).filter(|&size| size <= self.limit);
            let size = size.ok_or_else(|| {
                format!(
                    "{width} classes for each of {} nodes, more than a file of this size can hold",
                    self.nodes
                )
            })?;
            self.labels = Some(Labels::Multi { classes: width, flags: vec![0; size] });
        }
        match &mut self.labels {
            Some(Labels::Multi { classes, flags }) if *classes == width => {
                flags[node * width..(node + 1) * width].copy_from_slice(&self.row);
                Ok(())
            }
            Some(Labels::Multi { classes, .. }) => {
                Err(format!("node {node} has a list of {width} classes, others of {classes}"))
            }
            _ => Err(format!("node {node} has a list, others one class")),
        }
    }
}

impl<'de> Visitor<'de> for &mut Classes {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object from node id to class")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(node) = entries.next_key_seed(Key(&mut *self))? {
            entries.next_value_seed(Entry { node, classes: &mut *self })?;
        }
        Ok(())
    }
}

/// Reads a node id.
struct Key<'a>(&'a mut Classes);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a node id")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<usize, E> {
        self.0.node(key).map_err(E::custom)
    }
}

/// Reads the class or the flags of one node.
struct Entry<'a> {
    node: usize,
    classes: &'a mut Classes,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a class or a list of 0 and 1 for node {}", self.node)
    }

    fn visit_i64<E: serde::de::Error>(self, class: i64) -> Result<(), E> {
        self.classes.set_class(self.node, class).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, class: u64) -> Result<(), E> {
        let class = i64::try_from(class).map_err(|_| E::custom(format!("class {class}")))?;
        self.visit_i64(class)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut flags: A) -> Result<(), A::Error> {
        self.classes.row.clear();
        while let Some(flag) = flags.next_element::<f64>()? {
            if flag != 0.0 && flag != 1.0 {
                return Err(A::Error::custom(format!("{flag} in the list of node {}", self.node)));
            }
            self.classes.row.push(flag as u8);
        }
        self.classes.set_flags(self.node).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str, nodes: usize) -> Result<Labels> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("class_map.json");
        std::fs::write(&path, text).unwrap();
        read(&path, nodes)
    }

    #[test]
    fn entries_may_come_in_any_order() {
        assert_eq!(labels(r#"{"2": 5, "0": 1}"#, 3).unwrap(), Labels::Single(vec![1, -1, 5]));
        let multi = Labels::Multi { classes: 2, flags: vec![0, 0, 1, 0] };
        assert_eq!(labels(r#"{"1": [1, 0.0]}"#, 2).unwrap(), multi);
        assert_eq!(labels("{}", 2).unwrap(), Labels::Single(vec![-1, -1]));
    }

    #[test]
    fn bad_entries_are_named() {
        for (text, message) in [
            (r#"{"3": 0}"#, "\"3\" is not the id of a node in a graph of 3"),
            (r#"{"-1": 0}"#, "\"-1\" is not"),
            (r#"{"1.5": 0}"#, "\"1.5\" is not"),
            (r#"{"1": 0, "1": 1}"#, "node 1 is listed twice at line 1 column"),
            (r#"{"1": 0, "2": [1]}"#, "node 2 has a list, others one class"),
            (r#"{"1": [1], "2": 0}"#, "node 2 has one class, others a list"),
            (r#"{"1": [1], "2": [1, 0]}"#, "node 2 has a list of 2 classes, others of 1"),
            (r#"{"1": [2]}"#, "2 in the list of node 1"),
            (r#"{"1": "x"}"#, "for node 1"),
            (r#"{"1": 0"#, "EOF"),
            (r#"{"1": 0} {"#, "trailing"),
            ("[1]", "not a map"),
            ("", "not a map"),
        ] {
            let error = labels(text, 3).unwrap_err().to_string();
            assert!(error.contains(message), "{error}\nwhere {message} was expected");
        }
    }

    #[test]
    fn one_long_list_does_not_make_a_huge_table() {
        let text = format!("{{\"0\": [{}0]}}", "0,".repeat(100_000));
        assert!(
            labels(&text, 1_000_000)
                .unwrap_err()
                .to_string()
                .contains("more than a file of this size can hold")
        );
    }
}
