//! Encodes the protocol buffers of TensorBoard that scalars need.
//!
//! | message | fields |
//! |---|---|
//! | `Event` | 1 `wall_time` double, 2 `step` int64, 3 `file_version` string, 5 `summary`, 7 `session_log` |
//! | `Summary` | 1 `value`, repeated |
//! | `Summary.Value` | 1 `tag` string, 2 `simple_value` float |
//! | `SessionLog` | 1 `status` enum: 1 is START |

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Encodes the first event of a file: the format version.
pub fn version(wall_time: f64) -> Vec<u8> {
    let mut event = event(wall_time, 0);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

/// Encodes the start of a session at `step`: TensorBoard drops this and later steps from earlier files.
pub fn session_start(wall_time: f64, step: u64) -> Vec<u8> {
    let mut log = Vec::new();
    put_varint_field(&mut log, 1, 1);
    let mut event = event(wall_time, step);
    put_bytes(&mut event, 7, &log);
    event
}

/// Encodes one value of the scalar `tag`.
pub fn scalar(wall_time: f64, step: u64, tag: &str, value: f32) -> Vec<u8> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, tag.as_bytes());
    put_varint(&mut entry, 2 << 3 | FIXED32);
    entry.extend(value.to_le_bytes());
    let mut summary = Vec::new();
    put_bytes(&mut summary, 1, &entry);
    let mut event = event(wall_time, step);
    put_bytes(&mut event, 5, &summary);
    event
}

fn event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    put_varint(&mut event, 1 << 3 | FIXED64);
    event.extend(wall_time.to_le_bytes());
    put_varint_field(&mut event, 2, step);
    event
}

fn put_varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3 | VARINT);
    put_varint(out, value);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Writes seven bits per byte, the lowest first; the top bit marks that more bytes follow.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
pub use decode::decode;

#[cfg(test)]
mod decode {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    pub struct Event {
        pub step: u64,
        pub version: Option<String>,
        pub starts: bool,
        pub tag: Option<String>,
        pub value: Option<f32>,
    }

    /// Returns number and contents of each field; a varint as eight bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes);
            let length = match key & 7 {
                VARINT => {
                    fields.push((key >> 3, take_varint(&mut bytes).to_le_bytes().to_vec()));
                    continue;
                }
                FIXED64 => 8,
                BYTES => take_varint(&mut bytes) as usize,
                FIXED32 => 4,
                other => panic!("wire type {other}"),
            };
            let (field, rest) = bytes.split_at(length);
            fields.push((key >> 3, field.to_vec()));
            bytes = rest;
        }
        fields
    }

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|b| b & 0x80 == 0).unwrap();
        let (varint, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        varint.iter().rev().fold(0, |value, b| value << 7 | u64::from(b & 0x7f))
    }

    pub fn decode(bytes: &[u8]) -> Event {
        let mut event = Event::default();
        let text = |field: Vec<u8>| Some(String::from_utf8(field).unwrap());
        for (number, field) in fields(bytes) {
            match number {
                1 => assert!(f64::from_le_bytes(field.try_into().unwrap()) > 1e9),
                2 => event.step = u64::from_le_bytes(field.try_into().unwrap()),
                3 => event.version = text(field),
                5 => {
                    let [(1, entry)] = &fields(&field)[..] else { panic!("one value") };
                    let [(1, tag), (2, value)] = &fields(entry)[..] else { panic!("tag and value") };
                    event.tag = text(tag.clone());
                    event.value = Some(f32::from_le_bytes(value[..].try_into().unwrap()));
                }
                7 => event.starts = fields(&field) == [(1, 1u64.to_le_bytes().to_vec())],
                other => panic!("field {other}"),
            }
        }
        event
    }

    #[test]
    fn varints_of_any_length_are_decoded() {
        for step in [0, 127, 128, 300, u64::MAX] {
            assert_eq!(decode(&session_start(2e9, step)).step, step);
        }
    }
}
