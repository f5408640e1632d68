//! Columns of parquet files, decoded in batches of rows.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::basic::{ConvertedType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

use super::Cell;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Real,
    Text,
    List,
    Unreadable,
}

impl Kind {
    pub(super) fn of(column: &ColumnDescriptor) -> Kind {
        let decimal = column.converted_type() == ConvertedType::DECIMAL;
        let kind = match column.physical_type() {
            _ if decimal => Kind::Unreadable,
            Type::BOOLEAN | Type::INT32 | Type::INT64 => Kind::Int,
            Type::FLOAT | Type::DOUBLE => Kind::Real,
            Type::BYTE_ARRAY => Kind::Text,
            _ => Kind::Unreadable,
        };
        match (column.max_rep_level(), kind) {
            (0, kind) => kind,
            (1, Kind::Int | Kind::Real) => Kind::List,
            _ => Kind::Unreadable,
        }
    }
}

thread_local! {
    static PANIC_EXPECTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns whether a panic on this thread would be caught now and become an error, so that a panic hook need not report
/// it.
pub fn panic_expected() -> bool {
    PANIC_EXPECTED.get()
}

/// Runs a part of the decoder, which may panic on damaged files instead of returning an error. Its partial results are
/// dropped.
pub(super) fn decode<T>(work: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    PANIC_EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    PANIC_EXPECTED.set(false);
    match outcome {
        Ok(result) => result.map_err(|e| format!("damaged or unsupported parquet data: {e}")),
        Err(_) => Err("damaged parquet data".into()),
    }
}

/// Range of the value (or list) of a row among the values of its batch; `None` is null.
type ValueRange = Option<(usize, usize)>;

/// One column of a cursor over a file.
pub(super) struct Column {
    /// Number in the file.
    pub at: usize,
    pub name: String,
    kind: Kind,
    /// Meaning of its integers.
    integers: ConvertedType,
    /// Definition level of a value that is not null.
    present: i16,
    /// The decoder of the current row group.
    pub reader: Option<ColumnReader>,
    values: Values,
    rows: Vec<ValueRange>,
}

/// Values of a batch that are not null.
enum Values {
    Ints(Vec<i64>),
    Reals(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Texts(Vec<String>),
    Lists(Vec<f32>),
}

impl Column {
    pub(super) fn new(at: usize, name: String, kind: Kind, column: &ColumnDescriptor) -> Column {
        Column {
            at,
            name,
            kind,
            integers: column.converted_type(),
            present: column.max_def_level(),
            reader: None,
            values: Values::Ints(Vec::new()),
            rows: Vec::new(),
        }
    }

    /// Returns the cell in row `row` of the batch.
    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        let Some((start, end)) = self.rows[row] else { return Cell::Null };
        match &self.values {
            Values::Ints(values) => Cell::Int(values[start]),
            Values::Reals(values) => Cell::Real(values[start]),
            Values::Texts(values) => Cell::Text(&values[start]),
            Values::Lists(values) => Cell::List(&values[start..end]),
            Values::Bytes(_) => Cell::Null,
        }
    }

    /// Decodes the next `n` rows. An error holds its row, counted from the start of the batch.
    pub(super) fn read(&mut self, n: usize) -> Result<(), (usize, String)> {
        let mut levels = Levels::default();
        let Some(reader) = &mut self.reader else { return Err((0, "no row group was begun".into())) };
        let values = decode(|| read_values(reader, n, &mut levels)).map_err(|problem| (0, problem))?;
        self.rows = levels.rows(n, self.present, self.kind == Kind::List)?;
        self.values = match (self.kind, self.integers, values) {
            (Kind::List, ConvertedType::UINT_32, Values::Ints(x)) => {
                Values::Lists(x.into_iter().map(|x| x as u32 as f32).collect())
            }
            (Kind::List, ConvertedType::UINT_64, Values::Ints(x)) => {
                Values::Lists(x.into_iter().map(|x| x as u64 as f32).collect())
            }
            (Kind::List, _, Values::Ints(x)) => Values::Lists(x.into_iter().map(|x| x as f32).collect()),
            (Kind::List, _, Values::Reals(x)) => Values::Lists(x.into_iter().map(|x| x as f32).collect()),
            (_, ConvertedType::UINT_32, Values::Ints(x)) => {
                Values::Ints(x.into_iter().map(|x| i64::from(x as u32)).collect())
            }
            // Ids that need all 64 bits become text.
            (_, ConvertedType::UINT_64, Values::Ints(x)) if x.iter().any(|&x| x < 0) => {
                Values::Texts(x.into_iter().map(|x| (x as u64).to_string()).collect())
            }
            (_, _, Values::Bytes(x)) => Values::Texts(self.texts(x)?),
            (_, _, other) => other,
        };
        Ok(())
    }

    fn texts(&self, values: Vec<ByteArray>) -> Result<Vec<String>, (usize, String)> {
        let text = |(k, bytes): (usize, ByteArray)| {
            bytes.as_utf8().map(String::from).map_err(|_| {
                let row = self.rows.iter().position(|row| row.is_some_and(|(start, _)| start == k));
                (row.unwrap_or(0), "text that is not UTF-8".to_string())
            })
        };
        values.into_iter().enumerate().map(text).collect()
    }
}

fn read_values(reader: &mut ColumnReader, n: usize, levels: &mut Levels) -> Result<Values, ParquetError> {
    fn ints<T: Into<i64>>(values: Vec<T>) -> Values {
        Values::Ints(values.into_iter().map(Into::into).collect())
    }
    Ok(match reader {
        ColumnReader::BoolColumnReader(reader) => ints(levels.read(reader, n)?),
        ColumnReader::Int32ColumnReader(reader) => ints(levels.read(reader, n)?),
        ColumnReader::Int64ColumnReader(reader) => ints(levels.read(reader, n)?),
        ColumnReader::FloatColumnReader(reader) => {
            Values::Reals(levels.read(reader, n)?.into_iter().map(f64::from).collect())
        }
        ColumnReader::DoubleColumnReader(reader) => Values::Reals(levels.read(reader, n)?),
        ColumnReader::ByteArrayColumnReader(reader) => Values::Bytes(levels.read(reader, n)?),
        _ => return Err(ParquetError::General("a type that is not read".into())),
    })
}

/// Definition and repetition levels of values, which assign them to rows.
#[derive(Default)]
struct Levels {
    /// Definition level of each value; less than the maximum is null.
    definition: Vec<i16>,
    /// 0 begins a row, anything else continues a list.
    repetition: Vec<i16>,
    records: usize,
    values: usize,
}

impl Levels {
    fn read<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        n: usize,
    ) -> Result<Vec<T::T>, ParquetError> {
        let mut values = Vec::new();
        let (definition, repetition) = (Some(&mut self.definition), Some(&mut self.repetition));
        (self.records, self.values, _) = reader.read_records(n, definition, repetition, &mut values)?;
        Ok(values)
    }

    /// Returns the range of values of each of `n` rows.
    fn rows(&self, n: usize, present: i16, lists: bool) -> Result<Vec<ValueRange>, (usize, String)> {
        let rows = match (lists, present) {
            (true, _) => self.list_rows(present),
            (false, 0) => (0..self.values).map(|k| Some((k, k + 1))).collect(),
            (false, _) => {
                let mut next = 0;
                let mut row = |&level: &i16| {
                    (level == present).then(|| {
                        next += 1;
                        (next - 1, next)
                    })
                };
                self.definition.iter().map(&mut row).collect()
            }
        };
        let there = self.records.min(rows.len());
        if rows.len() != n || self.records != n {
            return Err((there, format!("{there} rows instead of {n}")));
        }
        Ok(rows)
    }

    /// Returns the range of values of each list. A list that is null, is empty or holds a null counts as null.
    fn list_rows(&self, present: i16) -> Vec<ValueRange> {
        let mut rows: Vec<ValueRange> = Vec::new();
        let mut next = 0;
        for (k, &repetition) in self.repetition.iter().enumerate() {
            if repetition == 0 {
                rows.push(Some((next, next)));
            }
            let there = self.definition.get(k).is_none_or(|&level| level == present);
            next += usize::from(there);
            if let Some(row) = rows.last_mut() {
                *row = row.filter(|_| there).map(|(start, _)| (start, next));
            }
        }
        rows
    }
}
