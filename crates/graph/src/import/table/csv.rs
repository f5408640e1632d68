//! Tables in text files.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Cell, RowCursor, Table, TableSpec};
use crate::error::{Error, Result};
use crate::import::RawGraph;
use crate::io::text::Records;
use crate::progress::Progress;

/// Rows that are read to decide whether a column holds numbers.
const JUDGED: usize = 1000;

/// How fields are separated and named.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// Whether the first line names the columns; otherwise their names are `0`, `1`….
    pub header: bool,
    /// Field separator; by default a tab in `.tsv` files and a comma elsewhere.
    pub delimiter: Option<u8>,
}

impl Default for Dialect {
    fn default() -> Self {
        Dialect { header: true, delimiter: None }
    }
}

/// Reads the tables of `source`.
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
    /// Opens `path` and reads its columns from the first line.
    pub(in crate::import) fn open(path: &Path, dialect: Dialect) -> Result<CsvTable> {
        let delimiter = dialect.delimiter.unwrap_or_else(|| usual_delimiter(path));
        let mut records = Records::open(path, delimiter)?;
        let first = records.read()?;
        let columns: Vec<String> = match first {
            Some(names) if dialect.header => names.iter().map(String::from).collect(),
            Some(fields) => (0..fields.len()).map(|k| k.to_string()).collect(),
            None if dialect.header => {
                return Err(Error::input(path.display(), "empty: no line of column names"));
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

    fn names_from_first_line(&self) -> bool {
        self.header
    }

    fn has_names(&self) -> bool {
        self.header
    }

    /// A column counts as numeric unless its first rows hold words and no number: words beside numbers are errors to
    /// report. Empty fields and `nan` are neither; a column of only those is numeric, so that it is reported too.
    fn numeric(&self) -> Result<Vec<bool>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let (mut numbers, mut words) = (vec![false; all.len()], vec![false; all.len()]);
        let mut rows = self.rows(&all)?;
        let mut left = JUDGED;
        while left > 0 && rows.advance()? {
            left -= 1;
            for &k in &all {
                let Cell::Text(text) = rows.cell(k) else { continue };
                let number = text.parse::<f32>();
                numbers[k] |= number.as_ref().is_ok_and(|x| x.is_finite());
                words[k] |= number.is_err();
            }
        }
        Ok(all.iter().map(|&k| numbers[k] || !words[k]).collect())
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn open(&self, columns: &[usize]) -> Result<Box<dyn RowCursor>> {
        Ok(Box::new(self.rows(columns)?))
    }
}

struct CsvRows {
    records: Records,
    name: String,
    columns: Vec<usize>,
}

impl RowCursor for CsvRows {
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
