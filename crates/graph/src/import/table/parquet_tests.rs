//! Import of small parquet files, and errors of damaged ones.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use super::*;
use crate::dataset::{Dataset, LabelView};
use crate::import::{ImportFormat, ImportOptions, ImportReport, import};
use crate::progress::Silent;

const NODES: &str = "message nodes {
    required binary id (utf8); optional int32 label; optional binary split (utf8);
    required float x0; optional double x1; required boolean x2; }";
const EDGES: &str = "message edges { required binary src (utf8); optional binary dst (utf8); }";

type Group<'a> = SerializedRowGroupWriter<'a, File>;

/// Writes the next column: all values, or those whose level is 1 (lists: 2 or 3, with repetition levels).
fn put<T: DataType>(group: &mut Group, values: &[T::T], levels: Option<&[i16]>, repeats: Option<&[i16]>) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, levels, repeats).unwrap();
    column.close().unwrap();
}

fn texts(list: &[&str]) -> Vec<ByteArray> {
    list.iter().map(|&text| ByteArray::from(text)).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::create_dir(folder.path("in")).unwrap();
        folder
    }

    /// Returns the usual three nodes and two edges.
    fn usual(compression: Compression) -> Folder {
        let folder = Folder::new();
        folder.write("edges", EDGES, compression, |group| {
            put::<ByteArrayType>(group, &texts(&["a", "b"]), None, None);
            put::<ByteArrayType>(group, &texts(&["b", "c"]), Some(&[1, 1]), None);
        });
        folder.write("nodes", NODES, compression, |group| {
            put::<ByteArrayType>(group, &texts(&["a", "b", "c"]), None, None);
            put::<Int32Type>(group, &[1, 0], Some(&[1, 0, 1]), None);
            put::<ByteArrayType>(group, &texts(&["train", "test"]), Some(&[1, 0, 1]), None);
            put::<FloatType>(group, &[1.0, 3.0, 5.0], None, None);
            put::<DoubleType>(group, &[2.0, 4.0, 6.5], Some(&[1, 1, 1]), None);
            put::<BoolType>(group, &[true, false, true], None, None);
        });
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, stem: &str) -> PathBuf {
        self.path(&format!("in/{stem}.parquet"))
    }

    /// A new file each time: some file systems flush one that is overwritten.
    fn replace(&self, stem: &str, bytes: &[u8]) {
        fs::remove_file(self.file(stem)).unwrap();
        fs::write(self.file(stem), bytes).unwrap();
    }

    fn write(&self, stem: &str, schema: &str, compression: Compression, fill: impl Fn(&mut Group)) {
        self.write_groups(stem, schema, compression, &[&fill]);
    }

    fn write_groups(
        &self,
        stem: &str,
        schema: &str,
        compression: Compression,
        groups: &[&dyn Fn(&mut Group)],
    ) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let file = File::create(self.file(stem)).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
        for fill in groups {
            let mut group = writer.next_row_group().unwrap();
            fill(&mut group);
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    fn import(&self, spec: TableSpec) -> Result<(ImportReport, Dataset)> {
        let options = ImportOptions { overwrite: true, ..ImportOptions::default() };
        let out = self.path("out");
        let report = import(&ImportFormat::Parquet(spec), &self.path("in"), &out, &options, &Silent)?;
        Ok((report, Dataset::open(&out)?))
    }

    fn fault(&self, spec: TableSpec) -> String {
        let error = self.import(spec).err().expect("an error").to_string();
        error.split_once("/in/").map_or(error.clone(), |(_, rest)| rest.to_string())
    }
}

