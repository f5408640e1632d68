//! The valid files of each reader, written once into a folder.
//!
//! Planetoid, OGB and GraphSAINT are published files. The other formats hold the karate club, converted: real releases in
//! these formats are too large to be read ten thousand times.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use halograph_graph::dataset::write::FeatureLayout;
use halograph_graph::dataset::{Dataset, EDGE_WEIGHT, LabelView};
use halograph_graph::import::{Dialect, ImportFormat, ImportOptions, TableSpec, import};
use halograph_graph::io::npy::Writer;
use halograph_graph::partition::{self, Assignment, Layout, Origin};
use halograph_graph::{Result, Silent};

pub const READERS: [&str; 17] = [
    "npy",
    "npy-masks",
    "npy-unlabelled",
    "npy-pairs",
    "npz",
    "planetoid",
    "ogb",
    "ogb-binary",
    "graphsaint",
    "csv",
    "parquet",
    "dataset",
    "dataset-splits",
    "shard",
    "npy-sparse",
    "dataset-sparse",
    "shard-sparse",
];

/// The code under test.
#[expect(clippy::large_enum_variant, reason = "there is one per reader")]
pub enum Target {
    Import(ImportFormat),
    /// Both shards and the assignment of a partition into two parts.
    Shards,
    /// `check`, `open` and `info`.
    Dataset,
}

/// The files of one reader.
pub struct Base {
    pub folder: PathBuf,
    /// Path that is passed to the reader.
    pub source: PathBuf,
    pub target: Target,
    /// Names below `folder` and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Writes the files of `reader` below `folder`.
pub fn prepare(reader: &str, data: &Path, folder: &Path) -> Result<Base, String> {
    let base = folder.join("base");
    let copied = |from: &str| copy(&data.join(from), &base);
    let layout = if reader.ends_with("-sparse") { FeatureLayout::Sparse } else { FeatureLayout::Dense };
    let karate = || karate(data, &folder.join("karate"), layout);
    let (target, source) = match reader.trim_end_matches("-sparse") {
        "planetoid" => (Target::Import(ImportFormat::Planetoid), copied("cora").map(|()| base.clone())),
        "ogb" => (
            Target::Import(ImportFormat::Ogb { scheme: None }),
            copied("cora_ogbn_layout").map(|()| base.clone()),
        ),
        "graphsaint" => (
            Target::Import(ImportFormat::GraphSaint),
            copied("karate_graphsaint_layout").map(|()| base.clone()),
        ),
        "npy" => {
            karate()?;
            (
                Target::Import(ImportFormat::Npy { split_index: None }),
                copy(&folder.join("karate"), &base).map(|()| base.clone()),
            )
        }
        "npy-masks" | "npy-unlabelled" => {
            let is_labelled = reader == "npy-masks";
            (Target::Import(ImportFormat::Npy { split_index: None }), arrays(&karate()?, &base, is_labelled))
        }
        "npy-pairs" => {
            (Target::Import(ImportFormat::Npy { split_index: None }), weighted_pairs(&karate()?, &base))
        }
        "dataset-splits" => {
            let source = arrays(&karate()?, &folder.join("arrays"), true).map_err(|e| e.to_string())?;
            let (format, options) = (ImportFormat::Npy { split_index: None }, ImportOptions::default());
            import(&format, &source, &base, &options, &Silent).map_err(|e| e.to_string())?;
            (Target::Dataset, Ok(base.clone()))
        }
        "dataset" => {
            karate()?;
            (Target::Dataset, copy(&folder.join("karate"), &base).map(|()| base.clone()))
        }
        "shard" => (Target::Shards, shards(&karate()?, &base)),
        "npz" => (Target::Import(ImportFormat::Npz { split_index: None }), npz(&karate()?, &base)),
        "ogb-binary" => (Target::Import(ImportFormat::Ogb { scheme: None }), ogb_binary(&karate()?, &base)),
        "csv" => (
            Target::Import(ImportFormat::Csv(TableSpec::default(), Dialect::default())),
            csv(&karate()?, &base),
        ),
        "parquet" => {
            (Target::Import(ImportFormat::Parquet(TableSpec::default())), parquet::write(&karate()?, &base))
        }
        _ => return Err(format!("no reader {reader:?}; there are {}", READERS.join(", "))),
    };
    let source = source.map_err(|e| e.to_string())?;
    let files = contents(&base).map_err(|e| e.to_string())?;
    Ok(Base { folder: base, source, target, files })
}

/// Imports the karate club and gives its edges weights.
fn karate(data: &Path, target: &Path, feature_layout: FeatureLayout) -> Result<Dataset, String> {
    let source = data.join("karate_graphsaint_layout");
    let plain = target.with_extension("plain");
    let options = ImportOptions { feature_layout, ..ImportOptions::default() };
    let weighted = || -> Result<Dataset> {
        import(&ImportFormat::GraphSaint, &source, &plain, &options, &Silent)?;
        let edges = Dataset::open(&plain)?.graph().indices.len();
        let mut writer = Writer::create(&plain.join(EDGE_WEIGHT), &[edges])?;
        writer.write(&vec![0.5f32; edges])?;
        writer.finish()?;
        let again = ImportFormat::Npy { split_index: None };
        import(&again, &plain, target, &options, &Silent)?;
        Dataset::open(target)
    };
    weighted().map_err(|e| e.to_string())
}

/// Writes the shards of a partition into two parts.
fn shards(dataset: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
    let cut = || -> Result<()> {
        let of = (0..dataset.graph().nodes() as u32).map(|v| v % 2).collect();
        let assignment = Assignment::new(2, of)?;
        let layout = Layout::of(dataset, &assignment)?;
        partition::write(base, false, &layout, &Origin::imported(), &Silent).map(drop)
    };
    cut().map(|()| base.to_path_buf()).map_err(std::io::Error::other)
}

/// Copies a folder, subfolders included.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?
        } else {
            fs::write(target, fs::read(entry.path())?)?
        }
    }
    Ok(())
}

