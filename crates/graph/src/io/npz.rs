//! `.npz` archives: a zip of `.npy` members, as `numpy.savez` and `scipy.sparse.save_npz` write them.
//!
//! A stored member is used in place, in the mapped archive. A deflated one is inflated into memory that grows with the
//! decompressed bytes, not with the stated size. Checksums are verified.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use zip::{CompressionMethod, ZipArchive};

use super::npy::{self, Array, Bytes, Header};
use crate::error::{Error, Result};

/// Bytes of a member that are enough for any header.
const PEEK: u64 = 128 * 1024;

/// Maximum number of members: graphs have a dozen, and a directory may list one position many times.
const MAX_MEMBERS: usize = 1000;

/// An open archive.
pub struct Npz {
    name: String,
    map: Arc<Mmap>,
    archive: ZipArchive<Cursor<Mapped>>,
    /// Names without `.npy`, in the order of the archive.
    members: Vec<String>,
}

/// A shared map as a cursor's buffer.
#[derive(Clone)]
struct Mapped(Arc<Mmap>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Npz {
    /// Maps `path` and reads its directory.
    pub fn open(path: &Path) -> Result<Npz> {
        let name = path.display().to_string();
        let map = npy::map(path)?;
        let archive = ZipArchive::new(Cursor::new(Mapped(map.clone()))).map_err(|e| {
            Error::input(&name, format!("not an .npz archive: {e}"))
                .help("the file may be truncated: download it again")
        })?;
        if archive.len() > MAX_MEMBERS {
            let problem = format!("{} members; at most {MAX_MEMBERS} are read", archive.len());
            return Err(Error::input(name, problem));
        }
        let members = archive
            .file_names()
            .map(|member| member.map(|m| m.strip_suffix(".npy").unwrap_or(&m).to_string()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| Error::input(&name, format!("a member with an unreadable name: {e}")))?;
        let npz = Npz { name, map, archive, members };
        npz.check_names()?;
        Ok(npz)
    }

    /// Refuses two members of one name, of which different readers would take different ones.
    fn check_names(&self) -> Result<()> {
        let mut sorted: Vec<&str> = self.names().collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|w| w[0] == w[1]) {
            Some(w) => Err(Error::input(self.place(w[0]), "two members of that name")),
            None if self.archive.has_duplicate_names() => {
                Err(Error::input(&self.name, "two members of one name"))
            }
            None => Ok(()),
        }
    }

    /// Returns the names of all members, without `.npy`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(String::as_str)
    }

    /// Returns the name of the archive, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn place(&self, member: &str) -> String {
        format!("{}[{member}]", self.name)
    }

    fn index(&self, member: &str) -> Option<usize> {
        let member = member.strip_suffix(".npy").unwrap_or(member);
        self.members.iter().position(|m| m == member)
    }

    /// Returns the array `member` (with or without `.npy`), if there is one.
    pub fn get(&self, member: &str) -> Result<Option<Array>> {
        let Some(index) = self.index(member) else { return Ok(None) };
        let place = self.place(member);
        let bytes = self.bytes(index).map_err(|problem| Error::input(&place, problem))?;
        Array::new(place, bytes).map(Some)
    }

    /// Returns the array `member`; the error lists the existing members.
    pub fn need(&self, member: &str) -> Result<Array> {
        self.get(member)?.ok_or_else(|| {
            Error::input(self.place(member), format!("no such member; there are {}", self.list()))
        })
    }

    /// Returns all names in one line.
    pub fn list(&self) -> String {
        // A damaged archive, or one of another kind, may hold thousands.
        const SHOWN: usize = 30;
        let mut shown: Vec<&str> = self.names().take(SHOWN).collect();
        if self.members.len() > SHOWN {
            shown.push("…");
        }
        if shown.is_empty() { "none".into() } else { shown.join(", ") }
    }

    /// Returns the members that hold pickled Python objects, which are never read.
    pub fn objects(&self) -> Vec<&str> {
        let pickled = |&index: &usize| {
            self.peek(index).is_some_and(|h| matches!(&h.dtype, npy::DType::Other(d) if d.ends_with('O')))
        };
        (0..self.members.len()).filter(pickled).map(|index| self.members[index].as_str()).collect()
    }

    /// Returns the header of a member, if it has a readable one.
    fn peek(&self, index: usize) -> Option<Header> {
        let mut archive = self.archive.clone();
        let mut start = Vec::new();
        archive.by_index(index).ok()?.take(PEEK).read_to_end(&mut start).ok()?;
        Header::parse(&start).ok().map(|(header, _)| header)
    }

    /// Returns the checked contents of member number `index`.
    fn bytes(&self, index: usize) -> Result<Bytes, String> {
        let damaged = |e: &dyn std::fmt::Display| format!("damaged: {e}");
        let entry = self.archive.by_index_data(index).map_err(|e| damaged(&e))?;
        if entry.encrypted() {
            return Err("is encrypted; save the archive without a password".into());
        }
        let (method, size, packed) = (entry.compression(), entry.size(), entry.compressed_size());
        if !matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated) {
            return Err(format!("compressed as {method}; only stored and deflated members are read"));
        }
        let mut archive = self.archive.clone();
        let mut member = archive.by_index(index).map_err(|e| damaged(&e))?;
        let start = member.data_start().ok_or("damaged: no contents")?;
        let end = start.checked_add(packed).filter(|&end| end <= self.map.len() as u64);
        let end = end.ok_or("damaged: its end is beyond that of the archive")?;
        if method == CompressionMethod::Deflated {
            let mut data = Vec::new();
            (&mut member).take(size.saturating_add(1)).read_to_end(&mut data).map_err(|e| damaged(&e))?;
            same_length(data.len() as u64, size)?;
            let len = data.len();
            return Ok(Bytes::Owned(Arc::new(data), 0..len));
        }
        same_length(std::io::copy(&mut member, &mut std::io::sink()).map_err(|e| damaged(&e))?, size)?;
        Ok(Bytes::Mapped(self.map.clone(), start as usize..end as usize))
    }
}

