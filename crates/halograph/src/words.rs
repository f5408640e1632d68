//! Numbers as text, for messages.

/// Formats a count with its noun and thousands separators: `1 part`, `12,000 parts`.
pub fn count(n: impl TryInto<u64>, noun: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{} {noun}{}", indicatif::HumanCount(n), if n == 1 { "" } else { "s" })
}

/// Formats a duration with a suitable unit.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{} min {:02} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {:02} min", s as u64 / 3600, s as u64 / 60 % 60),
    }
}

/// Returns rows of cells with aligned columns, a line each: the first `text_columns` to the left, others to the right.
pub fn aligned(rows: &[Vec<String>], text_columns: usize) -> String {
    let width = |c: usize| rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max();
    let line = |row: &Vec<String>| {
        let cell = |(c, cell): (usize, &String)| {
            let width = width(c).unwrap_or(0);
            if c < text_columns { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_suitable_unit() {
        for (s, text) in [
            (0.000_25, "250 µs"),
            (0.0283, "28.3 ms"),
            (3.25, "3.2 s"),
            (125.0, "2 min 05 s"),
            (7_500.0, "2 h 05 min"),
        ] {
            assert_eq!(seconds(s), text);
        }
    }
}
