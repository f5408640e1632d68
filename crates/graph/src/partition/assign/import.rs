//! Imported assignments: an `.npy` array, or METIS's text format with one part per line.

use std::path::Path;

use super::{Assignment, check_parts};
use crate::error::{Error, Result};
use crate::io::npy::{Array, DType};
use crate::io::text::Records;

impl Assignment {
    /// Reads the parts of `nodes` vertices: an array of integers if the name ends in `.npy`, else text with one part per
    /// line.
    pub fn read(path: &Path, nodes: usize, parts: u32) -> Result<Assignment> {
        check_parts(parts)?;
        let is_array = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"));
        let of = if is_array { array(path, nodes, parts)? } else { text(path, nodes, parts)? };
        Ok(Assignment { parts, of })
    }
}

fn array(path: &Path, nodes: usize, parts: u32) -> Result<Vec<u32>> {
    let array = Array::open(path)?;
    let dtype = &array.header.dtype;
    if matches!(dtype, DType::Bool | DType::F16 | DType::F32 | DType::F64 | DType::Other(_)) {
        let problem = format!("elements of type {} where integers are needed", dtype.descr());
        return Err(Error::input(&array.name, problem).help("save it with .astype('int32')"));
    }
    if array.header.shape != [nodes] {
        let problem = format!("shape {:?} where the graph has {nodes} nodes", array.header.shape);
        return Err(
            Error::input(&array.name, problem).help("give one part per node, in the order of the dataset")
        );
    }
    let mut of = Vec::with_capacity(nodes);
    let mut chunk = [0; 4096];
    while of.len() < nodes {
        let start = of.len();
        let values = &mut chunk[..(nodes - start).min(4096)];
        array.read_i64(start, values)?;
        for (k, &value) in values.iter().enumerate() {
            of.push(checked(value, parts, || format!("{}, element {}", array.name, start + k))?);
        }
    }
    Ok(of)
}

fn text(path: &Path, nodes: usize, parts: u32) -> Result<Vec<u32>> {
    let mut records = Records::open(path, b',')?;
    let mut of = Vec::new();
    while records.read()?.is_some() {
        let place = || format!("{}, line {}", path.display(), records.line());
        if of.len() == nodes {
            return Err(wrong_count(place(), "more lines than", nodes));
        }
        let word = records.record().iter().next().unwrap_or_default();
        let value = match word.parse::<i64>() {
            Ok(value) if records.record().len() == 1 => value,
            _ => {
                let line: Vec<&str> = records.record().iter().collect();
                return Err(Error::input(place(), format!("{:?} where a part is needed", line.join(",")))
                    .help("line v must hold the part of node v, counted from 0"));
            }
        };
        of.push(checked(value, parts, place)?);
    }
    if of.len() < nodes {
        return Err(wrong_count(path.display().to_string(), &format!("{} lines for", of.len()), nodes));
    }
    Ok(of)
}

fn wrong_count(place: String, what: &str, nodes: usize) -> Error {
    Error::input(place, format!("{what} the {nodes} nodes of the graph"))
        .help("give one part per node, in the order of the dataset")
}

fn checked(value: i64, parts: u32, place: impl Fn() -> String) -> Result<u32> {
    u32::try_from(value).ok().filter(|&part| part < parts).ok_or_else(|| {
        Error::input(place(), format!("part {value} where parts are numbered 0 to {}", parts - 1))
            .help("set -k to the number of parts in the file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::npy::{Element, Writer};

    fn file(name: &str, contents: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        (folder, path)
    }

    fn from_text(contents: &str) -> Result<Assignment> {
        let (_folder, path) = file("graph.part.3", contents.as_bytes());
        Assignment::read(&path, 4, 3)
    }

    fn from_array<T: Element>(shape: &[usize], elements: &[T]) -> Result<Assignment> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parts.npy");
        let mut writer = Writer::create(&path, shape)?;
        writer.write(elements)?;
        writer.finish()?;
        Assignment::read(&path, 4, 3)
    }

    #[test]
    fn text_and_every_integer_type_are_read() {
        let expected = [2, 0, 1, 0];
        assert_eq!(from_text("2\n0\n1\n0\n").unwrap().of(), expected);
        assert_eq!(from_text("2\r\n0\r\n 1 \r\n0").unwrap().of(), expected);
        assert_eq!(from_array(&[4], &[2i8, 0, 1, 0]).unwrap().of(), expected);
        assert_eq!(from_array(&[4], &[2u16, 0, 1, 0]).unwrap().of(), expected);
        assert_eq!(from_array(&[4], &[2i64, 0, 1, 0]).unwrap().of(), expected);
        assert_eq!(from_array(&[4], &[2u64, 0, 1, 0]).unwrap().of(), expected);
    }

    #[test]
    fn errors_name_file_and_position() {
        let assert_error = |outcome: Result<Assignment>, words: &[&str]| {
            let message = outcome.unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        };
        assert_error(from_text("0\n1\nx\n0\n"), &["graph.part.3, line 3", "\"x\""]);
        assert_error(from_text("0\n1\n1 2\n0\n"), &["line 3", "\"1 2\""]);
        assert_error(from_text("0\n1\n1.0\n0\n"), &["line 3"]);
        assert_error(from_text("0\n1\n-1\n0\n"), &["line 3", "part -1", "0 to 2"]);
        assert_error(from_text("0\n1\n3\n0\n"), &["line 3", "part 3", "-k"]);
        assert_error(from_text("0\n1\n1\n"), &["3 lines for the 4 nodes"]);
        assert_error(from_text("0\n1\n1\n0\n0\n"), &["line 5", "more lines"]);
        assert_error(from_array(&[4], &[0i32, 1, -5, 0]), &["parts.npy, element 2", "part -5"]);
        assert_error(from_array(&[4], &[0u64, 1, u64::MAX, 0]), &["element 2"]);
        assert_error(from_array(&[3], &[0i32, 1, 0]), &["[3]", "4 nodes"]);
        assert_error(from_array(&[2, 2], &[0i32, 1, 0, 0]), &["[2, 2]"]);
        assert_error(from_array(&[4], &[0f32, 1.0, 0.0, 0.0]), &["<f4", "integers"]);
        assert_error(Assignment::read(Path::new("nowhere.npy"), 4, 3), &["nowhere.npy", "cannot open"]);
    }
}