#[test]
fn every_type_is_read_in_every_compression() {
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
        Compression::LZ4_RAW,
    ] {
        let folder = Folder::usual(compression);
        let (report, data) = folder.import(TableSpec::default()).unwrap();
        assert_eq!((report.edges.read, report.edges.stored), (2, 4));
        assert_eq!(data.graph().indices, [1, 0, 2, 1]);
        let features: &[f32] = data.features().as_slice().unwrap();
        assert_eq!(features, [1.0, 2.0, 1.0, 3.0, 4.0, 0.0, 5.0, 6.5, 1.0]);
        assert!(matches!(data.labels(), LabelView::Single([1, -1, 0])));
        assert_eq!(data.split(), [1, 0, 3]);
        assert_eq!(data.ids().unwrap().unwrap(), ["a", "b", "c"]);
    }
}

#[test]
fn rows_continue_over_batches_and_row_groups() {
    let folder = Folder::new();
    let count = 3000i64;
    let half = |from: i64| {
        move |group: &mut Group| {
            let ids: Vec<i64> = (from..from + count).collect();
            put::<Int64Type>(group, &ids, None, None);
            put::<Int64Type>(group, &ids.iter().map(|id| id % 3).collect::<Vec<_>>(), None, None);
            put::<FloatType>(group, &ids.iter().map(|&id| id as f32).collect::<Vec<_>>(), None, None);
        }
    };
    let schema = "message nodes { required int64 id; required int64 y; required float x; }";
    folder.write_groups("nodes", schema, Compression::SNAPPY, &[&half(0), &half(count)]);
    folder.write(
        "edges",
        "message e { required int64 a; required int64 b; }",
        Compression::SNAPPY,
        |group| {
            put::<Int64Type>(group, &[0, 2999], None, None);
            put::<Int64Type>(group, &[5999, 3000], None, None);
        },
    );
    let (_, data) = folder.import(TableSpec::default()).unwrap();
    let features: &[f32] = data.features().as_slice().unwrap();
    assert!(features.iter().enumerate().all(|(v, &x)| x == v as f32) && features.len() == 6000);
    assert_eq!(data.graph().row(5999), [0]);
}

const LISTS: &str = "message nodes { required int64 id; required int32 y;
    optional group feature (LIST) { repeated group list { optional float element; } } }";

fn with_lists(values: &[f32], levels: &[i16], repeats: &[i16]) -> Folder {
    let folder = Folder::new();
    folder.write("nodes", LISTS, Compression::SNAPPY, |group| {
        put::<Int64Type>(group, &[0, 1], None, None);
        put::<Int32Type>(group, &[0, 1], None, None);
        put::<FloatType>(group, values, Some(levels), Some(repeats));
    });
    folder.write(
        "edges",
        "message e { required int64 a; required int64 b; }",
        Compression::SNAPPY,
        |group| {
            put::<Int64Type>(group, &[0], None, None);
            put::<Int64Type>(group, &[1], None, None);
        },
    );
    folder
}

