//! Draws the timeline of one epoch: per rank a lane for compute and wait, and below it lanes for transfers and for sampling.

use std::fmt::Write;

use super::scale::Axis;
use super::spans::{TraceSpan, TracedBatches, TracedEpoch, Track};
use super::text::escape;
use crate::trace::{BUBBLE, FETCH, SAMPLE};

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 126.0;
const RIGHT: f64 = 14.0;
/// Height of the legend above all lanes.
const TOP: f64 = 36.0;
const COMPUTE: f64 = 24.0;
const TRANSFER: f64 = 20.0;
/// Least height of a row of transfers; concurrent transfers are drawn in rows.
const ROW: f64 = 4.0;
const GAP: f64 = 18.0;
const BOTTOM: f64 = 42.0;
/// Ranks drawn at most.
const MAX_RANKS: usize = 16;

/// Kinds of spans: CSS class and name in the legend.
const KINDS: [(&str, &str); 14] = [
    ("sample", "sampling"),
    ("gather", "gather"),
    ("forward", "forward"),
    ("backward", "backward"),
    ("wait", "wait"),
    (BUBBLE, "bubble"),
    ("activations", "activations"),
    ("activation_gradients", "activation gradients"),
    ("features", "features"),
    ("gradients", "gradients"),
    ("weights", "weights"),
    ("statistics", "statistics"),
    ("evaluation", "evaluation"),
    ("other", "other"),
];

/// Returns the timeline as SVG for a page that has the styles of [`THEME`](super::page::THEME).
pub(super) fn inline(traced: &TracedEpoch) -> String {
    draw(traced, "")
}

/// Returns the timeline as a self-contained SVG file.
pub(super) fn standalone(traced: &TracedEpoch) -> String {
    let style = format!(
        "<style>{}</style><rect class=\"paper\" width=\"100%\" height=\"100%\"/>",
        super::page::THEME
    );
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", draw(traced, &style))
}

/// Returns which epoch is drawn and what is left out.
pub(super) fn caption(traced: &TracedEpoch) -> String {
    let (epoch, length) = (traced.epoch, super::text::seconds(traced.length * 1e-6));
    let mut text = match traced.batches {
        None => format!("Epoch {epoch}, {length}"),
        Some(TracedBatches { first, last, all }) => {
            let steps = if traced.has_chunks { "Steps" } else { "Batches" };
            format!("{steps} {first} to {last} of {all} of epoch {epoch}, {length}")
        }
    };
    let _ = match (traced.epochs, traced.batches) {
        (1, _) => write!(text, ", the only epoch in the trace."),
        (n, None) => write!(
            text,
            ": median length of {n} epochs in the trace, without the first and without fresh epochs."
        ),
        (n, Some(_)) => {
            write!(text, ": the epoch of median length of {n} epochs in the trace, without the first.")
        }
    };
    if traced.ranks.len() > MAX_RANKS {
        let _ = write!(text, " The first {MAX_RANKS} of {} ranks are drawn.", traced.ranks.len());
    }
    if traced.left_out > 0 {
        let _ = write!(text, " The {} shortest spans are left out.", traced.left_out);
    }
    text
}

/// Returns what an optimiser step is called, of epochs with several.
fn step_name(traced: &TracedEpoch) -> &'static str {
    if traced.has_chunks { "step" } else { "batch" }
}

/// Returns the kind of a span, which decides its colour.
fn kind(span: &TraceSpan, epoch: u64) -> &'static str {
    let class = match (span.track, span.phase.as_str()) {
        (Track::Wait, BUBBLE) => BUBBLE,
        (Track::Wait, _) => "wait",
        // A rank fetches rows of sampled batches on the same thread.
        (Track::Sample, _) if span.name == FETCH => "features",
        (Track::Sample, _) | (Track::Send | Track::Receive, "sampling") => "sample",
        (Track::Compute, "evaluation") => "evaluation",
        (Track::Compute, _) if span.epoch != epoch => "other",
        (_, phase) => phase,
    };
    KINDS.iter().map(|kind| kind.0).find(|&known| known == class).unwrap_or("other")
}

