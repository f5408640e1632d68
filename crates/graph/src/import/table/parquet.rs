//! Tables in parquet files.
//!
//! Numbers, booleans, text and lists of numbers are read; rows are counted from 0, as in pandas. A batch of rows and one
//! page per column are in memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use memmap2::Mmap;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::parquet_column::{Column, Kind, decode};
use super::{Cell, RowCursor, Table, TableSpec, pages};
use crate::error::{Error, Result};
use crate::import::RawGraph;
use crate::io::npy;
use crate::progress::Progress;

/// Rows decoded at a time.
const BATCH: usize = 1024;

/// Reads the tables of `source`.
pub(in crate::import) fn read(source: &Path, spec: &TableSpec, progress: &dyn Progress) -> Result<RawGraph> {
    let open = |path: &Path| Ok(Rc::new(ParquetTable::open(path)?) as Rc<dyn Table>);
    super::read(source, spec, &["parquet", "pq"], &open, progress)
}

/// A parquet file.
pub(super) struct ParquetTable {
    path: PathBuf,
    name: String,
    columns: Vec<String>,
    kinds: Vec<Kind>,
    rows: u64,
}

impl ParquetTable {
    pub(super) fn open(path: &Path) -> Result<ParquetTable> {
        let name = path.display().to_string();
        let (file, _) = open_file(path, &name)?;
        let metadata = file.metadata();
        let descriptors = metadata.file_metadata().schema_descr().columns();
        let groups = metadata.row_groups().iter();
        let rows = groups.map(|g| u64::try_from(g.num_rows()).ok()).try_fold(0u64, |n, g| n.checked_add(g?));
        Ok(ParquetTable {
            path: path.to_path_buf(),
            columns: descriptors.iter().map(|column| column_name(column)).collect(),
            kinds: descriptors.iter().map(|column| Kind::of(column)).collect(),
            rows: rows.ok_or_else(|| Error::input(&name, "an impossible number of rows"))?,
            name,
        })
    }
}

/// Returns the name of a column; for a list, that of the list, not of its elements.
fn column_name(column: &ColumnDescriptor) -> String {
    let parts = column.path().parts();
    if column.max_rep_level() > 0 { parts[..1].join(".") } else { parts.join(".") }
}

/// Checks the footer of a file and opens it.
fn open_file(path: &Path, name: &str) -> Result<(SerializedFileReader<File>, Arc<Mmap>)> {
    let map = npy::map(path)?;
    pages::check_footer(&map).map_err(|problem| Error::input(name, problem))?;
    let file = crate::io::open(path)?;
    let reader = decode(|| SerializedFileReader::new(file)).map_err(|problem| Error::input(name, problem))?;
    Ok((reader, map))
}

impl Table for ParquetTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn names_from_first_line(&self) -> bool {
        false
    }

    /// Decides by type. Index columns of pandas (`__index_level_0__`) are not features.
    fn numeric(&self) -> Result<Vec<bool>> {
        let numeric = |kind: &Kind| matches!(kind, Kind::Int | Kind::Real | Kind::List);
        let columns = self.kinds.iter().zip(&self.columns);
        Ok(columns.map(|(kind, name)| numeric(kind) && !name.starts_with("__index_level_")).collect())
    }

    fn len(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn open(&self, columns: &[usize]) -> Result<Box<dyn RowCursor>> {
        let (file, map) = open_file(&self.path, &self.name)?;
        let descriptors = file.metadata().file_metadata().schema_descr().columns();
        if descriptors.len() != self.columns.len() {
            return Err(Error::input(&self.name, "the file changed while it was read"));
        }
        let column = |&at: &usize| match self.kinds[at] {
            Kind::Unreadable => {
                let place = format!("{}, column {}", self.name, self.columns[at]);
                let problem = format!("{} cannot be read", descriptors[at].physical_type());
                Err(Error::input(place, problem).help("store numbers, text, or lists of numbers"))
            }
            kind => Ok(Column::new(at, self.columns[at].clone(), kind, &descriptors[at])),
        };
        let columns = columns.iter().map(column).collect::<Result<_>>()?;
        let name = self.name.clone();
        Ok(Box::new(ParquetRows { file, map, name, columns, group: 0, left: 0, at: 0, len: 0, first: 0 }))
    }
}

/// A cursor over a file: row group by row group, batch by batch.
struct ParquetRows {
    file: SerializedFileReader<File>,
    map: Arc<Mmap>,
    name: String,
    columns: Vec<Column>,
    /// Number of row groups begun.
    group: usize,
    /// Rows of the current group that are not yet decoded.
    left: u64,
    /// Current row in the batch.
    at: usize,
    /// Rows in the batch.
    len: usize,
    /// Row number of the first row of the batch.
    first: u64,
}

impl RowCursor for ParquetRows {
    fn advance(&mut self) -> Result<bool> {
        self.at += 1;
        if self.at < self.len {
            return Ok(true);
        }
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(false);
            }
            self.begin_group()?;
        }
        self.read_batch()?;
        Ok(true)
    }

    fn cell(&self, k: usize) -> Cell<'_> {
        self.columns[k].cell(self.at)
    }

    fn place(&self) -> String {
        format!("{}, row {}", self.name, self.first + self.at as u64)
    }
}

impl ParquetRows {
    fn begin_group(&mut self) -> Result<()> {
        let group = self.file.metadata().row_group(self.group);
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        for column in &mut self.columns {
            let problem = |problem: String| {
                let place = format!("{}, row group {}, column {}", self.name, self.group, column.name);
                Error::input(place, problem)
            };
            let chunk = group.columns().get(column.at).ok_or_else(|| problem("missing".into()))?;
            pages::check_chunk(&self.map, chunk, rows).map_err(problem)?;
            let reader = decode(|| self.file.get_row_group(self.group)?.get_column_reader(column.at));
            column.reader = Some(reader.map_err(problem)?);
        }
        self.group += 1;
        self.left = rows;
        Ok(())
    }

    fn read_batch(&mut self) -> Result<()> {
        self.first += self.len as u64;
        let n = self.left.min(BATCH as u64) as usize;
        for column in &mut self.columns {
            column.read(n).map_err(|(row, problem)| {
                let place = format!("{}, row {}, column {}", self.name, self.first + row as u64, column.name);
                Error::input(place, problem)
            })?;
        }
        (self.at, self.len) = (0, n);
        self.left -= n as u64;
        Ok(())
    }
}