/// Returns all files below `folder`.
fn contents(folder: &Path) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("found below it").to_string_lossy().into_owned();
                files.push((name, fs::read(&path)?));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the edges of a dataset, each pair once.
fn pairs(dataset: &Dataset) -> Vec<[i64; 2]> {
    let graph = dataset.graph();
    let all = (0..graph.nodes()).flat_map(|v| graph.row(v).iter().map(move |&u| [u as i64, v as i64]));
    all.filter(|[u, v]| u < v).collect()
}

fn classes(dataset: &Dataset) -> &[i64] {
    match dataset.labels() {
        LabelView::Single(labels) => labels,
        LabelView::Multi { .. } => &[],
    }
}

/// Returns the bytes of an `.npy` file.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while (11 + text.len()) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), data].concat()
}

fn le<T: Copy, const N: usize>(numbers: &[T], bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| bytes(x)).collect()
}

fn archive(path: &Path, members: &[(&str, Vec<u8>)]) -> std::io::Result<()> {
    let mut zip = zip::ZipWriter::new(fs::File::create(path)?);
    for (i, (name, data)) in members.iter().enumerate() {
        let method = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated][i % 2];
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(format!("{name}.npy"), options)?;
        zip.write_all(data)?;
    }
    zip.finish()?;
    Ok(())
}

/// Writes a folder of plain arrays with two splits as masks; without labels if not `is_labelled`.
fn arrays(karate: &Dataset, base: &Path, is_labelled: bool) -> std::io::Result<PathBuf> {
    fs::create_dir_all(base)?;
    let (graph, n) = (karate.graph(), karate.graph().nodes());
    let x: &[f32] = karate.features().as_slice().unwrap_or(&[]);
    let put = |name: &str, descr: &str, shape: &str, data: &[u8]| {
        fs::write(base.join(name), npy(descr, shape, data))
    };
    put("indptr.npy", "<u8", &format!("({},)", n + 1), &le(graph.indptr, u64::to_le_bytes))?;
    put("indices.npy", "<u4", &format!("({},)", graph.indices.len()), &le(graph.indices, u32::to_le_bytes))?;
    put("x.npy", "<f4", &format!("({n}, {})", x.len() / n), &le(x, f32::to_le_bytes))?;
    if is_labelled {
        put("y.npy", "<i8", &format!("({n},)"), &le(classes(karate), i64::to_le_bytes))?;
    }
    for (part, name) in [(1, "train_mask"), (2, "val_mask"), (0, "test_mask")] {
        let flag = |v: usize| u8::from(v % 3 == part);
        // The second split has training and validation nodes in the place of each other.
        let flags: Vec<u8> = (0..n).map(flag).chain((0..n).map(|v| flag([0, 2, 1][v % 3]))).collect();
        put(&format!("{name}.npy"), "|b1", &format!("(2, {n})"), &flags)?;
    }
    Ok(base.to_path_buf())
}

