//! Checks of a parquet file before it is decoded.
//!
//! The decoder trusts headers: it allocates memory for the stated numbers of children, dictionary entries and page bytes,
//! and recurses as deep as the schema. So the schema and every page header are checked against the size of the file, with
//! a generous margin for compression.

use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;

use super::thrift::{I32, LIST, Reader, STRUCT};

type Result<T> = std::result::Result<T, String>;

const MAGIC: &[u8] = b"PAR1";
/// Uncompressed size that is allowed for any page: writers aim at 1 MiB…
const MIN_PAGE: u64 = 4 << 20;
/// …and largest compression ratio above that, the limit of gzip.
const MAX_RATIO: u64 = 1100;
/// Number of values that is allowed in any column chunk…
const MIN_VALUES: u64 = 4 << 20;
/// …and number of values per byte above that: runs of equal values compress well.
const MAX_VALUES_A_BYTE: u64 = 4096;
/// Maximum depth of the schema.
const MAX_DEPTH: usize = 32;
/// Encodings whose decoder allocates no unverified size: plain, dictionary (two numbers), run length, integer deltas, byte
/// stream split.
const ENCODINGS: [i64; 6] = [0, 2, 8, 3, 5, 9];

/// Checks the footer of `file` and its schema.
pub(super) fn check_footer(file: &[u8]) -> Result<()> {
    let cut = "not a parquet file, or a truncated one";
    let (rest, magic) = file.split_last_chunk::<4>().ok_or(cut)?;
    let (rest, length) = rest.split_last_chunk::<4>().ok_or(cut)?;
    if magic != MAGIC {
        return Err(format!("{cut} (it does not end in PAR1)"));
    }
    let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
    let start = start.ok_or("the stated length of the footer is larger than the file")?;
    check_schema(&mut Reader::new(&rest[start..])).map_err(|e| format!("damaged footer: {e}"))
}

/// Checks the schema, a tree in depth-first order.
fn check_schema(footer: &mut Reader) -> super::thrift::Result<()> {
    let mut last = 0;
    while let Some(field) = footer.field(&mut last)? {
        if field != (2, LIST) {
            footer.skip(field.1)?;
            continue;
        }
        let (_, mut left) = footer.list()?;
        // Number of children still to come, for every open group.
        let mut open: Vec<i64> = Vec::new();
        while left > 0 {
            left -= 1;
            let children = schema_children(footer)?;
            if children < 0 || children > left as i64 {
                return Err("a group states more columns than there are");
            }
            open.push(children);
            if open.len() > MAX_DEPTH {
                return Err("columns are nested too deeply");
            }
            while open.last() == Some(&0) {
                open.pop();
                if let Some(siblings) = open.last_mut() {
                    *siblings -= 1;
                }
            }
        }
    }
    Ok(())
}

/// Returns the stated number of children of the next schema element.
fn schema_children(footer: &mut Reader) -> super::thrift::Result<i64> {
    let (mut last, mut children) = (0, 0);
    while let Some((id, kind)) = footer.field(&mut last)? {
        match (id, kind) {
            (5, I32) => children = footer.int()?,
            _ => footer.skip(kind)?,
        }
    }
    Ok(children)
}

/// Checks all pages of a column chunk of `rows` rows, which has as many values, or more if it holds lists.
pub(super) fn check_chunk(file: &[u8], chunk: &ColumnChunkMetaData, rows: u64) -> Result<()> {
    let bytes = chunk_bytes(file, chunk).ok_or("its position is beyond the end of the file")?;
    let lists = chunk.column_descr().max_rep_level() > 0;
    let (mut at, mut values) = (0, 0u64);
    while at < bytes.len() {
        let mut reader = Reader::new(&bytes[at..]);
        let page = PageHeader::read(&mut reader).map_err(|e| format!("damaged page header: {e}"))?;
        at += reader.position();
        let packed = page.packed.filter(|&n| n <= (bytes.len() - at) as u64);
        let packed = packed.ok_or("a page is larger than its column")?;
        page.check(packed, chunk)?;
        at += packed as usize;
        values = values.saturating_add(page.data.map_or(0, |(values, _)| values));
    }
    if values > MIN_VALUES.saturating_add(MAX_VALUES_A_BYTE.saturating_mul(bytes.len() as u64)) {
        return Err(format!("{values} values in {} bytes", bytes.len()));
    }
    if values < rows || (values > rows && !lists) {
        return Err(format!("its pages hold {values} values for {rows} rows"));
    }
    Ok(())
}

fn chunk_bytes<'a>(file: &'a [u8], chunk: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(usize::try_from(chunk.compressed_size()).ok()?)?;
    file.get(start..end)
}

/// A page header. Negative numbers become `None`, or too large for any check.
#[derive(Default)]
struct PageHeader {
    unpacked: Option<u64>,
    packed: Option<u64>,
    /// Values and encoding of a data page.
    data: Option<(u64, i64)>,
    /// Entries of a dictionary page.
    dictionary: Option<u64>,
}