#[test]
fn a_list_of_numbers_is_several_features() {
    let folder = with_lists(&[1.0, 2.0, 3.0, 4.0], &[3; 4], &[0, 1, 0, 1]);
    let (_, data) = folder.import(TableSpec::default()).unwrap();
    assert_eq!(data.features().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(data.manifest.features, 2);

    let error = with_lists(&[1.0, 2.0, 3.0], &[3; 3], &[0, 1, 0]).fault(TableSpec::default());
    assert!(
        error.starts_with("nodes.parquet, row 1, column feature: a list of 1 where others have 2"),
        "{error}"
    );
    let error = with_lists(&[1.0, 2.0], &[3, 3, 0], &[0, 1, 0]).fault(TableSpec::default());
    assert!(error.starts_with("nodes.parquet, row 1, column feature: an empty cell"), "{error}");
}

#[test]
fn lists_of_unsigned_numbers_are_unsigned() {
    for (element, expected) in [("int32", 4294967295f32), ("int64", 18446744073709551615f32)] {
        let folder = with_lists(&[1.0; 2], &[3; 2], &[0, 0]);
        let unsigned = format!("{element} element (uint_{})", &element[3..]);
        folder.write("nodes", &LISTS.replace("float element", &unsigned), Compression::SNAPPY, |group| {
            put::<Int64Type>(group, &[0, 1], None, None);
            put::<Int32Type>(group, &[0, 1], None, None);
            match element {
                "int32" => put::<Int32Type>(group, &[7, -1], Some(&[3; 2]), Some(&[0; 2])),
                _ => put::<Int64Type>(group, &[7, -1], Some(&[3; 2]), Some(&[0; 2])),
            }
        });
        let (_, data) = folder.import(TableSpec::default()).unwrap();
        assert_eq!(data.features().as_slice::<f32>().unwrap(), [7.0, expected]);
    }
}

#[test]
fn bad_cells_are_named_by_row_and_column() {
    let folder = Folder::usual(Compression::SNAPPY);
    let spec = TableSpec { labels: vec!["x1".into()], ..TableSpec::default() };
    let error = folder.fault(spec);
    assert!(error.starts_with("nodes.parquet, row 2, column x1: 6.5 is a number but not a class"), "{error}");
    let spec =
        TableSpec { split: Some("x2".into()), feature_columns: vec!["split".into()], ..TableSpec::default() };
    let error = folder.fault(spec);
    assert!(error.starts_with("nodes.parquet, row 0, column split: \"train\" is not a number"), "{error}");
    folder.write("edges", EDGES, Compression::SNAPPY, |group| {
        put::<ByteArrayType>(group, &texts(&["a", "z"]), None, None);
        put::<ByteArrayType>(group, &texts(&["b"]), Some(&[1, 0]), None);
    });
    let error = folder.fault(TableSpec::default());
    assert!(
        error.starts_with("edges.parquet, row 1, column src: id \"z\" is not in the node table"),
        "{error}"
    );
    folder.write("edges", EDGES, Compression::SNAPPY, |group| {
        put::<ByteArrayType>(group, &[ByteArray::from("a"), ByteArray::from(vec![0xff])], None, None);
        put::<ByteArrayType>(group, &texts(&["b", "c"]), Some(&[1, 1]), None);
    });
    let error = folder.fault(TableSpec::default());
    assert!(error.starts_with("edges.parquet, row 1, column src: text that is not UTF-8"), "{error}");
}

#[test]
fn truncated_files_are_refused() {
    let folder = Folder::usual(Compression::SNAPPY);
    let bytes = fs::read(folder.file("nodes")).unwrap();
    for end in 0..bytes.len() {
        folder.replace("nodes", &bytes[..end]);
        assert!(folder.import(TableSpec::default()).is_err(), "{end} bytes");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        let folder = Folder::usual(compression);
        let bytes = fs::read(folder.file("nodes")).unwrap();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                folder.replace("nodes", &damaged);
                // Opening and reading is enough: what a dataset is made of is checked elsewhere.
                if let Ok(table) = super::parquet::ParquetTable::open(&folder.file("nodes")) {
                    let all: Vec<usize> = (0..table.columns().len()).collect();
                    let rows = table.open(&all);
                    let _ = rows.and_then(|mut rows| {
                        while rows.advance()? {
                            all.iter().for_each(|&k| drop(rows.cell(k).to_string()));
                        }
                        Ok(())
                    });
                }
            }
        }
    }
}

#[test]
fn encodings_whose_decoder_allocates_unverified_sizes_are_refused() {
    let folder = Folder::usual(Compression::SNAPPY);
    let schema = Arc::new(parse_message_type(EDGES).unwrap());
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false);
    let file = File::create(folder.file("edges")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    put::<ByteArrayType>(&mut group, &texts(&["a", "b"]), None, None);
    put::<ByteArrayType>(&mut group, &texts(&["b", "c"]), Some(&[1, 1]), None);
    group.close().unwrap();
    writer.close().unwrap();
    let error = folder.fault(TableSpec::default());
    assert!(
        error.starts_with("edges.parquet, row group 0, column src: its encoding (number 7) is not"),
        "{error}"
    );
}
