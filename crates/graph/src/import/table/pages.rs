//! Looking over a parquet file before the decoder sees it.
//!
//! The decoder believes what headers say: it makes room for as many children, dictionary entries and bytes of a page
//! as are claimed, and follows a schema as deep as it goes. So the claims of the schema and of every page that will
//! be decoded are held against the bytes that are there, with room to spare for honest compression.

use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;

use super::thrift::{I32, LIST, Reader, STRUCT};

type Result<T> = std::result::Result<T, String>;

const MAGIC: &[u8] = b"PAR1";
/// A page may always unpack to this many bytes: writers aim at 1 MiB…
const MIN_PAGE: u64 = 4 << 20;
/// …and to this many times its packed size, which is as far as gzip goes.
const MAX_RATIO: u64 = 1100;
/// A column chunk may always hold this many values…
const MIN_VALUES: u64 = 4 << 20;
/// …and this many a byte: runs of equal values take next to nothing.
const MAX_VALUES_A_BYTE: u64 = 4096;
/// Schema elements may be nested this deep.
const MAX_DEPTH: usize = 32;
/// Encodings whose decoder makes room only for what it finds: plain, dictionary (two names), runs, deltas of
/// integers, split bytes.
const ENCODINGS: [i64; 6] = [0, 2, 8, 3, 5, 9];

/// Checks that `file` has a footer whose schema is what it claims to be.
pub(super) fn check_footer(file: &[u8]) -> Result<()> {
    let cut = "not a parquet file, or one that was cut short";
    let (rest, magic) = file.split_last_chunk::<4>().ok_or(cut)?;
    let (rest, length) = rest.split_last_chunk::<4>().ok_or(cut)?;
    if magic != MAGIC {
        return Err(format!("{cut} (it does not end in PAR1)"));
    }
    let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
    let start = start.ok_or("its footer claims to be longer than the file")?;
    check_schema(&mut Reader::new(&rest[start..])).map_err(|e| format!("damaged footer: {e}"))
}

/// Walks the schema, a tree in depth-first order.
fn check_schema(footer: &mut Reader) -> super::thrift::Result<()> {
    let mut last = 0;
    while let Some(field) = footer.field(&mut last)? {
        if field != (2, LIST) {
            footer.skip(field.1)?;
            continue;
        }
        let (_, mut left) = footer.list()?;
        // Children still to come, for every open group.
        let mut open: Vec<i64> = Vec::new();
        while left > 0 {
            left -= 1;
            let children = schema_children(footer)?;
            if children < 0 || children > left as i64 {
                return Err("a group claims more columns than there are");
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

/// The number of children that the next schema element claims.
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

/// Checks all pages of a column chunk that should hold `rows` rows, or at least as many values if it holds lists.
pub(super) fn check_chunk(file: &[u8], chunk: &ColumnChunkMetaData, rows: u64) -> Result<()> {
    let bytes = chunk_bytes(file, chunk).ok_or("its place is beyond the end of the file")?;
    let lists = chunk.column_descr().max_rep_level() > 0;
    let (mut at, mut values) = (0, 0u64);
    while at < bytes.len() {
        let mut reader = Reader::new(&bytes[at..]);
        let page = PageHeader::read(&mut reader).map_err(|e| format!("damaged page header: {e}"))?;
        at += reader.position();
        let packed = page.packed.filter(|&n| n <= (bytes.len() - at) as u64);
        let packed = packed.ok_or("a page claims more bytes than its column has")?;
        page.check(packed, chunk)?;
        at += packed as usize;
        values = values.saturating_add(page.data.map_or(0, |(values, _)| values));
    }
    if values > MIN_VALUES.saturating_add(MAX_VALUES_A_BYTE.saturating_mul(bytes.len() as u64)) {
        return Err(format!("{values} values claimed in {} bytes", bytes.len()));
    }
    if values < rows || (values > rows && !lists) {
        return Err(format!("its pages hold {values} values where {rows} rows are claimed"));
    }
    Ok(())
}

fn chunk_bytes<'a>(file: &'a [u8], chunk: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(usize::try_from(chunk.compressed_size()).ok()?)?;
    file.get(start..end)
}

/// What a page says of itself. Numbers that cannot be are `None`, or too large for any check.
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

    /// Holds the claims of a page of `packed` bytes against them.
    fn check(&self, packed: u64, chunk: &ColumnChunkMetaData) -> Result<()> {
        let unpacked = self.unpacked.unwrap_or(u64::MAX);
        if unpacked > MIN_PAGE.max(packed.saturating_mul(MAX_RATIO)) {
            return Err(format!("a page of {packed} bytes claims to unpack to {unpacked}"));
        }
        let there = if chunk.compression() == Compression::UNCOMPRESSED { packed } else { unpacked };
        let entry = match chunk.column_type() {
            Type::INT64 | Type::DOUBLE => 8,
            Type::BOOLEAN => 1,
            _ => 4,
        };
        if let Some(entries) = self.dictionary.filter(|&n| n > there / entry) {
            return Err(format!("a dictionary of {there} bytes claims {entries} entries"));
        }
        match self.data {
            Some((_, encoding)) if !ENCODINGS.contains(&encoding) => {
                Err(format!("its encoding (number {encoding}) is not supported"))
            }
            _ => Ok(()),
        }
    }
}

/// Number of values (field 1) and encoding (field `encoding`) of a page's own header.
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
    fn schemas_must_be_as_they_claim() {
        let (group, leaf) = ([0x55, 4, 0], [0]);
        assert!(footer(&[&group[..], &leaf, &leaf].concat(), 3).is_ok());
        let claims_100 = [0x55, 200, 1, 0];
        let error = footer(&[&claims_100[..], &leaf].concat(), 2).unwrap_err();
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
    fn a_page_may_claim_no_more_than_its_bytes_could_hold() {
        use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type as Schema};
        let leaf = Schema::primitive_type_builder("x", Type::INT64).build().unwrap();
        let column = ColumnDescriptor::new(leaf.into(), 0, 0, ColumnPath::from("x"));
        let chunk = ColumnChunkMetaData::builder(column.into()).build().unwrap();
        let page = |unpacked: u64, packed: u64| {
            PageHeader { unpacked: Some(unpacked), ..PageHeader::default() }.check(packed, &chunk)
        };
        assert!(page(4 << 20, 100).is_ok() && page(100 << 20, 1 << 20).is_ok());
        assert!(page(8 << 20, 100).unwrap_err().contains("claims to unpack to 8388608"));
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