impl PageHeader {
    fn read(reader: &mut Reader) -> super::thrift::Result<PageHeader> {
        let mut page = PageHeader::default();
        let mut last = 0;
        while let Some((id, kind)) = reader.field(&mut last)? {
            match (id, kind) {
                (2, I32) => page.unpacked = u64::try_from(reader.int()?).ok(),
                (3, I32) => page.packed = u64::try_from(reader.int()?).ok(),
                (5, STRUCT) => page.data = Some(counts(reader, 2)?),
                (7, STRUCT) => page.dictionary = Some(counts(reader, 2)?.0),
                (8, STRUCT) => page.data = Some(counts(reader, 4)?),
                _ => reader.skip(kind)?,
            }
        }
        Ok(page)
    }

    /// Checks the header of a page of `packed` bytes.
    fn check(&self, packed: u64, chunk: &ColumnChunkMetaData) -> Result<()> {
        let unpacked = self.unpacked.unwrap_or(u64::MAX);
        if unpacked > MIN_PAGE.max(packed.saturating_mul(MAX_RATIO)) {
            return Err(format!("a page of {packed} bytes states an uncompressed size of {unpacked}"));
        }
        let there = if chunk.compression() == Compression::UNCOMPRESSED { packed } else { unpacked };
        let entry = match chunk.column_type() {
            Type::INT64 | Type::DOUBLE => 8,
            Type::BOOLEAN => 1,
            _ => 4,
        };
        if let Some(entries) = self.dictionary.filter(|&n| n > there / entry) {
            return Err(format!("a dictionary of {there} bytes states {entries} entries"));
        }
        match self.data {
            Some((_, encoding)) if !ENCODINGS.contains(&encoding) => {
                Err(format!("its encoding (number {encoding}) is not supported"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the number of values (field 1) and encoding (field `encoding`) of a page's own header.
fn counts(reader: &mut Reader, encoding: i64) -> super::thrift::Result<(u64, i64)> {
    let (mut last, mut found) = (0, (u64::MAX, -1));
    while let Some((id, kind)) = reader.field(&mut last)? {
        match (id, kind) {
            (1, I32) => found.0 = u64::try_from(reader.int()?).unwrap_or(u64::MAX),
            (id, I32) if id == encoding => found.1 = reader.int()?,
            _ => reader.skip(kind)?,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer(elements: &[u8], count: u8) -> Result<()> {
        // 2: a list of `count` structures.
        let mut file = vec![0x29, 0xfc, count];
        file.extend(elements);
        file.push(0);
        let length = file.len() as u32;
        file.extend(length.to_le_bytes());
        file.extend(MAGIC);
        check_footer(&file)
    }

    #[test]
    fn schemas_must_be_consistent() {
        let (group, leaf) = ([0x55, 4, 0], [0]);
        assert!(footer(&[&group[..], &leaf, &leaf].concat(), 3).is_ok());
        let states_100 = [0x55, 200, 1, 0];
        let error = footer(&[&states_100[..], &leaf].concat(), 2).unwrap_err();
        assert!(error.contains("more columns than there are"), "{error}");
        let chain = [0x55, 2, 0].repeat(100);
        assert!(footer(&[&chain[..], &leaf].concat(), 101).unwrap_err().contains("too deeply"));
        assert!(footer(&leaf, 100).unwrap_err().contains("more elements than there are bytes"));
    }

    #[test]
    fn footers_must_fit_the_file() {
        for file in [&b""[..], b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PARE"] {
            assert!(check_footer(file).is_err());
        }
    }

    #[test]
    fn page_sizes_are_limited_by_the_compressed_size() {
        use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type as Schema};
        let leaf = Schema::primitive_type_builder("x", Type::INT64).build().unwrap();
        let column = ColumnDescriptor::new(leaf.into(), 0, 0, ColumnPath::from("x"));
        let chunk = ColumnChunkMetaData::builder(column.into()).build().unwrap();
        let page = |unpacked: u64, packed: u64| {
            PageHeader { unpacked: Some(unpacked), ..PageHeader::default() }.check(packed, &chunk)
        };
        assert!(page(4 << 20, 100).is_ok() && page(100 << 20, 1 << 20).is_ok());
        assert!(page(8 << 20, 100).unwrap_err().contains("an uncompressed size of 8388608"));
    }

    #[test]
    fn page_headers_are_read_in_both_versions() {
        // 1: type, 2: 100 bytes unpacked, 3: 50 packed, 5: 7 values in encoding 8.
        let v1 = [0x15, 0, 0x15, 200, 1, 0x15, 100, 0x2c, 0x15, 14, 0x15, 16, 0, 0];
        let page = PageHeader::read(&mut Reader::new(&v1)).unwrap();
        assert_eq!((page.unpacked, page.packed, page.data), (Some(100), Some(50), Some((7, 8))));
        // The same with 8: 7 values, no nulls, 7 rows, encoding 0.
        let v2 = [0x15, 6, 0x15, 200, 1, 0x15, 100, 0x5c, 0x15, 14, 0x15, 0, 0x15, 14, 0x15, 0, 0, 0];
        let page = PageHeader::read(&mut Reader::new(&v2)).unwrap();
        assert_eq!(page.data, Some((7, 0)));
        // 7: a dictionary of -1 entries is larger than any.
        let dictionary = [0x7c, 0x15, 1, 0, 0];
        assert_eq!(PageHeader::read(&mut Reader::new(&dictionary)).unwrap().dictionary, Some(u64::MAX));
    }
}
