//! Progress of a run: a bar on a terminal, some lines elsewhere, nothing if quiet; and TensorBoard scalars.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use halograph::tensorboard;
use halograph::train::event::{Best, EpochRecord, Event, Observer, Scores};
use halograph::words::seconds;
use halograph_graph::error::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::pace::Pace;
use crate::cli::{interrupt, is_interactive, say};

/// About how many lines a run prints where there is no terminal.
const LINES: u64 = 16;

/// Shows a run while it trains.
pub struct Watch {
    view: View,
    scalars: Scalars,
    epochs: u64,
    /// Start of the first epoch of this process.
    started: Instant,
    pace: Pace,
    scores: Option<Scores>,
    best: Option<Best>,
}

enum View {
    Silent,
    Bar(ProgressBar),
    /// One line every this many epochs.
    Lines(u64),
}

enum Scalars {
    None,
    /// Requested in this folder.
    Wanted(PathBuf),
    Writing(tensorboard::Writer),
}

impl Watch {
    /// Shows nothing if `silent`; writes scalars to the folder `tensorboard`, if given.
    pub fn new(silent: bool, tensorboard: Option<PathBuf>) -> Self {
        let view = match silent {
            true => View::Silent,
            false if is_interactive() => View::Bar(loading()),
            false => View::Lines(1),
        };
        let scalars = tensorboard.map_or(Scalars::None, Scalars::Wanted);
        let (started, pace) = (Instant::now(), Pace::default());
        Watch { view, scalars, epochs: 0, started, pace, scores: None, best: None }
    }

    fn start(&mut self, from: u64, epochs: u64, pace: Pace) {
        (self.epochs, self.pace, self.started) = (epochs, pace, Instant::now());
        match &mut self.view {
            View::Silent => {}
            View::Bar(bar) => {
                bar.finish_and_clear();
                *bar = if pace.has_steps() { new_step_bar(&pace) } else { new_bar(from, epochs) };
            }
            View::Lines(every) => *every = (epochs + 1).saturating_sub(from).div_ceil(LINES).max(1),
        }
        if let Scalars::Wanted(folder) = &self.scalars {
            let opened = tensorboard::Writer::create(folder, from).map(Scalars::Writing);
            self.scalars = self.or_disabled(opened);
        }
    }

    /// Shows a step of an epoch that has several.
    fn step(&mut self, epoch: u64, (step, steps): (u64, u64), loss: f64) {
        self.pace.set(epoch, step);
        let place = place((epoch, self.epochs), (step, steps));
        match &self.view {
            View::Bar(bar) => {
                bar.set_position(self.pace.done());
                bar.set_prefix(place);
                bar.set_message(format!(
                    "loss {}{}",
                    loss_text(loss),
                    scores_text(self.scores.as_ref(), self.best.as_ref())
                ));
            }
            View::Lines(_) => {
                let now = self.started.elapsed();
                if self.pace.is_due(now) {
                    say(&step_line(&place, loss, self.pace.eta(now)));
                }
            }
            View::Silent => {}
        }
    }

    fn epoch(&mut self, record: &EpochRecord, best: Option<&Best>) {
        (self.scores, self.best) = (record.scores.or(self.scores), best.copied());
        self.pace.end_epoch(record.epoch, self.started.elapsed());
        let progress = progress(record, self.scores.as_ref(), best);
        let width = self.epochs.to_string().len();
        match &self.view {
            View::Bar(bar) => {
                bar.set_position(if self.pace.has_steps() { self.pace.done() } else { record.epoch });
                bar.set_message(progress);
            }
            View::Lines(every) if is_printed(record.epoch, *every, self.epochs) => {
                say(&format!("epoch {:width$}/{}  {progress}", record.epoch, self.epochs));
            }
            _ => {}
        }
        if let Scalars::Writing(writer) = &mut self.scalars {
            let written = writer.epoch(record);
            if written.is_err() {
                self.scalars = self.or_disabled(written.map(|()| Scalars::None));
            }
        }
    }

    /// Stops writing scalars after an error; the run continues.
    fn or_disabled(&self, scalars: Result<Scalars>) -> Scalars {
        scalars.unwrap_or_else(|error| {
            self.note(&format!("TensorBoard scalars are off from here on: {error}"));
            Scalars::None
        })
    }

    /// Prints a note above the bar.
    fn note(&self, text: &str) {
        let note = || say(&format!("note: {text}"));
        match &self.view {
            View::Bar(bar) => bar.suspend(note),
            _ => note(),
        }
    }
}

