//! Tables as parquet.

use std::ops::Range;
use std::path::Path;

use halograph_graph::error::Result;
use halograph_graph::io::parquet::{ColumnType, ColumnValues, TableWriter};

use super::predictions::{NodeIds, PredictedClasses, Predictions};

/// Rows per row group.
const GROUP: usize = 1 << 16;

/// Writes a table to the new file `path` and syncs it.
pub(super) fn write(table: &Predictions, path: &Path) -> Result<()> {
    let mut writer = TableWriter::create(path, &columns(table))?;
    for start in (0..table.rows()).step_by(GROUP) {
        writer.write(values(table, start..table.rows().min(start + GROUP)))?;
    }
    writer.finish()
}

fn columns(table: &Predictions) -> Vec<(String, ColumnType)> {
    let id = match table.ids {
        NodeIds::Numbers(_) => ColumnType::Int,
        NodeIds::Texts(_) => ColumnType::Text,
    };
    let class = if table.has_names { ColumnType::Text } else { ColumnType::Int };
    let mut columns = vec![(super::ID.to_string(), id)];
    match &table.classes {
        None => {}
        Some(PredictedClasses::One(_)) => columns.push((super::CLASS.into(), class)),
        Some(PredictedClasses::Flags(_)) => {
            columns.extend(table.flag_columns().into_iter().map(|name| (name, ColumnType::Int)));
        }
    }
    if table.numbers.is_some() {
        columns.extend(table.columns.iter().map(|name| (name.clone(), ColumnType::Real)));
    }
    columns
}

fn values(table: &Predictions, rows: Range<usize>) -> Vec<ColumnValues> {
    let mut values = vec![match &table.ids {
        NodeIds::Numbers(ids) => ColumnValues::Ints(ids[rows.clone()].to_vec()),
        NodeIds::Texts(ids) => ColumnValues::Texts(ids[rows.clone()].to_vec()),
    }];
    match &table.classes {
        None => {}
        Some(PredictedClasses::One(classes)) => {
            let classes = classes[rows.clone()].iter();
            values.push(match table.has_names {
                true => ColumnValues::Texts(
                    classes.map(|&class| table.class_names[class as usize].clone()).collect(),
                ),
                false => ColumnValues::Ints(classes.map(|&class| i64::from(class)).collect()),
            });
        }
        Some(PredictedClasses::Flags(flags)) => {
            let (flags, width) = (flags.run(rows.clone()), flags.cols());
            let column = |c| column(flags, width, c).map(|&flag| i64::from(flag)).collect();
            values.extend((0..width).map(|c| ColumnValues::Ints(column(c))));
        }
    }
    if let Some(numbers) = &table.numbers {
        let (numbers, width) = (numbers.run(rows), numbers.cols());
        values.extend((0..width).map(|c| ColumnValues::Reals(column(numbers, width, c).copied().collect())));
    }
    values
}

/// Returns one column of rows of `width` values.
fn column<T>(values: &[T], width: usize, column: usize) -> impl Iterator<Item = &T> {
    values.iter().skip(column).step_by(width.max(1))
}
