//! `csv` and `parquet`: an edge table and a node table.
//!
//! `source` is a folder that holds `edges.*` and `nodes.*`, or the edge table, with the node table given separately.
//! Columns are found by name or position ([`TableSpec`]). Node ids may be any text; nodes keep the order of their table.
//! Edges and features are streamed row by row; only ids, labels and split are held in memory.

mod columns;
pub(super) mod csv;
mod ids;
pub(super) mod labels;
#[cfg(feature = "parquet")]
mod pages;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
#[cfg(feature = "parquet")]
mod parquet_column;
#[cfg(all(test, feature = "parquet"))]
mod parquet_tests;
pub(super) mod streams;
#[cfg(test)]
mod tests;
#[cfg(feature = "parquet")]
mod thrift;

use std::path::{Path, PathBuf};
use std::rc::Rc;

#[cfg(feature = "parquet")]
pub use self::parquet_column::panic_expected;

use self::columns::{Columns, EdgeColumns};
use self::ids::Ids;
use self::labels::LabelReader;
use self::streams::{Features, TableEdges};
use super::arrays::DenseFeatures;
use super::{RawGraph, name_of};
use crate::build::EdgeInput;
use crate::dataset::Subset;
use crate::dataset::write::FeatureSource;
use crate::error::{Error, IoContext, Result};
use crate::io::npy::Array;
use crate::progress::{Progress, Unit};

/// Which files and columns to read. Columns that are not given are found by their usual names.
///
/// A column is named by its header or by its position, counted from 0.
#[derive(Debug, Clone, Default)]
pub struct TableSpec {
    /// The node table, if it is not `nodes.*` in the source folder.
    pub nodes: Option<PathBuf>,
    /// An N×F array of features, rows in the order of the node table.
    pub features: Option<PathBuf>,
    /// Edge column of sources.
    pub src: Option<String>,
    /// Edge column of destinations.
    pub dst: Option<String>,
    /// Edge column of weights.
    pub weight: Option<String>,
    /// Node column of ids.
    pub id: Option<String>,
    /// Node column of classes; several are multi-label flags.
    pub labels: Vec<String>,
    /// Node column of the split.
    pub split: Option<String>,
    /// Node columns of features: names, positions, ranges `3-130` or a prefix `x*`.
    pub feature_columns: Vec<String>,
}

/// One value of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "text files hold nothing but text"))]
pub(super) enum Cell<'a> {
    /// An empty cell.
    Null,
    /// A whole number, or a boolean as 0 or 1.
    Int(i64),
    /// A number.
    Real(f64),
    /// Text, which may be a number in decimal.
    Text(&'a str),
    /// Several numbers.
    List(&'a [f32]),
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Cell::Null => f.write_str("an empty cell"),
            Cell::Int(x) => write!(f, "{x}"),
            Cell::Real(x) => write!(f, "{x}"),
            Cell::Text(text) => write!(f, "{:?}", text.chars().take(80).collect::<String>()),
            Cell::List(list) => write!(f, "a list of {}", list.len()),
        }
    }
}

/// A file of named columns that can be read several times.
pub(super) trait Table {
    /// Returns the name of the file, for messages.
    fn name(&self) -> &str;
    /// Returns the column names.
    fn columns(&self) -> &[String];
    /// Returns whether the names are from the first line of the file, which may be data by mistake.
    fn names_from_first_line(&self) -> bool;
    /// Returns whether the columns have names, not only positions.
    fn has_names(&self) -> bool {
        true
    }
    /// Returns which columns seem to hold numbers.
    fn numeric(&self) -> Result<Vec<bool>>;
    /// Returns the number of rows, if known without reading them.
    fn len(&self) -> Option<u64>;
    /// Starts reading the rows, with only these `columns`.
    fn open(&self, columns: &[usize]) -> Result<Box<dyn RowCursor>>;
}

/// A cursor over the rows of a table.
pub(super) trait RowCursor {
    /// Moves to the next row; returns false at the end.
    fn advance(&mut self) -> Result<bool>;
    /// Returns the `k`th of the chosen columns in the current row.
    fn cell(&self, k: usize) -> Cell<'_>;
    /// Returns the position of the current row, for messages: file, and line or row.
    fn place(&self) -> String;
}

/// Finds `stem.*` with one of `extensions` in `folder`.
fn find(folder: &Path, stem: &str, extensions: &[&str]) -> Result<PathBuf> {
    let names: Vec<String> = extensions.iter().map(|e| format!("{stem}.{e}")).collect();
    names.iter().map(|name| folder.join(name)).find(|path| path.exists()).ok_or_else(|| {
        Error::input(folder.display(), format!("no {stem} table: none of {} is there", names.join(", ")))
    })
}

/// Returns the paths of the edge table and the node table of `source`.
fn locate(source: &Path, spec: &TableSpec, extensions: &[&str]) -> Result<[PathBuf; 2]> {
    let folder = std::fs::metadata(source).at(source, "open")?.is_dir();
    let edges = if folder { find(source, "edges", extensions)? } else { source.to_path_buf() };
    let nodes = match &spec.nodes {
        Some(nodes) => nodes.clone(),
        None if folder => find(source, "nodes", extensions)?,
        None => {
            return Err(Error::input(source.display(), "an edge table without a node table")
                .help("give the node table with --nodes FILE, or give the folder that holds both tables"));
        }
    };
    Ok([edges, nodes])
}

