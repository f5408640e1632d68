//! Writing tables as parquet: columns of whole numbers, 32-bit floats or text, none of them optional.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{Type, TypePtr};

use crate::error::{Error, Result};

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit whole numbers.
    Int,
    /// 32-bit floats.
    Real,
    /// Text.
    Text,
}

/// Some rows of a column.
pub enum ColumnValues {
    /// Of a column of [`ColumnType::Int`].
    Ints(Vec<i64>),
    /// Of a column of [`ColumnType::Real`].
    Reals(Vec<f32>),
    /// Of a column of [`ColumnType::Text`].
    Texts(Vec<String>),
}

/// A parquet file that is written group of rows by group of rows.
pub struct TableWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
}

impl TableWriter {
    /// Creates the file `path` with these columns.
    pub fn create(path: &Path, columns: &[(String, ColumnType)]) -> Result<Self> {
        let at = |e| failed(path, "create", e);
        let schema = schema(columns).map_err(at)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = File::create_new(path).map_err(|e| failed(path, "create", e.into()))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(at)?;
        Ok(TableWriter { path: path.to_path_buf(), writer })
    }

    /// Appends rows: the same number of each column, in the order of the columns.
    pub fn write(&mut self, columns: Vec<ColumnValues>) -> Result<()> {
        let mut group = self.writer.next_row_group().map_err(|e| failed(&self.path, "write", e))?;
        let mut written = columns.into_iter().try_for_each(|values| put_values(&mut group, values));
        if written.is_ok() {
            written = group.close().map(drop);
        }
        written.map_err(|e| failed(&self.path, "write", e))
    }

    /// Writes the footer and syncs the file.
    pub fn finish(self) -> Result<()> {
        let TableWriter { path, writer } = self;
        let file = writer.into_inner().map_err(|e| failed(&path, "write", e))?;
        file.sync_all().map_err(|e| failed(&path, "write", e.into()))
    }
}

fn schema(columns: &[(String, ColumnType)]) -> Result<TypePtr, ParquetError> {
    let field = |(name, kind): &(String, ColumnType)| {
        let (physical, logical) = match kind {
            ColumnType::Int => (PhysicalType::INT64, None),
            ColumnType::Real => (PhysicalType::FLOAT, None),
            ColumnType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        builder.with_logical_type(logical).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder("table").with_fields(fields).build().map(Arc::new)
}

fn put_values(group: &mut SerializedRowGroupWriter<File>, values: ColumnValues) -> Result<(), ParquetError> {
    match values {
        ColumnValues::Ints(values) => put::<Int64Type>(group, &values),
        ColumnValues::Reals(values) => put::<FloatType>(group, &values),
        ColumnValues::Texts(values) => {
            let values: Vec<ByteArray> = values.into_iter().map(|text| text.into_bytes().into()).collect();
            put::<ByteArrayType>(group, &values)
        }
    }
}

fn put<T: DataType>(group: &mut SerializedRowGroupWriter<File>, values: &[T::T]) -> Result<(), ParquetError> {
    let more = || ParquetError::General("more columns than in the schema".into());
    let mut column = group.next_column()?.ok_or_else(more)?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

/// Turns an error of the writer, which is one of the system or a mistake of the caller, into one with its file.
fn failed(path: &Path, action: &'static str, error: ParquetError) -> Error {
    let source = match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(other) => std::io::Error::other(other),
        },
        other => std::io::Error::other(other),
    };
    Error::Io { path: path.to_path_buf(), action, source }
}