/// Writes pairs of nodes with weights and sparse features, whose number of columns nothing states.
fn weighted_pairs(karate: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(base)?;
    let (pairs, n) = (pairs(karate), karate.graph().nodes());
    let ends: Vec<i64> = pairs.iter().flatten().copied().collect();
    let weights: Vec<f32> = (0..pairs.len()).map(|edge| edge as f32 / 4.0).collect();
    // Two features for each node.
    let starts: Vec<u64> = (0..=n as u64).map(|v| 2 * v).collect();
    let columns: Vec<u32> = (0..n as u32).flat_map(|v| [v % 7, 7 + v]).collect();
    let shape = |len: usize| format!("({len},)");
    let put = |name: &str, descr: &str, shape: &str, data: &[u8]| {
        fs::write(base.join(format!("{name}.npy")), npy(descr, shape, data))
    };
    put("edge_index", "<i8", &format!("({}, 2)", pairs.len()), &le(&ends, i64::to_le_bytes))?;
    put("edge_weight", "<f4", &shape(pairs.len()), &le(&weights, f32::to_le_bytes))?;
    put("feat_indptr", "<u8", &shape(n + 1), &le(&starts, u64::to_le_bytes))?;
    put("feat_indices", "<u4", &shape(2 * n), &le(&columns, u32::to_le_bytes))?;
    put("feat_values", "<f4", &shape(2 * n), &le(&vec![0.5f32; 2 * n], f32::to_le_bytes))?;
    put("y", "<i8", &shape(n), &le(classes(karate), i64::to_le_bytes))?;
    Ok(base.to_path_buf())
}

/// Writes the gnn-benchmark layout: both matrices in compressed rows.
fn npz(karate: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
    let (graph, n) = (karate.graph(), karate.graph().nodes());
    let x: &[f32] = karate.features().as_slice().unwrap_or(&[]);
    let cols = karate.features().cols();
    let used: Vec<usize> = (0..x.len()).filter(|&i| x[i] != 0.0).collect();
    let starts: Vec<i32> = (0..=n).map(|v| used.partition_point(|&i| i < v * cols) as i32).collect();
    let columns: Vec<i32> = used.iter().map(|&i| (i % cols) as i32).collect();
    let values: Vec<f32> = used.iter().map(|&i| x[i]).collect();
    let indptr: Vec<i32> = graph.indptr.iter().map(|&s| s as i32).collect();
    let shape = |len: usize| format!("({len},)");
    let e = graph.indices.len();
    let members = [
        ("adj_data", npy("<f4", &shape(e), &le(&vec![1f32; e], f32::to_le_bytes))),
        ("adj_indices", npy("<i4", &shape(e), &le(graph.indices, u32::to_le_bytes))),
        ("adj_indptr", npy("<i4", &shape(n + 1), &le(&indptr, i32::to_le_bytes))),
        ("adj_shape", npy("<i8", "(2,)", &le(&[n as i64; 2], i64::to_le_bytes))),
        ("attr_data", npy("<f4", &shape(used.len()), &le(&values, f32::to_le_bytes))),
        ("attr_indices", npy("<i4", &shape(used.len()), &le(&columns, i32::to_le_bytes))),
        ("attr_indptr", npy("<i4", &shape(n + 1), &le(&starts, i32::to_le_bytes))),
        ("attr_shape", npy("<i8", "(2,)", &le(&[n as i64, cols as i64], i64::to_le_bytes))),
        ("labels", npy("<i8", &shape(n), &le(classes(karate), i64::to_le_bytes))),
    ];
    fs::create_dir_all(base)?;
    let path = base.join("karate.npz");
    archive(&path, &members)?;
    Ok(path)
}

