//! Files of predictions: `.npy`, CSV or parquet, written atomically.
//!
//! A table has a column `id`; then `class`, or for multi-label data a column `class_NAME` of 0 and 1 for each class; then
//! `p_NAME` or `logit_NAME` for each class. Embeddings are `id`, `e0`, `e1`….

#[cfg(feature = "parquet")]
mod parquet;
mod predictions;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::io::npy;
use halograph_train::run::folder_of;

pub use predictions::{Chosen, Classes, NodeIds, Output, PredictedClasses, Predictions};

/// Name of the column of ids.
const ID: &str = "id";
/// Name of the column of predicted classes.
const CLASS: &str = "class";

/// The format of a file of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// A numpy array, without ids: of f32, or of predicted classes i64 or, for multi-label data, u8.
    Npy,
    /// A header, then one line per node.
    Csv,
    /// A parquet file.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl RowFormat {
    /// The endings of the names of files.
    #[cfg(feature = "parquet")]
    pub const ENDINGS: &str = ".npy, .csv or .parquet";
    /// The endings of the names of files.
    #[cfg(not(feature = "parquet"))]
    pub const ENDINGS: &str = ".npy or .csv";

    /// Returns the format that the name of a file implies; `None` if it is none of [`RowFormat::ENDINGS`].
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "npy" => Some(RowFormat::Npy),
            "csv" => Some(RowFormat::Csv),
            #[cfg(feature = "parquet")]
            "parquet" => Some(RowFormat::Parquet),
            _ => None,
        }
    }

    /// Returns whether the format is a table with ids and column names.
    pub fn is_table(self) -> bool {
        self != RowFormat::Npy
    }
}

/// Refuses a folder, a file in a folder that does not exist and, unless `overwrite`, a file that exists. Call it before the rows are computed.
pub fn may_write(path: &Path, overwrite: bool) -> Result<()> {
    if path.is_dir() {
        return Err(Error::input(path.display(), "is a folder")
            .help("give the name of a file, as in predictions.csv"));
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(Error::input(path.display(), format!("there is no folder {}", folder.display()))
            .help("create it, or choose another folder"));
    }
    if !overwrite && path.symlink_metadata().is_ok() {
        return Err(Error::input(path.display(), "exists already")
            .help("choose another file, or replace it with --overwrite"));
    }
    Ok(())
}

/// Writes a table to a file atomically: a temporary file is renamed when it is complete. Fails if the file exists, unless
/// `overwrite`.
pub fn write(table: &Predictions, path: &Path, format: RowFormat, overwrite: bool) -> Result<()> {
    let folder = folder_of(path);
    // Errors name `path`, not the hidden file.
    let with_path = |error| match error {
        Error::Io { action, source, .. } => Error::Io { path: path.to_path_buf(), action, source },
        other => other,
    };
    let hidden = tempfile::Builder::new().prefix(".predict-").tempdir_in(folder).at(path, "create")?;
    let partial = hidden.path().join("rows");
    match format {
        RowFormat::Npy => write_npy(table, &partial).map_err(with_path)?,
        #[cfg(feature = "parquet")]
        RowFormat::Parquet => parquet::write(table, &partial).map_err(with_path)?,
        RowFormat::Csv => {
            let mut out = BufWriter::new(File::create(&partial).at(path, "create")?);
            write_csv(table, &mut out).at(path, "write")?;
            let file = out.into_inner().map_err(|e| e.into_error()).at(path, "write")?;
            file.sync_all().at(path, "write")?;
        }
    }
    let partial = tempfile::TempPath::try_from_path(partial).at(path, "create")?;
    let named = if overwrite { partial.persist(path) } else { partial.persist_noclobber(path) };
    named.map_err(|e| e.error).at(path, "create")?;
    File::open(folder).and_then(|f| f.sync_all()).at(folder, "write")
}

/// Writes the numbers or, if there are none, the predicted classes.
fn write_npy(table: &Predictions, path: &Path) -> Result<()> {
    fn array<T: npy::Element>(path: &Path, shape: &[usize], values: &[T]) -> Result<()> {
        let mut writer = npy::Writer::create(path, shape)?;
        writer.write(values)?;
        writer.finish().map(drop)
    }
    match (&table.numbers, &table.classes) {
        (Some(numbers), _) => array(path, &[numbers.rows(), numbers.cols()], numbers.data()),
        (None, Some(PredictedClasses::Flags(flags))) => {
            array(path, &[flags.rows(), flags.cols()], flags.data())
        }
        (None, Some(PredictedClasses::One(classes))) => {
            let classes: Vec<i64> = classes.iter().map(|&class| i64::from(class)).collect();
            array(path, &[classes.len()], &classes)
        }
        (None, None) => array::<f32>(path, &[table.rows(), 0], &[]),
    }
}

