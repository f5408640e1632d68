//! Draws values over epochs, a line per run.

use std::fmt::Write;

use super::scale::{Axis, MAX_POINTS, Point, thin};
use super::text::escape;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 236.0;
/// Space for labels: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (52.0, 18.0, 9.0, 38.0);
/// Lines with at most this many points have a tooltip at each of them.
const MAX_TOOLTIPS: usize = 150;
const COLOURS: usize = 7;

/// Returns the CSS class of colour and line style of run `k`.
pub(super) fn series_class(k: usize) -> String {
    let style = ["", " dashed", " dotted"][(k / COLOURS).min(2)];
    format!("run{}{style}", k % COLOURS)
}

/// A measured value over the epochs of several runs.
pub(super) struct Chart<'a> {
    /// Name of the value.
    pub title: &'a str,
    /// The runs.
    pub series: Vec<Series<'a>>,
}

/// The values of one run.
pub(super) struct Series<'a> {
    /// Number of the run, which decides colour and line style.
    pub run: usize,
    /// Name of the run.
    pub name: &'a str,
    /// Values by epoch.
    pub points: Vec<Point>,
    /// Best validation epoch.
    pub best: Option<u64>,
}

impl Chart<'_> {
    /// Returns the chart as a figure; nothing if there are no values.
    pub fn to_html(&self) -> Option<String> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let x = Axis::epochs(points.clone().map(|point| point.0 as f64))?;
        let y = Axis::values(points.map(|point| point.1))?;
        let frame = Frame { x, y };
        let scale = if frame.y.is_logarithmic() { " <small>log scale</small>" } else { "" };
        let thinned = self.series.iter().any(|series| series.points.len() > MAX_POINTS);
        let thinned = if thinned { " <small>thinned</small>" } else { "" };
        let mut svg = String::new();
        frame.draw(&mut svg);
        for (k, series) in self.series.iter().enumerate() {
            // Lower lines are wider, so that equal values of two runs remain visible; many wide lines would hide others.
            let runs = self.series.len();
            let above = if runs <= COLOURS { (runs - 1 - k) as f64 / runs as f64 } else { 0.0 };
            series.draw(&frame, 1.6 + 3.0 * above, &mut svg);
        }
        Some(format!(
            "<figure><figcaption>{}{scale}{thinned}</figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{svg}</svg></figure>\n",
            escape(self.title),
            escape(self.title),
        ))
    }
}

struct Frame {
    x: Axis,
    y: Axis,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (left, right, top, bottom) = MARGIN;
        let (wide, high) = (WIDTH - left - right, HEIGHT - top - bottom);
        (left + self.x.place(x) * wide, top + (1.0 - self.y.place(y)) * high)
    }

    /// Draws grid, axes and labels.
    fn draw(&self, svg: &mut String) {
        let (left, right, _, bottom) = MARGIN;
        let (end, base) = (WIDTH - right, HEIGHT - bottom);
        for &tick in &self.y.ticks {
            let y = self.at(0.0, tick).1;
            let label = self.y.label(tick);
            let _ = write!(svg, "<path class=\"grid\" d=\"M{left} {y:.1}H{end}\"/>");
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" class=\"right\">{label}</text>",
                left - 7.0,
                y + 4.0
            );
        }
        let _ = write!(svg, "<path class=\"axis\" d=\"M{left} {base}H{end}\"/>");
        for &tick in &self.x.ticks {
            let x = self.at(tick, 0.0).0;
            let label = self.x.label(tick);
            let _ = write!(svg, "<path class=\"axis\" d=\"M{x:.1} {base}v4\"/>");
            let _ =
                write!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" class=\"middle\">{label}</text>", base + 17.0);
        }
        let middle = (left + end) / 2.0;
        let _ =
            write!(svg, "<text x=\"{middle}\" y=\"{:.1}\" class=\"middle soft\">epoch</text>", HEIGHT - 5.0);
    }
}

impl Series<'_> {
    fn draw(&self, frame: &Frame, wide: f64, svg: &mut String) {
        let kept = thin(&self.points, MAX_POINTS);
        let (Some(first), Some(last)) = (kept.first(), kept.last()) else { return };
        let mut path = String::new();
        for (k, &(epoch, value)) in kept.iter().enumerate() {
            let (x, y) = frame.at(epoch as f64, value);
            let _ = write!(path, "{}{x:.1} {y:.1}", if k == 0 { "M" } else { "L" });
        }
        let (class, name) = (series_class(self.run), escape(self.name));
        let _ = write!(svg, "<g class=\"{class}\"><path class=\"line\" ");
        let _ = write!(svg, "stroke-width=\"{wide:.1}\" d=\"{path}\"><title>{name}: ");
        let _ = write!(svg, "{} in epoch {}, ", first.1, first.0);
        let _ = write!(svg, "{} in epoch {}</title></path>", last.1, last.0);
        let best = self.points.iter().find(|point| Some(point.0) == self.best);
        let shown =
            if kept.len() <= MAX_TOOLTIPS { &kept[..] } else { best.map_or(&[][..], std::slice::from_ref) };
        for &(epoch, value) in shown {
            let (x, y) = frame.at(epoch as f64, value);
            let is_best = Some(epoch) == self.best;
            let class = if is_best || kept.len() == 1 { "mark" } else { "point" };
            let best = if is_best { " (best validation epoch)" } else { "" };
            let _ = write!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">");
            let _ = write!(svg, "<title>{name}, epoch {epoch}: {value}{best}</title></circle>");
        }
        svg.push_str("</g>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<Point>, best: Option<u64>) -> Option<String> {
        Chart { title: "loss", series: vec![Series { run: 0, name: "<a>", points, best }] }.to_html()
    }

    #[test]
    fn twenty_one_runs_look_different() {
        let classes: std::collections::BTreeSet<String> = (0..21).map(series_class).collect();
        assert_eq!(classes.len(), 21);
    }

    #[test]
    fn tooltips_have_all_digits() {
        let html = chart(vec![(1, 0.1 + 0.2), (2, 1.0 / 3.0)], Some(2)).unwrap();
        assert!(html.contains("&lt;a&gt;, epoch 1: 0.30000000000000004<"), "{html}");
        assert!(html.contains("epoch 2: 0.3333333333333333 (best validation epoch)"), "{html}");
    }

    #[test]
    fn one_epoch_is_a_mark_and_no_epoch_is_no_chart() {
        assert!(chart(vec![(1, 0.5)], None).unwrap().contains("class=\"mark\""));
        assert!(chart(Vec::new(), None).is_none());
    }

    #[test]
    fn charts_of_many_epochs_are_thinned() {
        let html = chart((1..=100_000).map(|e| (e, 1.0 / e as f64)).collect(), Some(77)).unwrap();
        assert!(
            html.len() < 60_000 && html.contains("thinned") && html.contains("log scale"),
            "{}",
            html.len()
        );
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }
}
