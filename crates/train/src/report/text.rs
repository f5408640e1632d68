//! Escapes text and formats numbers.

use serde_json::Value;

/// Escapes text for HTML and SVG, for elements and attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 cannot contain most control characters.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON for a `<script>` element: `<` occurs in strings only, where an escape sequence can replace it.
pub(super) fn json_in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// How a number is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Unchanged.
    Plain,
    /// A count, with thousands separators.
    Count,
    /// Four decimals.
    Fraction,
    /// Seconds, milliseconds or microseconds.
    Seconds,
    /// KiB, MiB, …
    Bytes,
}

impl Unit {
    /// Returns the value, rounded if it is a number.
    pub(super) fn show(self, value: &Value) -> String {
        match (self, value, value.as_f64()) {
            (_, Value::Null, _) => "–".into(),
            (_, Value::String(text), _) => text.clone(),
            (Unit::Plain, ..) | (.., None) => value.to_string(),
            (Unit::Count, _, Some(_)) => value.as_u64().map_or(value.to_string(), thousands),
            (Unit::Fraction, _, Some(x)) => format!("{x:.4}"),
            (Unit::Seconds, _, Some(x)) => seconds(x),
            (Unit::Bytes, _, Some(x)) => bytes(x),
        }
    }

    /// Returns the value as HTML, with all digits in a tooltip if it was rounded.
    pub(super) fn html(self, value: &Value) -> String {
        let (shown, full) = (self.show(value), value.to_string());
        if shown == full || value.is_string() || value.is_null() {
            return escape(&shown);
        }
        format!("<span title=\"{}\">{}</span>", escape(&full), escape(&shown))
    }
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats with three significant digits.
fn three(x: f64) -> String {
    let decimals = if x.abs() >= 100.0 { 0 } else { 2 - usize::from(x.abs() >= 10.0) };
    format!("{x:.decimals$}")
}

pub(super) fn seconds(x: f64) -> String {
    match x.abs() {
        0.0 => "0 s".into(),
        size if size < 1e-3 => format!("{} µs", three(x * 1e6)),
        size if size < 1.0 => format!("{} ms", three(x * 1e3)),
        _ => format!("{} s", three(x)),
    }
}

fn bytes(x: f64) -> String {
    let (mut x, mut unit) = (x, 0);
    while x >= 1024.0 && unit < 4 {
        (x, unit) = (x / 1024.0, unit + 1);
    }
    let name = ["B", "KiB", "MiB", "GiB", "TiB"][unit];
    if unit == 0 { format!("{x} {name}") } else { format!("{} {name}", three(x)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn user_text_never_becomes_markup() {
        assert_eq!(escape("<b a='\"'>&\u{7}"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
        let text = json_in_script(r#"{"x":"</script><!--"}"#);
        assert!(!text.contains('<'), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["x"], "</script><!--");
    }

    #[test]
    fn rounded_numbers_keep_their_digits_in_tooltips() {
        let shown = [
            Unit::Count.show(&json!(1234567)),
            Unit::Fraction.show(&json!(2.0 / 3.0)),
            Unit::Seconds.show(&json!(0.0123456)),
            Unit::Bytes.show(&json!(1536)),
            Unit::Plain.show(&json!(0.01)),
            Unit::Bytes.show(&json!(null)),
        ];
        assert_eq!(shown, ["1,234,567", "0.6667", "12.3 ms", "1.50 KiB", "0.01", "–"]);
        assert_eq!(
            Unit::Fraction.html(&json!(2.0 / 3.0)),
            "<span title=\"0.6666666666666666\">0.6667</span>"
        );
    }
}
