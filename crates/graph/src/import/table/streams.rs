//! Edges and features, streamed from their tables.

use std::rc::Rc;

use super::columns::EdgeColumns;
use super::ids::Ids;
use super::{Cell, RowCursor, Table};
use crate::build::{EdgeSource, WeightedSink};
use crate::dataset::write::FeatureSource;
use crate::dataset::{is_weight, wrong_weight};
use crate::error::{Error, Result};

/// Edges per batch.
const BATCH: usize = 1 << 14;
/// Feature values per batch.
const CHUNK: usize = 1 << 16;

/// Passes the result of `pair` for every row to `sink`, in batches.
pub(in crate::import) fn visit_pairs(
    rows: &mut dyn RowCursor,
    sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>,
    pair: &mut dyn FnMut(&dyn RowCursor) -> Result<[i64; 2]>,
) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    while rows.advance()? {
        batch.push(pair(rows)?);
        if batch.len() == BATCH {
            sink(&batch)?;
            batch.clear();
        }
    }
    sink(&batch)
}

/// Two columns of node ids, and perhaps one of weights.
pub(super) struct TableEdges {
    table: Rc<dyn Table>,
    /// Sources, destinations, and weights if there are any.
    columns: Vec<usize>,
    ids: Ids,
}

impl TableEdges {
    pub(super) fn new(table: Rc<dyn Table>, columns: &EdgeColumns, ids: Ids) -> Self {
        let columns = columns.ends.into_iter().chain(columns.weight).collect();
        TableEdges { table, columns, ids }
    }

    fn refuse(&self, rows: &dyn RowCursor, k: usize, problem: String) -> Error {
        let column = &self.table.columns()[self.columns[k]];
        Error::input(format!("{}, column {column}", rows.place()), problem)
    }

    fn pair(&self, rows: &dyn RowCursor) -> Result<[i64; 2]> {
        Ok([self.end(rows, 0)?, self.end(rows, 1)?])
    }

    fn weight(&self, rows: &dyn RowCursor) -> Result<f32> {
        number(rows.cell(WEIGHT)).map_err(|problem| {
            self.refuse(rows, WEIGHT, problem)
                .help("correct the cell; a column of another name is not read as weights, see --weight-col")
        })
    }

    fn end(&self, rows: &dyn RowCursor, k: usize) -> Result<i64> {
        let refuse = |problem| {
            self.refuse(rows, k, problem).help("add the node to the node table, or remove the edge")
        };
        self.ids.find(rows.cell(k)).map(i64::from).map_err(refuse)
    }
}

/// Place of the weight among the columns of an edge.
const WEIGHT: usize = 2;

/// Returns the weight in a cell.
fn number(cell: Cell) -> Result<f32, String> {
    let weight = match cell {
        Cell::Int(x) => x as f64,
        Cell::Real(x) => x,
        Cell::Text(text) => text.trim().parse().map_err(|_| format!("{cell} where edges need a weight"))?,
        Cell::Null | Cell::List(_) => return Err(format!("{cell} where edges need a weight")),
    };
    // A zero has no sign.
    let narrow = weight as f32 + 0.0;
    if is_weight(narrow) { Ok(narrow) } else { Err(wrong_weight(weight)) }
}

impl EdgeSource for TableEdges {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let mut rows = self.table.open(&self.columns[..2])?;
        visit_pairs(&mut *rows, sink, &mut |rows| self.pair(rows))
    }

    fn has_weights(&self) -> bool {
        self.columns.len() > WEIGHT
    }

    fn visit_weighted(&self, sink: &mut WeightedSink<'_>) -> Result<()> {
        let mut rows = self.table.open(&self.columns)?;
        let (mut pairs, mut weights) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        while rows.advance()? {
            pairs.push(self.pair(&*rows)?);
            weights.push(self.weight(&*rows)?);
            if pairs.len() == BATCH {
                sink(&pairs, &weights)?;
                pairs.clear();
                weights.clear();
            }
        }
        sink(&pairs, &weights)
    }

    fn place(&self, index: u64) -> String {
        format!("{}, edge {index}", self.table.name())
    }

    fn len(&self) -> Option<u64> {
        self.table.len()
    }
}

