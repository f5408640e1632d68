//! The part of Thrift's compact protocol that is needed to check a parquet file before it is decoded.

/// The error is the problem of the bytes.
pub(super) type Result<T> = std::result::Result<T, &'static str>;

/// Maximum nesting of structures.
const MAX_DEPTH: u32 = 32;

/// Type of a field.
pub(super) const I32: u8 = 5;
/// Type of a field.
pub(super) const LIST: u8 = 9;
/// Type of a field.
pub(super) const STRUCT: u8 = 12;

/// A cursor over serialised structures.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or("truncated inside a header")?;
        self.at += 1;
        Ok(byte)
    }

    fn skip_bytes(&mut self, n: u64) -> Result<()> {
        if n > self.left() as u64 {
            return Err("a header states more bytes than there are");
        }
        self.at += n as usize;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits")
    }

    /// Reads a signed number.
    pub(super) fn int(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads id and type of the next field of a structure; `None` at its end. `last` is the id of the field before.
    pub(super) fn field(&mut self, last: &mut i64) -> Result<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head & 0x0f == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.int()?,
            step => last.saturating_add(i64::from(step)),
        };
        Ok(Some((*last, head & 0x0f)))
    }

    /// Reads type and number of the elements of a list, each of which takes at least one byte.
    pub(super) fn list(&mut self) -> Result<(u8, usize)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        if count > self.left() as u64 {
            return Err("a list states more elements than there are bytes");
        }
        Ok((head & 0x0f, count as usize))
    }

    /// Skips a field of type `kind`.
    pub(super) fn skip(&mut self, kind: u8) -> Result<()> {
        self.skip_nested(kind, MAX_DEPTH)
    }

    fn skip_nested(&mut self, kind: u8, depth: u32) -> Result<()> {
        let depth = depth.checked_sub(1).ok_or("headers are nested too deeply")?;
        match kind {
            // The type of a boolean field is its value.
            1 | 2 => Ok(()),
            3 => self.skip_bytes(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip_bytes(8),
            8 => {
                let n = self.varint()?;
                self.skip_bytes(n)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            11 => self.skip_map(depth),
            STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip_nested(kind, depth)?;
                }
                Ok(())
            }
            _ => Err("a field of unknown type"),
        }
    }

    /// Skips an element of a list or map, where a boolean is a byte, unlike in a structure.
    fn skip_element(&mut self, kind: u8, depth: u32) -> Result<()> {
        if matches!(kind, 1 | 2) { self.skip_bytes(1) } else { self.skip_nested(kind, depth) }
    }

    fn skip_map(&mut self, depth: u32) -> Result<()> {
        let count = self.varint()?;
        if count == 0 {
            return Ok(());
        }
        if count > self.left() as u64 {
            return Err("a map states more entries than there are bytes");
        }
        let kinds = self.byte()?;
        (0..count).try_for_each(|_| {
            self.skip_element(kinds >> 4, depth)?;
            self.skip_element(kinds & 0x0f, depth)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_skipped() {
        // 1: i32 5, 2: list of two booleans, 3: "ab", then a field after it.
        let bytes = [0x15, 10, 0x19, 0x21, 1, 2, 0x18, 2, b'a', b'b', 0x15, 3, 0];
        let mut reader = Reader::new(&bytes);
        reader.skip(STRUCT).unwrap();
        assert_eq!(reader.position(), bytes.len());
    }

    #[test]
    fn stated_sizes_and_nesting_are_limited() {
        for bytes in [&[0x18, 0xff, 0xff, 0xff, 0x0f][..], &[0x19, 0xfc, 0xff, 0xff, 0x0f], &[0x15, 0xff]] {
            assert!(Reader::new(bytes).skip(STRUCT).is_err());
        }
        assert!(Reader::new(&[0x1c; 1000]).skip(STRUCT).is_err());
    }
}