/// Writes a header, then one line per node. Numbers read back as the same f32.
pub fn write_csv(table: &Predictions, out: &mut dyn Write) -> std::io::Result<()> {
    let names: Vec<String> = table.header().iter().map(|name| field(name)).collect();
    writeln!(out, "{}", names.join(","))?;
    let classes: Vec<String> = table.class_names.iter().map(|name| field(name)).collect();
    for row in 0..table.rows() {
        match &table.ids {
            NodeIds::Numbers(ids) => write!(out, "{}", ids[row])?,
            NodeIds::Texts(ids) => write!(out, "{}", field(&ids[row]))?,
        }
        match &table.classes {
            None => {}
            Some(PredictedClasses::One(found)) => write!(out, ",{}", classes[found[row] as usize])?,
            Some(PredictedClasses::Flags(flags)) => {
                flags.run(row..row + 1).iter().try_for_each(|flag| write!(out, ",{flag}"))?;
            }
        }
        if let Some(numbers) = &table.numbers {
            numbers.run(row..row + 1).iter().try_for_each(|x| write!(out, ",{x}"))?;
        }
        writeln!(out)?;
    }
    out.flush()
}

impl Predictions {
    /// Returns the names of all columns.
    fn header(&self) -> Vec<String> {
        let mut names = vec![ID.to_string()];
        match &self.classes {
            None => {}
            Some(PredictedClasses::One(_)) => names.push(CLASS.into()),
            Some(PredictedClasses::Flags(_)) => names.extend(self.flag_columns()),
        }
        if self.numbers.is_some() {
            names.extend(self.columns.iter().cloned());
        }
        names
    }

    /// Returns the names of the columns of flags.
    fn flag_columns(&self) -> Vec<String> {
        self.class_names.iter().map(|name| format!("{CLASS}_{name}")).collect()
    }
}

/// Returns a text as a field of CSV: in quotes if it contains a delimiter, a quote or a line break.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use halograph_graph::dataset::Task;
    use halograph_nn::Matrix;

    use super::*;

    fn embeddings() -> Predictions {
        let rows = Matrix::new(2, 3, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        Predictions::of_embeddings(&rows, &Chosen { nodes: &[0, 1], ids: None })
    }

    fn predictions(task: Task, output: Output) -> Predictions {
        let logits = Matrix::new(2, 2, vec![1.0, -1.0, 0.25, 4.0]);
        let ids = ["a,b".to_string(), "plain".into()];
        let names = ["x \"y\"".to_string(), "z".into()];
        let classes = Classes { task, count: 2, names: &names };
        Predictions::of_logits(&logits, &Chosen { nodes: &[0, 1], ids: Some(&ids) }, &classes, output)
    }

    fn csv(table: &Predictions) -> String {
        let mut out = Vec::new();
        write_csv(table, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_are_quoted_where_needed() {
        let text = csv(&predictions(Task::SingleLabel, Output::Logits));
        let expected =
            "id,class,\"logit_x \"\"y\"\"\",logit_z\n\"a,b\",\"x \"\"y\"\"\",1,-1\nplain,z,0.25,4\n";
        assert_eq!(text, expected);
        let text = csv(&predictions(Task::MultiLabel, Output::Classes));
        assert_eq!(text, "id,\"class_x \"\"y\"\"\",class_z\n\"a,b\",1,0\nplain,1,1\n");
        assert_eq!(csv(&embeddings()), "id,e0,e1,e2\n0,0,1,2\n1,3,4,5\n");
    }

    #[test]
    fn classes_alone_are_whole_numbers_in_npy() {
        let folder = tempfile::tempdir().unwrap();
        let [one, flags] = ["one.npy", "flags.npy"].map(|name| folder.path().join(name));
        write(&predictions(Task::SingleLabel, Output::Classes), &one, RowFormat::Npy, false).unwrap();
        assert_eq!(npy::Array::open(&one).unwrap().as_slice::<i64>().unwrap(), [0, 1]);
        write(&predictions(Task::MultiLabel, Output::Classes), &flags, RowFormat::Npy, false).unwrap();
        let array = npy::Array::open(&flags).unwrap();
        assert_eq!(
            (array.header.shape.as_slice(), array.as_slice::<u8>().unwrap()),
            (&[2, 2][..], &[1, 0, 1, 1][..])
        );
    }

    #[test]
    fn no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&embeddings(), &path, RowFormat::Npy, false).unwrap();
        let array = npy::Array::open(&path).unwrap();
        assert_eq!(array.header.shape, [2, 3]);
        assert_eq!(array.as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn existing_files_are_kept_unless_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        std::fs::write(&path, "mine").unwrap();
        assert!(may_write(&path, false).is_err() && may_write(&path, true).is_ok());
        assert!(write(&embeddings(), &path, RowFormat::Npy, false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        write(&embeddings(), &path, RowFormat::Npy, true).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), b"mine");
        assert!(may_write(folder.path(), true).is_err());
    }
}