/// Writes the array form of OGB.
fn ogb_binary(karate: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
    let (pairs, n) = (pairs(karate), karate.graph().nodes());
    let ends: Vec<i64> = [0, 1].iter().flat_map(|&end| pairs.iter().map(move |pair| pair[end])).collect();
    let x: &[f32] = karate.features().as_slice().unwrap_or(&[]);
    let classes: Vec<f32> =
        classes(karate).iter().map(|&c| if c < 0 { f32::NAN } else { c as f32 }).collect();
    fs::create_dir_all(base.join("raw"))?;
    fs::create_dir_all(base.join("split/time"))?;
    let members = [
        ("edge_index", npy("<i8", &format!("(2, {})", pairs.len()), &le(&ends, i64::to_le_bytes))),
        ("node_feat", npy("<f4", &format!("({n}, {})", x.len() / n), &le(x, f32::to_le_bytes))),
        ("num_nodes_list", npy("<i8", "(1,)", &le(&[n as i64], i64::to_le_bytes))),
        ("num_edges_list", npy("<i8", "(1,)", &le(&[pairs.len() as i64], i64::to_le_bytes))),
    ];
    archive(&base.join("raw/data.npz"), &members)?;
    let label = [("node_label", npy("<f4", &format!("({n}, 1)"), &le(&classes, f32::to_le_bytes)))];
    archive(&base.join("raw/node-label.npz"), &label)?;
    for (part, name) in [(1, "train"), (2, "valid"), (3, "test")] {
        let ids = (0..n).filter(|&v| karate.split()[v] == part).map(|v| format!("{v}\n"));
        fs::write(base.join(format!("split/time/{name}.csv")), ids.collect::<String>())?;
    }
    Ok(base.to_path_buf())
}

/// Writes two text tables, one of them gzipped, with text ids.
fn csv(karate: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(base)?;
    let edges =
        pairs(karate).iter().map(|[u, v]| format!("member {u},member {v},{}.5\n", u + v)).collect::<String>();
    fs::write(base.join("edges.csv"), format!("src,dst,weight\n{edges}"))?;
    let x: &[f32] = karate.features().as_slice().unwrap_or(&[]);
    let cols = karate.features().cols();
    let mut out =
        flate2::write::GzEncoder::new(fs::File::create(base.join("nodes.csv.gz"))?, Default::default());
    let names = (0..cols).map(|c| format!(",f{c}")).collect::<String>();
    writeln!(out, "id,label,split{names}")?;
    for (v, row) in x.chunks_exact(cols).enumerate() {
        let values = row.iter().map(|x| format!(",{x}")).collect::<String>();
        writeln!(out, "member {v},{},{}{values}", classes(karate)[v], karate.split()[v])?;
    }
    out.finish()?;
    Ok(base.to_path_buf())
}

mod parquet {
    //! Two tables in parquet.

    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use halograph_graph::Dataset;
    use parquet::data_type::{FloatType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    /// A column and its values.
    enum Column {
        Int(String, Vec<i64>),
        Float(String, Vec<f32>),
    }

    pub fn write(karate: &Dataset, base: &Path) -> std::io::Result<PathBuf> {
        fs::create_dir_all(base)?;
        let (pairs, n) = (super::pairs(karate), karate.graph().nodes());
        let end = |k: usize| pairs.iter().map(|pair| pair[k]).collect();
        table(
            &base.join("edges.parquet"),
            &[
                Column::Int("src".into(), end(0)),
                Column::Int("dst".into(), end(1)),
                Column::Float("weight".into(), vec![0.5; pairs.len()]),
            ],
        )?;
        let x: &[f32] = karate.features().as_slice().unwrap_or(&[]);
        let cols = karate.features().cols();
        let mut columns = vec![
            Column::Int("id".into(), (0..n as i64).collect()),
            Column::Int("label".into(), super::classes(karate).to_vec()),
            Column::Int("split".into(), karate.split().iter().map(|&p| p as i64).collect()),
        ];
        columns.extend(
            (0..cols)
                .map(|c| Column::Float(format!("f{c}"), x.iter().skip(c).step_by(cols).copied().collect())),
        );
        table(&base.join("nodes.parquet"), &columns)?;
        Ok(base.to_path_buf())
    }

    fn table(path: &Path, columns: &[Column]) -> std::io::Result<()> {
        let fields = columns.iter().map(|column| match column {
            Column::Int(name, _) => format!("required int64 {name};"),
            Column::Float(name, _) => format!("required float {name};"),
        });
        let schema = parse_message_type(&format!("message t {{ {} }}", fields.collect::<String>()))?;
        let properties =
            WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build();
        let mut writer =
            SerializedFileWriter::new(fs::File::create(path)?, Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for column in columns {
            let mut out = group.next_column()?.expect("as many columns as fields");
            match column {
                Column::Int(_, values) => out.typed::<Int64Type>().write_batch(values, None, None)?,
                Column::Float(_, values) => out.typed::<FloatType>().write_batch(values, None, None)?,
            };
            out.close()?;
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }
}
