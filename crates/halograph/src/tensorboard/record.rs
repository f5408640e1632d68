//! Frames records (TFRecord): length, checksum of the length, bytes, checksum of the bytes; all little-endian.

/// CRC-32C (Castagnoli), reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Offset of masked checksums. TFRecord masks them because a CRC of data that contains CRCs is weak.
const MASK: u32 = 0xa282_ead8;

/// Returns `bytes` as a record.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(bytes.len() + 16);
    record.extend(length);
    record.extend(checksum(&length).to_le_bytes());
    record.extend(bytes);
    record.extend(checksum(bytes).to_le_bytes());
    record
}

/// Returns the masked checksum of a record.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

/// Computes the CRC bit by bit, which is fast enough for records of a few dozen bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, &b: &u8| {
        (0..8).fold(crc ^ u32::from(b), |crc, _| (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, byte)
}

/// Returns the records of a file; `None` if a length or checksum is wrong.
#[cfg(test)]
pub fn unframe(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at_checked(8)?;
        let (sum, rest) = rest.split_at_checked(4)?;
        let (record, rest) = rest.split_at_checked(u64::from_le_bytes(length.try_into().ok()?) as usize)?;
        let (record_sum, rest) = rest.split_at_checked(4)?;
        if sum != checksum(length).to_le_bytes() || record_sum != checksum(record).to_le_bytes() {
            return None;
        }
        records.push(record);
        bytes = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_published_test_vectors() {
        // The check value of CRC-32C, and two vectors of RFC 3720, appendix B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn damage_is_detected() {
        let mut bytes = [frame(b"one"), frame(b"")].concat();
        assert_eq!(unframe(&bytes), Some(vec![&b"one"[..], b""]));
        bytes[13] ^= 1;
        assert_eq!(unframe(&bytes), None);
    }
}