impl Observer for Watch {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Started { from, epochs, steps, step, .. } => {
                interrupt::set_training();
                self.start(*from, *epochs, Pace::new(*from, *step, *epochs, *steps));
            }
            Event::Step { epoch, step, steps, loss } => self.step(*epoch, (*step, *steps), *loss),
            Event::Epoch { record, best } => self.epoch(record, *best),
            Event::Checkpoint { .. } => {}
            Event::UndefinedValidationScore => self.note(
                "the validation score is undefined (AUC needs both classes among the validation nodes): early stopping \
                 is off, and the last weights are kept",
            ),
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

/// Returns the spinner that is shown until the first epoch starts.
fn loading() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}").expect("the template is valid");
    let bar = ProgressBar::new_spinner().with_style(style).with_message("loading");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn new_bar(from: u64, epochs: u64) -> ProgressBar {
    let template = "epoch {pos}/{len} {bar:10} {wide_msg} ETA {eta}";
    let style = ProgressStyle::with_template(template).expect("the template above is valid");
    let bar = ProgressBar::new(epochs).with_style(style.progress_chars("=> ")).with_position(from - 1);
    bar.reset_eta();
    bar
}

/// Returns the bar of a run with several steps per epoch, whose prefix is the place within the run.
fn new_step_bar(pace: &Pace) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:10} {wide_msg} ETA {eta}");
    let style = style.expect("the template above is valid").progress_chars("=> ");
    let bar = ProgressBar::new(pace.all()).with_style(style).with_position(pace.done());
    bar.reset_eta();
    bar
}

/// Formats a place within a run; its width is that of the last place.
fn place((epoch, epochs): (u64, u64), (step, steps): (u64, u64)) -> String {
    let [width, step_width] = [epochs, steps].map(|n| n.to_string().len());
    format!("epoch {epoch:width$}/{epochs} batch {step:step_width$}/{steps}")
}

/// Formats a line inside an epoch.
fn step_line(place: &str, loss: f64, eta: Option<f64>) -> String {
    let eta = eta.map_or(String::new(), |eta| format!("  ETA {}", seconds(eta)));
    format!("{place}  loss {}{eta}", loss_text(loss))
}

/// Returns whether a line is printed: for the first, the last and every `every`-th epoch.
fn is_printed(epoch: u64, every: u64, epochs: u64) -> bool {
    epoch == 1 || epoch == epochs || epoch.is_multiple_of(every)
}

fn progress(record: &EpochRecord, scores: Option<&Scores>, best: Option<&Best>) -> String {
    format!("loss {}{}  {}/epoch", loss_text(record.loss), scores_text(scores, best), seconds(record.seconds))
}

fn loss_text(loss: f64) -> String {
    if loss < 1e5 { format!("{loss:.4}") } else { format!("{loss:.3e}") }
}

/// Formats the newest and the best validation score, as far as they are known.
fn scores_text(scores: Option<&Scores>, best: Option<&Best>) -> String {
    let val = scores.and_then(|s| s.val).map_or(String::new(), |val| format!("  val {val:.4}"));
    let best = best.and_then(|b| Some((b.scores.val?, b.epoch)));
    val + &best.map_or(String::new(), |(val, epoch)| format!("  best {val:.4} at {epoch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_prints_few_lines() {
        for epochs in [1, 2, 16, 17, 100, 1000, 12_345] {
            let every = u64::div_ceil(epochs, LINES);
            let printed = (1..=epochs).filter(|&e| is_printed(e, every, epochs)).count();
            assert!((1..=18).contains(&printed), "{epochs}: {printed}");
        }
    }

    #[test]
    fn a_line_has_the_known_scores() {
        let record = EpochRecord {
            epoch: 3,
            loss: 0.5,
            lr: 0.01,
            seconds: 0.0123,
            staleness: None,
            evaluation_seconds: None,
            scores: None,
        };
        assert_eq!(progress(&record, None, None), "loss 0.5000  12.3 ms/epoch");
        let scores = Scores { train: None, val: Some(0.75), test: None, val_loss: None };
        let best = Best { epoch: 2, scores, seconds: 1.0 };
        let line = progress(&record, Some(&scores), Some(&best));
        assert_eq!(line, "loss 0.5000  val 0.7500  best 0.7500 at 2  12.3 ms/epoch");
    }

    #[test]
    fn a_line_inside_an_epoch_has_batch_loss_and_estimate() {
        let place = place((3, 10), (57, 144));
        assert_eq!(place, "epoch  3/10 batch  57/144");
        assert_eq!(
            step_line(&place, 0.5, Some(125.0)),
            "epoch  3/10 batch  57/144  loss 0.5000  ETA 2 min 05 s"
        );
        assert_eq!(step_line("", 123_456.0, None), "  loss 1.235e5");
    }
}