/// Columns of numbers, or of lists of numbers.
pub(in crate::import) struct Features {
    table: Rc<dyn Table>,
    columns: Vec<usize>,
    /// Numbers in each column: 1, or the length of its lists.
    widths: Vec<usize>,
    /// Whether each column holds lists.
    is_list: Vec<bool>,
}

impl Features {
    /// Opens the `columns`; their widths are those of the first row.
    pub(in crate::import) fn new(table: Rc<dyn Table>, columns: Vec<usize>) -> Result<Self> {
        let mut rows = table.open(&columns)?;
        let any = rows.advance()?;
        let width = |k: usize| match rows.cell(k) {
            Cell::List(list) if any => list.len(),
            _ => 1,
        };
        let widths = (0..columns.len()).map(width).collect();
        let is_list = (0..columns.len()).map(|k| any && matches!(rows.cell(k), Cell::List(_))).collect();
        drop(rows);
        Ok(Features { table, columns, widths, is_list })
    }

    fn column_name(&self, k: usize) -> &str {
        &self.table.columns()[self.columns[k]]
    }

    /// Appends the numbers of the current row.
    fn append_row(&self, rows: &dyn RowCursor, out: &mut Vec<f32>) -> Result<()> {
        for k in 0..self.columns.len() {
            let cell = rows.cell(k);
            let start = out.len();
            append(cell, self.widths[k], out)
                .and_then(|()| match out[start..].iter().find(|x| !x.is_finite()) {
                    Some(x) => Err(not_finite(&rows.cell(k), *x)),
                    None => Ok(()),
                })
                .map_err(|problem| {
                    Error::input(format!("{}, column {}", rows.place(), self.column_name(k)), problem)
                        .help("features must be finite numbers; fill in or drop such cells before importing")
                })?;
        }
        Ok(())
    }
}

/// Describes the fault of a cell that was read as `x`, which is not finite.
fn not_finite(cell: &Cell, x: f32) -> String {
    let written = match cell {
        Cell::Real(number) if number.is_finite() => Some(format!("{number:e}")),
        Cell::Text(text) if text.parse().is_ok_and(f64::is_finite) => Some(text.to_string()),
        _ => None,
    };
    match written {
        Some(number) => format!("{number} is too large: the largest number is {:e}", f32::MAX),
        None => format!("{x} where a finite number is needed"),
    }
}

fn append(cell: Cell, width: usize, out: &mut Vec<f32>) -> Result<(), String> {
    match cell {
        Cell::Int(x) => out.push(x as f32),
        Cell::Real(x) => out.push(x as f32),
        Cell::Text(text) => out.push(text.parse().map_err(|_| format!("{cell} is not a number"))?),
        Cell::List(list) if list.len() == width => out.extend_from_slice(list),
        Cell::List(list) => return Err(format!("a list of {} where others have {width}", list.len())),
        Cell::Null => return Err("an empty cell".into()),
    }
    Ok(())
}

impl FeatureSource for Features {
    fn cols(&self) -> usize {
        self.widths.iter().sum()
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut rows = self.table.open(&self.columns)?;
        let mut batch = Vec::new();
        while rows.advance()? {
            self.append_row(&*rows, &mut batch)?;
            if batch.len() >= CHUNK {
                sink(&batch)?;
                batch.clear();
            }
        }
        sink(&batch)
    }

    fn place(&self, row: usize, _column: usize) -> String {
        format!("{}, node {row}", self.table.name())
    }

    /// Numbers of a list are named by their position, as in `x[3]`. Positions of columns are no names.
    fn names(&self) -> Vec<String> {
        if !self.table.has_names() {
            return Vec::new();
        }
        let names = |k: usize| {
            let name = self.column_name(k).to_string();
            let width = self.widths[k];
            (0..width).map(move |at| if self.is_list[k] { format!("{name}[{at}]") } else { name.clone() })
        };
        (0..self.columns.len()).flat_map(names).collect()
    }
}