/// Reads the tables of `source`; `open` opens a table.
pub(super) fn read(
    source: &Path,
    spec: &TableSpec,
    extensions: &[&str],
    open: &dyn Fn(&Path) -> Result<Rc<dyn Table>>,
    progress: &dyn Progress,
) -> Result<RawGraph> {
    let [edges, nodes] = locate(source, spec, extensions)?;
    let (edges, nodes) = (open(&edges)?, open(&nodes)?);
    for table in [&edges, &nodes] {
        if table.columns().is_empty() {
            return Err(Error::input(table.name(), "empty: no rows and no columns"));
        }
    }
    let edge_columns = EdgeColumns::choose(&*edges, spec)?;
    let columns = Columns::choose(&*nodes, spec)?;
    let NodeColumns { ids, labels, split } = read_nodes(&*nodes, &columns, progress)?;
    let features = features(&nodes, &columns, spec, ids.len())?;
    let missing = labels.missing();
    let (labels, mut class_names) = labels.finish();
    if columns.labels.len() > 1 && nodes.has_names() {
        class_names = columns.labels.iter().map(|&k| nodes.columns()[k].clone()).collect();
    }
    let names = ids.names();
    let mut notes = columns.notes;
    notes.extend(edge_columns.note(&*edges));
    if !missing.is_empty() {
        notes.push(format!("{}: labels {} are read as no label", nodes.name(), missing.join(", ")));
    }
    Ok(RawGraph {
        name: name_of(source),
        nodes: ids.len(),
        edges: EdgeInput::Source(Box::new(TableEdges::new(edges, &edge_columns, ids))),
        features,
        labels,
        labels_from: nodes.name().to_string(),
        class_names,
        splits: split.into_iter().collect(),
        ids: names,
        notes,
    })
}

/// Columns of the node table that are held in memory.
struct NodeColumns {
    ids: Ids,
    labels: LabelReader,
    split: Option<Vec<u8>>,
}

/// Reads ids, labels and split in one pass.
fn read_nodes(table: &dyn Table, columns: &Columns, progress: &dyn Progress) -> Result<NodeColumns> {
    progress.begin("reading nodes", table.len(), Unit::Items);
    let wanted: Vec<usize> =
        [columns.id].into_iter().chain(columns.labels.iter().copied()).chain(columns.split).collect();
    let name = |k: usize| &table.columns()[wanted[k]];
    let last = wanted.len() - 1;
    let mut facts = NodeColumns {
        ids: Ids::default(),
        labels: LabelReader::new(columns.labels.len()),
        split: columns.split.map(|_| Vec::new()),
    };
    let mut rows = table.open(&wanted)?;
    while rows.advance()? {
        let at = |k: usize| format!("{}, column {}", rows.place(), name(k));
        let refuse = |problem| Error::input(at(0), problem).help("every node needs an id of its own");
        facts.ids.push(rows.cell(0)).map_err(refuse)?;
        if columns.labels.is_empty() {
            facts.labels.push_none();
        }
        for k in 0..columns.labels.len() {
            facts.labels.push(rows.cell(k + 1)).map_err(|problem| Error::input(at(k + 1), problem))?;
        }
        if let Some(split) = &mut facts.split {
            split.push(subset(rows.cell(last)).map_err(|problem| {
                Error::input(at(last), problem)
                    .help("use 0 (none), 1 (train), 2 (validation), 3 (test), or these words")
            })?);
        }
        if facts.ids.len().is_multiple_of(4096) {
            progress.tick(4096)?;
        }
    }
    Ok(facts)
}

/// Returns the subset of the split that a cell names.
fn subset(cell: Cell) -> Result<u8, String> {
    let subset = match cell {
        Cell::Null => Some(Subset::None),
        Cell::Int(0) => Some(Subset::None),
        Cell::Int(1) => Some(Subset::Train),
        Cell::Int(2) => Some(Subset::Val),
        Cell::Int(3) => Some(Subset::Test),
        Cell::Real(x) if (0.0..=3.0).contains(&x) && x.fract() == 0.0 => return Ok(x as u8),
        Cell::Text(text) => match text.to_ascii_lowercase().as_str() {
            "" | "none" | "0" => Some(Subset::None),
            "train" | "1" => Some(Subset::Train),
            "val" | "valid" | "validation" | "2" => Some(Subset::Val),
            "test" | "3" => Some(Subset::Test),
            _ => None,
        },
        _ => None,
    };
    subset.map(|subset| subset as u8).ok_or_else(|| format!("{cell} is no subset of a split"))
}

/// Returns the features: from an array if one was given, else from the node table.
fn features(
    nodes: &Rc<dyn Table>,
    columns: &Columns,
    spec: &TableSpec,
    count: usize,
) -> Result<Box<dyn FeatureSource>> {
    let Some(path) = &spec.features else {
        return Ok(Box::new(Features::new(nodes.clone(), columns.features.clone())?));
    };
    let matrix = DenseFeatures::new(Array::open(path)?)?;
    if matrix.rows() != count {
        let problem = format!("{} rows where {} has {count} nodes", matrix.rows(), nodes.name());
        return Err(Error::input(path.display(), problem));
    }
    Ok(Box::new(matrix))
}