fn same_length(there: u64, claimed: u64) -> Result<(), String> {
    match there.cmp(&claimed) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(format!("damaged: {there} bytes instead of {claimed}")),
        std::cmp::Ordering::Greater => Err(format!("damaged: more than {claimed} bytes")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// Returns the bytes of an `.npy` file with any header.
    pub(crate) fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if fortran { "True" } else { "False" };
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        bytes
    }

    /// A list of numbers as an `.npy` file.
    pub(crate) fn list<T: npy::Element>(numbers: &[T]) -> Vec<u8> {
        npy(T::DTYPE.descr(), false, &format!("({},)", numbers.len()), bytemuck::cast_slice(numbers))
    }

    /// A matrix in row order as an `.npy` file.
    pub(crate) fn matrix<T: npy::Element>(rows: usize, cols: usize, numbers: &[T]) -> Vec<u8> {
        npy(T::DTYPE.descr(), false, &format!("({rows}, {cols})"), bytemuck::cast_slice(numbers))
    }

    /// Returns the bytes of an archive.
    pub(crate) fn archive(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, data) in members {
            let options = SimpleFileOptions::default().compression_method(method);
            zip.start_file(format!("{name}.npy"), options).unwrap();
            zip.write_all(data).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn open(bytes: &[u8]) -> Result<Npz> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.npz");
        std::fs::write(&path, bytes).unwrap();
        Npz::open(&path)
    }

    fn sample(method: CompressionMethod) -> Vec<u8> {
        archive(&[("a", list(&[1i32, 2, 3])), ("b", npy("|O", false, "(1,)", b"\x80\x02N."))], method)
    }

    #[test]
    fn stored_members_are_mapped_and_deflated_ones_inflated() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let npz = open(&sample(method)).unwrap();
            assert_eq!(npz.names().collect::<Vec<_>>(), ["a", "b"]);
            for name in ["a", "a.npy"] {
                assert_eq!(npz.need(name).unwrap().to_i64().unwrap(), [1, 2, 3]);
            }
            assert!(npz.get("c").unwrap().is_none());
            let error = npz.need("c").err().unwrap().to_string();
            assert!(error.ends_with("t.npz[c]: no such member; there are a, b"), "{error}");
            assert_eq!(npz.objects(), ["b"]);
        }
    }

    /// Returns where the directory entry of the first member starts.
    fn directory(bytes: &[u8]) -> usize {
        bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap()
    }

    #[test]
    fn lies_of_the_directory_are_refused() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let good = sample(method);
            // Flags, method, checksum, compressed and real length, each in turn.
            for (field, value) in [(8, 1u8), (10, 12), (16, 0x55), (22, 0xFF), (24, 3), (27, 0x7F)] {
                let mut bad = good.clone();
                let at = directory(&bad) + field;
                assert_ne!(bad[at], value);
                bad[at] = value;
                let result = open(&bad).and_then(|npz| npz.need("a"));
                assert!(result.is_err(), "field {field} of a {method} member");
            }
        }
    }

    #[test]
    fn encryption_and_other_methods_are_named() {
        let mut bytes = sample(CompressionMethod::Stored);
        let at = directory(&bytes);
        bytes[at + 8] = 1;
        assert!(open(&bytes).unwrap().need("a").err().unwrap().to_string().contains("encrypted"));
        bytes[at + 8] = 0;
        bytes[at + 10] = 12;
        let error = open(&bytes).unwrap().need("a").err().unwrap().to_string();
        assert!(error.contains("[a]: compressed as"), "{error}");
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut bytes = sample(CompressionMethod::Stored);
        let at = directory(&bytes) - 60;
        bytes[at] ^= 1;
        let npz = open(&bytes).unwrap();
        assert!(npz.get("a").is_err() || npz.get("b").is_err());
    }

    #[test]
    fn two_members_of_one_name_are_refused() {
        let mut bytes = archive(&[("aa", list(&[1i32])), ("ab", list(&[2i32]))], CompressionMethod::Stored);
        let at: Vec<usize> = (0..bytes.len() - 6).filter(|&i| &bytes[i..i + 6] == b"ab.npy").collect();
        at.iter().for_each(|&i| bytes[i + 1] = b'a');
        assert!(open(&bytes).err().unwrap().to_string().contains("two members of"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damage_never_panics(cut in 0usize..700, at in 0usize..700, value: u8, deflate: bool) {
            let method = if deflate { CompressionMethod::Deflated } else { CompressionMethod::Stored };
            let mut bytes = sample(method);
            let at = at % bytes.len();
            bytes[at] = value;
            for bytes in [&bytes[..], &bytes[..cut.min(bytes.len())]] {
                if let Ok(npz) = open(bytes) {
                    npz.objects();
                    let _ = npz.names().map(|name| npz.get(name)).collect::<Vec<_>>();
                }
            }
        }
    }
}
