//! Flags of the table importers: which files and columns to read.

use std::path::PathBuf;

use clap::Args;
use halograph_graph::import::{Dialect, TableSpec};

/// Columns are named by header or by position, counted from 0.
#[derive(Args)]
pub struct TableArgs {
    /// The node table, if it is not nodes.* in the source folder.
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Edge column of sources [default: src, source or from, else the first].
    #[arg(long, value_name = "COLUMN")]
    src_col: Option<String>,
    /// Edge column of destinations [default: dst, target or to, else the second].
    #[arg(long, value_name = "COLUMN")]
    dst_col: Option<String>,
    /// Edge column of weights [default: weight or edge_weight, if it is there].
    #[arg(long, visible_alias = "weight-column", value_name = "COLUMN")]
    weight_col: Option<String>,
    /// Node column of ids [default: id, node or node_id, else the first].
    #[arg(long, value_name = "COLUMN")]
    id_col: Option<String>,
    /// Node column of classes [default: label, y or class, else no node has a label]; several are multi-label columns of 0
    /// and 1.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    label_col: Vec<String>,
    /// Node column of the split: 0-3 or none, train, val, test [default: split, if it is there].
    #[arg(long, value_name = "COLUMN")]
    split_col: Option<String>,
    /// Node columns of features: names, positions, ranges as 3-130, prefixes as x* [default: all other numbers].
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with = "feature_file")]
    feature_cols: Vec<String>,
    /// An array of features instead, rows in the order of the node table.
    #[arg(long, value_name = "FILE.npy")]
    feature_file: Option<PathBuf>,
}

impl From<TableArgs> for TableSpec {
    fn from(args: TableArgs) -> TableSpec {
        TableSpec {
            nodes: args.nodes,
            features: args.feature_file,
            src: args.src_col,
            dst: args.dst_col,
            weight: args.weight_col,
            id: args.id_col,
            labels: args.label_col,
            split: args.split_col,
            feature_columns: args.feature_cols,
        }
    }
}

/// How text files are laid out.
#[derive(Args)]
pub struct CsvArgs {
    /// The first line is data already; columns are known by position.
    #[arg(long)]
    no_header: bool,
    /// What stands between fields: one character, or `tab` [default: a tab in .tsv files, else a comma].
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
}

impl From<CsvArgs> for Dialect {
    fn from(args: CsvArgs) -> Dialect {
        Dialect { header: !args.no_header, delimiter: args.delimiter }
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("one ASCII character other than a quote, or `tab`, is needed".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_parse() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter("\\t"), Ok(b'\t'));
        assert_eq!(delimiter(";"), Ok(b';'));
        for bad in ["", "ab", "\"", "é"] {
            assert!(delimiter(bad).is_err(), "{bad}");
        }
    }
}
