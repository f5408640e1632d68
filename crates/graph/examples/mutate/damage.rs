//! Ways to damage a file.

use std::io::{Cursor, Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use halograph_kernels::keyed::Key;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// Numbers that break sizes, counts and offsets.
const EDGES: [u64; 8] = [0, 1, 0x7F, 0xFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, u64::MAX];
const WORDS: [&[u8]; 10] = [
    b"nan",
    b"-1",
    b"99999999999999999999",
    b"4294967295",
    b"1e308",
    b"\"",
    b",",
    b"\n",
    b"(((((((",
    b"\0\0\0\0",
];

/// Returns a damaged copy of the file `name`. Half of the compressed files are damaged inside and compressed again: else
/// their checksums would hide the damage from the reader.
pub fn damage_file(name: &str, original: &[u8], key: Key) -> Vec<u8> {
    let inside = key.below(2, 2) == 0;
    let repacked = match name.rsplit_once('.') {
        Some((_, "gz")) if inside => inside_gz(original, key),
        Some((_, "npz")) if inside => inside_npz(original, key),
        _ => None,
    };
    repacked.unwrap_or_else(|| damage(original, key))
}

fn inside_gz(original: &[u8], key: Key) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(original).read_to_end(&mut bytes).ok()?;
    let mut out = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(&damage(&bytes, key)).ok()?;
    out.finish().ok()
}

fn inside_npz(original: &[u8], key: Key) -> Option<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(original)).ok()?;
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    let chosen = key.below(3, archive.len() as u64) as usize;
    for i in 0..archive.len() {
        let mut member = archive.by_index(i).ok()?;
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).ok()?;
        let options = SimpleFileOptions::default().compression_method(member.compression());
        out.start_file(member.name().ok()?, options).ok()?;
        out.write_all(&if i == chosen { damage(&bytes, key) } else { bytes }).ok()?;
    }
    Some(out.finish().ok()?.into_inner())
}

/// Returns a copy of `original` with one to four damages, chosen by `key`.
fn damage(original: &[u8], key: Key) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for step in 0..1 + key.below(1, 4) {
        once(&mut bytes, key.with(step));
    }
    bytes
}

fn once(bytes: &mut Vec<u8>, key: Key) {
    let len = bytes.len() as u64;
    if len == 0 {
        return bytes.extend_from_slice(&key.at(0).to_le_bytes());
    }
    // Headers and directories are at the ends of files: damage those half of the time.
    let at = match key.below(1, 4) {
        0 => key.below(2, len.min(256)),
        1 => len - 1 - key.below(2, len.min(256)),
        _ => key.below(2, len),
    } as usize;
    let span = (1 + key.below(3, 64) as usize).min(bytes.len() - at);
    match key.below(0, 9) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << key.below(4, 8),
        2 => bytes[at] = key.at(4) as u8,
        3 => {
            let number = EDGES[key.below(4, 8) as usize].to_le_bytes();
            let width = (1 << key.below(5, 4)).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => drop(bytes.drain(at..at + span)),
        5 => {
            let piece = bytes[at..at + span].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let from = key.below(4, len) as usize;
            let span = span.min(bytes.len() - from);
            let to = at.min(bytes.len() - span);
            bytes.copy_within(from..from + span, to);
        }
        7 => {
            bytes.splice(at..at, WORDS[key.below(4, 10) as usize].iter().copied());
        }
        _ => bytes[at..at + span].fill(key.at(4) as u8),
    }
}
