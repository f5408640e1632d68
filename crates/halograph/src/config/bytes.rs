//! Sizes in bytes, with or without a unit.

use toml::Value;

/// What a size looks like, for messages.
pub const FORMAT: &str = "a number of bytes, or one with a unit such as 512MiB, 1.5GiB or 64MB";

/// Binary units, small to large.
const BINARY: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Returns the bytes of a number or of text such as `512MiB`; `None` if it is neither, or too large for TOML.
pub fn parse(given: &Value) -> Option<i64> {
    match given {
        Value::Integer(bytes) => Some(*bytes).filter(|bytes| *bytes >= 0),
        Value::String(text) => parse_text(text.trim()),
        _ => None,
    }
}

fn parse_text(text: &str) -> Option<i64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = factor(&unit.trim().to_ascii_lowercase())?;
    if let Ok(number) = number.parse::<i64>() {
        return number.checked_mul(factor);
    }
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    // Fractions of a byte are of no use.
    (factor > 1 && bytes < i64::MAX as f64).then_some(bytes as i64)
}

/// Returns the bytes of a unit in lower case. A letter alone is binary, as in the limits of `ulimit` and Slurm.
fn factor(unit: &str) -> Option<i64> {
    if matches!(unit, "" | "b") {
        return Some(1);
    }
    let power = "kmgt".find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000_i64.pow(power)),
        _ => None,
    }
}

/// Formats bytes exactly, in the largest binary unit that leaves a whole number.
pub fn text(bytes: u64) -> String {
    let whole = |power: &usize| bytes.is_multiple_of(1 << (10 * power));
    let power = (0..BINARY.len()).rev().find(whole).filter(|_| bytes > 0).unwrap_or(0);
    match power {
        0 => bytes.to_string(),
        power => format!("{}{}", bytes >> (10 * power), BINARY[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<i64> {
        parse(&Value::String(text.into()))
    }

    #[test]
    fn units_are_binary_or_decimal() {
        for (text, found) in [
            ("0", 0),
            ("123", 123),
            ("123b", 123),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1kb", 1000),
            ("512MiB", 512 << 20),
            ("512 mib", 512 << 20),
            ("64MB", 64_000_000),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("0.5kb", 500),
            ("2gib", 2 << 30),
            ("2GB", 2_000_000_000),
            (" 1T ", 1 << 40),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(bytes(text), Some(found), "{text}");
        }
        assert_eq!(parse(&Value::Integer(7)), Some(7));
    }

    #[test]
    fn anything_else_is_no_size() {
        for text in [
            "",
            "MiB",
            "-1MiB",
            "+1",
            "1.5",
            ".GiB",
            "1.5.0GiB",
            "1X",
            "1ki",
            "1MiBs",
            "1PiB",
            "1é",
            "9999999TiB",
            "much",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        for value in [Value::Integer(-1), Value::Float(1e9), Value::Boolean(true)] {
            assert_eq!(parse(&value), None, "{value}");
        }
    }

    #[test]
    fn text_is_exact() {
        for (bytes, found) in
            [(0, "0"), (1000, "1000"), (1024, "1KiB"), (512 << 20, "512MiB"), (3 << 40, "3TiB")]
        {
            assert_eq!(text(bytes), found);
            assert_eq!(super::parse(&Value::String(text(bytes))), Some(bytes as i64));
        }
    }
}
