//! Text files, plain or gzipped, read as records of comma- or tab-separated fields.
//!
//! A record may span lines inside quotes; its length is limited ([`MAX_RECORD`]). Every message names file and line.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use csv::{ErrorKind, StringRecord};
use flate2::read::MultiGzDecoder;

use crate::error::{Error, Result};

/// Longest record, in bytes.
pub const MAX_RECORD: usize = 16 << 20;
/// Longest record of several lines. A missing quote would otherwise include the rest of the file.
const MAX_QUOTED: usize = 1 << 20;
const BUFFER: usize = 1 << 16;

/// A reader of separated fields. Trims fields; accepts quotes, CRLF and a byte-order mark.
pub struct Records {
    path: PathBuf,
    gzipped: bool,
    reader: csv::Reader<Lines>,
    record: StringRecord,
    count: Rc<Count>,
}

/// Position in the bytes passed to the parser.
#[derive(Default)]
struct Count {
    /// Number of lines, including the current one.
    lines: Cell<u64>,
    /// Bytes since the last complete record.
    since_record: Cell<usize>,
    /// First line of the current record; 0 if none has begun.
    record_line: Cell<u64>,
    /// Whether the current record is too long.
    endless: Cell<bool>,
    /// Whether the parser has reached the end.
    ended: Cell<bool>,
}

/// Passes a file to the parser line by line, so that the parser buffers only the current record and the number of lines
/// passed is its line number. The last line always gets a line end: a record that ends only with the file then has an
/// unclosed quote.
struct Lines {
    inner: Box<dyn BufRead>,
    at_start: bool,
    count: Rc<Count>,
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = if self.at_start { MAX_QUOTED } else { MAX_RECORD };
        if self.count.since_record.get() > limit {
            self.count.endless.set(true);
            let problem = format!("more than {limit} bytes without an end of line (or of a quote)");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let bytes = self.inner.fill_buf()?;
        let bytes = &bytes[..bytes.len().min(buffer.len())];
        let n = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |end| end + 1);
        buffer[..n].copy_from_slice(&bytes[..n]);
        self.inner.consume(n);
        if n > 0 {
            self.count.lines.set(self.count.lines.get() + u64::from(self.at_start));
            self.count.since_record.set(self.count.since_record.get() + n);
            self.at_start = buffer[n - 1] == b'\n';
            if self.count.record_line.get() == 0 && buffer[..n].iter().any(|b| !matches!(b, b'\r' | b'\n')) {
                self.count.record_line.set(self.count.lines.get());
            }
        } else if !self.at_start && !buffer.is_empty() {
            self.at_start = true;
            buffer[0] = b'\n';
            return Ok(1);
        } else {
            self.count.ended.set(true);
        }
        Ok(n)
    }
}