fn draw(traced: &TracedEpoch, style: &str) -> String {
    let axis = Axis::time(traced.length / 1e3);
    let (mut lanes, mut y) = (String::new(), TOP);
    for (&rank, name) in traced.ranks.iter().take(MAX_RANKS) {
        let lane = Lane { traced, axis: &axis, y };
        y += lane.draw(rank, name, &mut lanes) + GAP;
    }
    let base = y - GAP / 2.0;
    let height = base + BOTTOM;
    let label = escape(&caption(traced));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         role=\"img\" aria-label=\"{label}\">{style}"
    );
    legend(traced, &mut svg);
    for &tick in &axis.ticks {
        let x = LEFT + axis.place(tick) * (WIDTH - LEFT - RIGHT);
        let top = TOP - 6.0;
        let _ = write!(svg, "<path class=\"grid\" d=\"M{x:.1} {top}V{base:.1}\"/>");
        let _ = write!(
            svg,
            "<text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            base + 16.0,
            axis.label(tick)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg.push_str(&lanes);
    let _ = write!(svg, "<text class=\"middle soft\" x=\"{middle}\" y=\"{:.1}\">", base + 34.0);
    let since =
        traced.batches.map(|batches| format!(", since the start of {} {}", step_name(traced), batches.first));
    let _ = write!(svg, "milliseconds of epoch {}{}</text></svg>", traced.epoch, since.unwrap_or_default());
    svg
}

/// Draws the legend of the kinds that occur.
fn legend(traced: &TracedEpoch, svg: &mut String) {
    let mut x = LEFT;
    for (class, name) in KINDS {
        if !traced.spans.iter().any(|span| kind(span, traced.epoch) == class) {
            continue;
        }
        let (y, high) = if ["wait", BUBBLE].contains(&class) { (10.0, 5.0) } else { (7.0, 11.0) };
        let _ =
            write!(svg, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"18\" height=\"{high}\"/>");
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"17\">{name}</text>", x + 24.0);
        x += 48.0 + 7.0 * name.len() as f64;
    }
}

/// The lanes of one rank.
struct Lane<'a> {
    traced: &'a TracedEpoch,
    axis: &'a Axis,
    y: f64,
}

