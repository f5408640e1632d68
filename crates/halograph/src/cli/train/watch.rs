//! Progress of a run: a bar on a terminal, some lines elsewhere, nothing if quiet; and TensorBoard scalars.

use std::path::PathBuf;
use std::time::Duration;

use halograph::tensorboard;
use halograph::train::event::{Best, EpochRecord, Event, Observer, Scores};
use halograph::words::seconds;
use halograph_graph::error::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{interrupt, is_interactive, say};

/// About how many lines a run prints where there is no terminal.
const LINES: u64 = 16;

/// Shows a run while it trains.
pub struct Watch {
    view: View,
    scalars: Scalars,
    epochs: u64,
    scores: Option<Scores>,
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
        Watch { view, scalars: tensorboard.map_or(Scalars::None, Scalars::Wanted), epochs: 0, scores: None }
    }

    fn start(&mut self, from: u64, epochs: u64) {
        self.epochs = epochs;
        match &mut self.view {
            View::Silent => {}
            View::Bar(bar) => {
                bar.finish_and_clear();
                *bar = new_bar(from, epochs);
            }
            View::Lines(every) => *every = (epochs + 1).saturating_sub(from).div_ceil(LINES).max(1),
        }
        if let Scalars::Wanted(folder) = &self.scalars {
            let opened = tensorboard::Writer::create(folder, from).map(Scalars::Writing);
            self.scalars = self.or_disabled(opened);
        }
    }

    fn epoch(&mut self, record: &EpochRecord, best: Option<&Best>) {
        self.scores = record.scores.or(self.scores);
        let progress = progress(record, self.scores.as_ref(), best);
        let width = self.epochs.to_string().len();
        match &self.view {
            View::Bar(bar) => {
                bar.set_position(record.epoch);
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
            Event::Started { from, epochs, .. } => {
                interrupt::set_training();
                self.start(*from, *epochs);
            }
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

/// Returns whether a line is printed: for the first, the last and every `every`-th epoch.
fn is_printed(epoch: u64, every: u64, epochs: u64) -> bool {
    epoch == 1 || epoch == epochs || epoch.is_multiple_of(every)
}

fn progress(record: &EpochRecord, scores: Option<&Scores>, best: Option<&Best>) -> String {
    let val = scores.and_then(|s| s.val).map_or(String::new(), |val| format!("  val {val:.4}"));
    let best = best.and_then(|b| Some((b.scores.val?, b.epoch)));
    let best = best.map_or(String::new(), |(val, epoch)| format!("  best {val:.4} at {epoch}"));
    let loss = record.loss;
    let loss = if loss < 1e5 { format!("{loss:.4}") } else { format!("{loss:.3e}") };
    format!("loss {loss}{val}{best}  {}/epoch", seconds(record.seconds))
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
}