impl Records {
    /// Opens `path`, decompressing it if the name ends in `.gz`. All records must have the same number of fields.
    pub fn open(path: &Path, delimiter: u8) -> Result<Records> {
        let file = super::open(path)?;
        let gzipped = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        let inner: Box<dyn BufRead> = if gzipped {
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(BufReader::new(file))))
        } else {
            Box::new(BufReader::with_capacity(BUFFER, file))
        };
        let count = Rc::new(Count::default());
        let reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .has_headers(false)
            .trim(csv::Trim::All)
            .buffer_capacity(BUFFER)
            .from_reader(Lines { inner, at_start: true, count: count.clone() });
        Ok(Records { path: path.to_path_buf(), gzipped, reader, record: StringRecord::new(), count })
    }

    /// Reads the next record; `None` at the end. Skips empty lines.
    pub fn read(&mut self) -> Result<Option<&StringRecord>> {
        self.count.record_line.set(0);
        let outcome = self.reader.read_record(&mut self.record);
        let failed = outcome.as_ref().is_err_and(csv::Error::is_io_error);
        if self.count.ended.get() && !failed && !matches!(outcome, Ok(false)) {
            return Err(Error::input(self.record_place(), "an unclosed quote")
                .help("the file may be truncated; a quote inside a quoted field is written twice"));
        }
        let more = outcome.map_err(|e| self.explain(e))?;
        self.count.since_record.set(0);
        Ok(more.then_some(&self.record))
    }

    /// Returns the last record read.
    pub fn record(&self) -> &StringRecord {
        &self.record
    }

    /// Returns the last line of the last record read, counted from 1.
    pub fn line(&self) -> u64 {
        self.count.lines.get()
    }

    /// Returns the position of the first line of the current record.
    fn record_place(&self) -> String {
        format!("{}, line {}", self.path.display(), self.count.record_line.get().max(1))
    }

    fn explain(&self, error: csv::Error) -> Error {
        let place = format!("{}, line {}", self.path.display(), self.line().max(1));
        match error.into_kind() {
            ErrorKind::Io(source) => self.explain_io(place, source),
            ErrorKind::UnequalLengths { expected_len, len, .. } => {
                Error::input(place, format!("{len} fields where the lines before have {expected_len}"))
                    .help("give all lines the same fields; a field that holds the delimiter needs quotes")
            }
            ErrorKind::Utf8 { err, .. } => {
                Error::input(format!("{place}, column {}", err.field()), "not UTF-8 text")
                    .help("save the file in UTF-8")
            }
            other => Error::input(place, format!("{other:?}")),
        }
    }

    fn explain_io(&self, place: String, source: io::Error) -> Error {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match source.kind() {
            _ if self.count.endless.get() => Error::input(self.record_place(), source)
                .help("check that it is a text file, and the delimiter (--delimiter)"),
            InvalidData | InvalidInput | UnexpectedEof if self.gzipped => {
                Error::input(place, format!("damaged or truncated gzip data ({source})"))
                    .help("download or compress the file again")
            }
            _ => Error::Io { path: self.path.clone(), action: "read", source },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(path: &Path) -> Result<Vec<Vec<String>>> {
        let mut records = Records::open(path, b',')?;
        let mut out = Vec::new();
        while let Some(record) = records.read()? {
            out.push(record.iter().map(String::from).collect());
        }
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn read(name: &str, bytes: &[u8]) -> Result<Vec<Vec<String>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        all(&path)
    }

    #[test]
    fn quotes_crlf_and_byte_order_mark_are_understood() {
        let got = read("a.csv", b"\xef\xbb\xbfid,name\r\n\r\n 1 ,\"a, \"\"b\"\"\nc\"\r\n").unwrap();
        assert_eq!(got, [["id", "name"], ["1", "a, \"b\"\nc"]]);
    }

    #[test]
    fn gzip_reads_like_plain_and_members_follow_each_other() {
        let mut bytes = gzip(b"1,2\n");
        bytes.extend(gzip(b"3,4\n"));
        assert_eq!(read("a.csv.gz", &bytes).unwrap(), [["1", "2"], ["3", "4"]]);
    }

    #[test]
    fn every_prefix_of_a_gzip_file_is_an_error_by_name() {
        let bytes = gzip(b"1,2\n3,4\n");
        for end in 0..bytes.len() {
            let error = read("a.csv.gz", &bytes[..end]).unwrap_err().to_string();
            assert!(error.contains("a.csv.gz, line") && error.contains("gzip"), "{end}: {error}");
        }
        let mut trailing = bytes.clone();
        trailing.extend(b"rest");
        assert!(read("a.csv.gz", &trailing).unwrap_err().to_string().contains("gzip"));
    }

    #[test]
    fn faults_name_the_line() {
        let error = read("a.csv", b"1,2\r\n\r\n\"a\nb\",2\r\n3\r\n").unwrap_err().to_string();
        assert!(error.contains("a.csv, line 5: 1 fields"), "{error}");
        let error = read("a.csv", b"1,2\n\n3\n").unwrap_err().to_string();
        assert!(error.contains("a.csv, line 3: 1 fields where the lines before have 2\n  help: "), "{error}");
        let error = read("a.csv", b"1,2\n3,\xff\n").unwrap_err().to_string();
        assert!(error.contains("a.csv, line 2, column 1: not UTF-8 text\n  help: "), "{error}");
    }

    #[test]
    fn quotes_must_be_closed() {
        for (text, line) in [
            ("1,2\n\n3,\"4", 3),
            ("1,2\n3,\"4\n", 2),
            ("1,2\n\"3,4\n5,6\n", 2),
            ("\"", 1),
            ("1,2\n3,\"a\"\"", 2),
        ] {
            let error = read("a.csv", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("a.csv, line {line}: an unclosed quote")), "{text:?}: {error}");
        }
        for text in ["1,\"2\"", "1,\"2\"\n", "1,\"2\"\r", "1,2\"", "1,a\"b", "1,\"2\"\n\n\n"] {
            assert_eq!(read("a.csv", text.as_bytes()).unwrap().len(), 1, "{text:?}");
        }
    }

    #[test]
    fn endless_records_are_refused() {
        let packed = gzip(&vec![b'7'; 4 * MAX_RECORD]);
        assert!(read("a.csv.gz", &packed).unwrap_err().to_string().contains("without an end of line"));
        let mut quoted = b"1\n\"".to_vec();
        quoted.extend(b"1\n".repeat(MAX_QUOTED));
        let error = read("a.csv", &quoted).unwrap_err().to_string();
        assert!(error.contains("a.csv, line 2: more than 1048576 bytes without an end of line"), "{error}");
        let wide = [vec![b'7'; 2 * MAX_QUOTED], b"\n8\n".to_vec()].concat();
        assert_eq!(read("a.csv", &wide).unwrap().len(), 2);
    }
}