impl Lane<'_> {
    /// Draws all lanes; returns their height.
    fn draw(&self, rank: u64, name: &str, svg: &mut String) -> f64 {
        let own = || self.traced.spans.iter().filter(move |span| span.rank == rank);
        let on = |tracks: &'static [Track]| own().filter(move |span| tracks.contains(&span.track));
        let mut below = vec![("sample", stack(on(&[Track::Sample])))];
        below.retain(|(_, (spans, _))| !spans.is_empty());
        let transfers = stack(on(&[Track::Send, Track::Receive]));
        if below.is_empty() || !transfers.0.is_empty() {
            below.insert(0, ("transfer", transfers));
        }
        let (end, y) = (WIDTH - RIGHT, self.y);
        let _ = write!(svg, "<text class=\"rank\" x=\"8\" y=\"{:.1}\">rank {rank}", y + 16.0);
        let _ = write!(svg, "<title>{}</title></text>", escape(name));
        let label = |svg: &mut String, y: f64, text: &str| {
            let _ = write!(svg, "<text class=\"right soft\" x=\"{}\" y=\"{y:.1}\">{text}</text>", LEFT - 8.0);
        };
        label(svg, y + 16.0, "compute");
        for span in own().filter(|span| span.track == Track::Compute) {
            self.bar(span, (y, COMPUTE), svg);
        }
        // Drawn over compute spans, because a rank may wait inside of one.
        let (bubble, waits): (Vec<_>, Vec<_>) =
            own().filter(|span| span.track == Track::Wait).partition(|span| span.phase == BUBBLE);
        // The bubble last: it contains the waits for its messages.
        for span in waits.into_iter().chain(bubble) {
            self.bar(span, (y + COMPUTE / 3.0, COMPUTE / 3.0), svg);
        }
        if self.traced.has_chunks {
            let computed: Vec<_> = own().filter(|span| span.track == Track::Compute).collect();
            self.chunk_numbers(&computed, y, svg);
        }
        let mut top = y + COMPUTE;
        for (name, (spans, rows)) in below {
            let _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {:.1}H{end}\"/>", top + 1.5);
            top += 3.0;
            let row = (TRANSFER / rows as f64).max(ROW);
            label(svg, top + row * rows as f64 / 2.0 + 4.0, name);
            for (span, k) in spans {
                self.bar(span, (top + row * k as f64, row - 1.0), svg);
            }
            top += row * rows as f64;
        }
        top - y
    }

    /// Returns the place of a time.
    fn x(&self, micros: f64) -> f64 {
        LEFT + self.axis.place(micros / 1e3).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    /// Writes the number of each chunk over its spans, which are in the order of their start.
    fn chunk_numbers(&self, computed: &[&TraceSpan], y: f64, svg: &mut String) {
        let class = |span: &TraceSpan| kind(span, self.traced.epoch);
        for run in computed.chunk_by(|a, b| a.chunk == b.chunk && class(a) == class(b)) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let (from, to) = (self.x(first.start), self.x(last.end));
            let text = first.chunk.to_string();
            if to - from > text_width(&text) {
                in_bar(class(first), (from + to) / 2.0, y, &text, svg);
            }
        }
    }

    fn bar(&self, span: &TraceSpan, (y, high): (f64, f64), svg: &mut String) {
        let (from, to) = (self.x(span.start), self.x(span.end));
        // Short transfers must stay visible; short waits must not look longer than they were.
        let wide = if span.track == Track::Wait { to - from } else { (to - from).max(0.8) };
        if wide < 0.1 {
            return;
        }
        let class = kind(span, self.traced.epoch);
        let title = self.title(span);
        let _ = write!(
            svg,
            "<g><rect class=\"{class}\" x=\"{from:.2}\" y=\"{y:.1}\" width=\"{wide:.2}\" height=\"{high:.1}\"/>"
        );
        let is_named = span.track == Track::Compute && !self.traced.has_chunks;
        if is_named && wide > text_width(&span.name) {
            in_bar(class, from + wide / 2.0, y, &span.name, svg);
        }
        let _ = write!(svg, "<title>{title}</title></g>");
    }

    /// Returns the tooltip of a span.
    fn title(&self, span: &TraceSpan) -> String {
        let what = match span.track {
            Track::Compute => {
                let step = || format!("{} {}, ", step_name(self.traced), span.step + 1);
                let batch = self.traced.batches.map(|_| step());
                let layer = span.layer.map(|layer| format!("layer {layer}, ")).unwrap_or_default();
                let chunk = self.traced.has_chunks.then(|| format!("chunk {}, ", span.chunk));
                let (batch, chunk) = (batch.unwrap_or_default(), chunk.unwrap_or_default());
                format!("{} (epoch {}, {batch}{chunk}{layer}{})", span.name, span.epoch, span.phase)
            }
            Track::Sample => {
                let what = match span.name.as_str() {
                    FETCH => "fetching rows of batches from",
                    SAMPLE => "sampling batches from",
                    _ => "sampling batch",
                };
                format!("{what} {} of epoch {}", span.step + 1, span.epoch)
            }
            Track::Wait if span.phase == BUBBLE => format!("bubble: waiting for {}", span.name),
            Track::Wait => format!("waiting for {}", span.name),
            Track::Send => format!("sending {}", span.name),
            Track::Receive => format!("receiving {}", span.name),
        };
        let (start, time) = (span.start, span.end - span.start);
        escape(&format!("rank {}: {what}\n{time:.3} µs from {start:.3} µs", span.rank))
    }
}

/// Returns the least width of a bar that has room for `text`.
fn text_width(text: &str) -> f64 {
    6.4 * text.chars().count() as f64 + 8.0
}

