//! Tables in text files.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Cell, Rows, Table, TableSpec};
use crate::error::{Error, Result};
use crate::import::RawGraph;
use crate::io::text::Records;
use crate::progress::Progress;

/// How fields are separated and named.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The first line names the columns; otherwise they are called `0`, `1`….
    pub header: bool,
    /// What stands between fields; by default a tab in `.tsv` files and a comma elsewhere.
    pub delimiter: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect { header: true, delimiter: None }
    }
}

/// Reads the tables that `source` stands for.
pub(in crate::import) fn read(
    source: &Path,
    spec: &TableSpec,
    dialect: Dialect,
    progress: &dyn Progress,
) -> Result<RawGraph> {
    let open = |path: &Path| Ok(Rc::new(CsvTable::open(path, dialect)?) as Rc<dyn Table>);
    super::read(source, spec, &["csv", "csv.gz", "tsv", "tsv.gz"], &open, progress)
}

/// A text file of fields.
pub(in crate::import) struct CsvTable {
    path: PathBuf,
    name: String,
    header: bool,
    delimiter: u8,
    columns: Vec<String>,
}

impl CsvTable {
    /// Opens `path` and learns its columns from the first line.
    pub(in crate::import) fn open(path: &Path, dialect: Dialect) -> Result<CsvTable> {
        let delimiter = dialect.delimiter.unwrap_or_else(|| usual_delimiter(path));
        let mut records = Records::open(path, delimiter)?;
        let first = records.read()?;
        let columns: Vec<String> = match first {
            Some(names) if dialect.header => names.iter().map(String::from).collect(),
            Some(fields) => (0..fields.len()).map(|k| k.to_string()).collect(),
            None if dialect.header => {
                return Err(Error::input(path.display(), "empty: not even a line of column names"));
            }
            None => Vec::new(),
        };
        Ok(CsvTable {
            path: path.to_path_buf(),
            name: path.display().to_string(),
            header: dialect.header,
            delimiter,
            columns,
        })
    }

    fn rows(&self, columns: &[usize]) -> Result<CsvRows> {
        let mut records = Records::open(&self.path, self.delimiter)?;
        if self.header {
            records.read()?;
        }
        Ok(CsvRows { records, name: self.name.clone(), columns: columns.to_vec() })
    }
}

fn usual_delimiter(path: &Path) -> u8 {
    let name = path.to_string_lossy().to_ascii_lowercase();
    if name.trim_end_matches(".gz").ends_with(".tsv") { b'\t' } else { b',' }
}

impl Table for CsvTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    /// As the first row has it; an empty field counts as a number, so that it is reported and not passed over.
    fn numeric(&self) -> Result<Vec<bool>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let mut rows = self.rows(&all)?;
        let any = rows.advance()?;
        let number = |k: usize| match rows.cell(k) {
            Cell::Text(text) => text.parse::<f32>().is_ok(),
            _ => true,
        };
        Ok(all.iter().map(|&k| !any || number(k)).collect())
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn open(&self, columns: &[usize]) -> Result<Box<dyn Rows>> {
        Ok(Box::new(self.rows(columns)?))
    }
}

struct CsvRows {
    records: Records,
    name: String,
    columns: Vec<usize>,
}

impl Rows for CsvRows {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.records.read()?.is_some())
    }

    fn cell(&self, k: usize) -> Cell<'_> {
        match self.records.record().get(self.columns[k]) {
            None | Some("") => Cell::Null,
            Some(text) => Cell::Text(text),
        }
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.name, self.records.line())
    }
}
