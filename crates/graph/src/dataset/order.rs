//! `order.npy`: a cached node order for locality.
//!
//! It holds the vertex of each row; it is empty if no order improves locality. It is not part of the data: it may be
//! deleted, and an invalid one is computed again.

use std::io;
use std::path::Path;

use super::{Dataset, ORDER};
use crate::error::Result;
use crate::io::npy::{Array, Writer};
use crate::order;

impl Dataset {
    /// Returns an order of the nodes in which neighbours are near each other, if aggregation gains by it.
    ///
    /// Reads `order.npy`. If that is missing, or is no order of these nodes, computes the order and writes the file if
    /// possible. A dataset in memory keeps the order in memory.
    pub fn order(&self) -> Result<Option<Vec<u32>>> {
        if order::too_small(self.manifest.nodes as usize) {
            return Ok(None);
        }
        let order = match &self.path {
            Some(path) => self.order_in(path)?,
            None => self.order_in_memory()?,
        };
        Ok((!order.is_empty()).then_some(order))
    }

    fn order_in(&self, folder: &Path) -> Result<Vec<u32>> {
        if let Some(order) = read(&folder.join(ORDER), self.manifest.nodes as usize) {
            return Ok(order);
        }
        let order = self.make_order()?;
        // Without the file the next run takes a little longer: no reason to fail.
        let _ = save(folder, &order);
        Ok(order)
    }

    fn order_in_memory(&self) -> Result<Vec<u32>> {
        if let Some(order) = self.order.get() {
            return Ok(order.clone());
        }
        let order = self.make_order()?;
        Ok(self.order.get_or_init(|| order).clone())
    }

    /// Computes an order; empty if it does not improve locality.
    fn make_order(&self) -> Result<Vec<u32>> {
        self.check_edges()?;
        let graph = self.graph();
        let order = order::cluster(graph);
        Ok(if order::improves_locality(graph, &order) { order } else { Vec::new() })
    }
}

/// Reads the order in the file `path`; `None` if it is neither empty nor an order of `nodes` nodes.
fn read(path: &Path, nodes: usize) -> Option<Vec<u32>> {
    let array = Array::open(path).ok()?;
    let flat = array.header.shape.len() == 1;
    let order = array.as_slice::<u32>().filter(|order| flat && (order.is_empty() || order.len() == nodes))?;
    order::is_permutation(order).then(|| order.to_vec())
}

/// Writes `order` into `folder` atomically.
fn save(folder: &Path, order: &[u32]) -> io::Result<()> {
    let create = |path: &Path| Writer::create(path, &[order.len()]).map_err(io::Error::other);
    let file = tempfile::Builder::new().prefix(PARTIAL.0).suffix(PARTIAL.1).make_in(folder, create)?;
    let (mut writer, path) = file.into_parts();
    writer.write(order).and_then(|()| writer.finish()).map_err(io::Error::other)?;
    path.persist(folder.join(ORDER)).map_err(|e| e.error)
}

/// Prefix and suffix of the hidden name of an order while it is written.
const PARTIAL: (&str, &str) = (".order.", ".partial");

/// Returns whether a file of this name is an incomplete order that a killed process left.
pub(super) fn is_leftover(name: &str) -> bool {
    name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1)
}