/// Writes `text` over a bar whose spans have this class.
fn in_bar(class: &str, middle: f64, y: f64, text: &str, svg: &mut String) {
    let (y, text) = (y + 16.0, escape(text));
    let _ = write!(svg, "<text class=\"in-{class}\" x=\"{middle:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// Assigns each span to the first row that is free at its start; returns the rows and how many there are.
fn stack<'a>(spans: impl Iterator<Item = &'a TraceSpan>) -> (Vec<(&'a TraceSpan, usize)>, usize) {
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = Vec::new();
    for span in spans {
        let row = ends.iter().position(|&end| end <= span.start).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        ends[row] = span.end;
        placed.push((span, row));
    }
    (placed, ends.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::super::spans::tests::{example, read, read_ranks, sampled};
    use super::*;

    fn traced() -> TracedEpoch {
        read(&example(3).to_string()).unwrap()
    }

    #[test]
    fn draws_every_kind_and_escapes_host_names() {
        let svg = standalone(&traced());
        for part in [
            "class=\"forward\"",
            "class=\"backward\"",
            "class=\"wait\"",
            "class=\"features\"",
            "rank 1 (&lt;host&gt;)",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(svg.contains("waiting for work") && !svg.contains("class=\"evaluation\""), "{svg}");
        assert!(!svg.contains("NaN") && svg.matches("<g>").count() == svg.matches("</g>").count());
    }

    #[test]
    fn sampling_has_a_lane_of_its_own() {
        let traced = read_ranks(&sampled(3, 20).to_string(), 1).unwrap();
        let svg = standalone(&traced);
        for part in [
            ">sample</text>",
            "class=\"sample\"",
            "class=\"gather\"",
            "sampling batch 9 of epoch 2",
            "forward (epoch 2, batch 8, layer 0, forward)",
            "waiting for batch",
            "milliseconds of epoch 2, since the start of batch 7<",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains(">transfer</text>"), "{svg}");
        let caption = caption(&traced);
        assert!(
            caption.starts_with("Batches 7 to 14 of 20 of epoch 2, 800 µs: the epoch of median"),
            "{caption}"
        );
        assert!(!standalone(&self::traced()).contains(">sample</text>"));
    }

    #[test]
    fn requests_for_neighbours_have_the_colour_of_sampling() {
        let mut traced = traced();
        assert!(!inline(&traced).contains("class=\"sample\""));
        let transfers =
            traced.spans.iter_mut().filter(|span| matches!(span.track, Track::Send | Track::Receive));
        transfers.for_each(|span| span.phase = "sampling".into());
        let svg = inline(&traced);
        assert!(svg.contains("class=\"sample\"") && !svg.contains("class=\"features\""), "{svg}");
    }

    #[test]
    fn spans_without_layer_name_none() {
        let mut traced = traced();
        assert!(inline(&traced).contains("layer 0"));
        traced.spans.iter_mut().for_each(|span| span.layer = None);
        assert!(!inline(&traced).contains("layer"));
    }

    #[test]
    fn chunks_and_transfers_between_stage_groups_are_named() {
        let mut traced = traced();
        assert!(!inline(&traced).contains("chunk"));
        traced.has_chunks = true;
        for span in &mut traced.spans {
            span.chunk = 3;
            span.phase = match (span.track, span.phase.as_str()) {
                (Track::Send, "features") => "activations".into(),
                (Track::Receive, "features") => "activation_gradients".into(),
                (Track::Wait, "features") => BUBBLE.into(),
                (_, phase) => phase.into(),
            };
        }
        let svg = inline(&traced);
        for part in [
            "class=\"activations\"",
            "class=\"activation_gradients\"",
            ">activation gradients</text>",
            "class=\"bubble\"",
            "bubble: waiting for work",
            "work (epoch 2, chunk 3, layer 0, backward)",
            // Once for the spans of a chunk that follow each other, instead of their names.
            "class=\"in-backward\" ",
            ">3</text>",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(!svg.contains(">work</text>"), "{svg}");
        assert!(!svg.contains("class=\"other\""), "{svg}");
        traced.batches = Some(TracedBatches { first: 1, last: 2, all: 4 });
        assert!(caption(&traced).starts_with("Steps 1 to 2 of 4 of epoch 2"), "{}", caption(&traced));
        assert!(inline(&traced).contains("work (epoch 2, step 1, chunk 3, layer 0, backward)"));
    }

    #[test]
    fn concurrent_transfers_are_drawn_in_rows() {
        let span = |start, end| TraceSpan {
            rank: 0,
            track: Track::Send,
            name: String::new(),
            phase: String::new(),
            epoch: 0,
            step: 0,
            chunk: 0,
            layer: None,
            start,
            end,
        };
        let spans = [span(0.0, 5.0), span(1.0, 2.0), span(2.0, 9.0), span(5.0, 6.0)];
        let (placed, rows) = stack(spans.iter());
        assert_eq!(placed.iter().map(|p| p.1).collect::<Vec<_>>(), [0, 1, 1, 0]);
        assert_eq!(rows, 2);
    }

    #[test]
    fn captions_name_the_epoch_and_what_is_left_out() {
        let mut traced = traced();
        assert!(caption(&traced).starts_with("Epoch 2, 102 µs: median length of 3"), "{}", caption(&traced));
        traced.left_out = 4;
        traced.epochs = 1;
        assert!(
            caption(&traced).ends_with("the only epoch in the trace. The 4 shortest spans are left out.")
        );
    }
}
