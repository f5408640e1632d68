//! Progress of a command: a bar on a terminal, one line per stage elsewhere, nothing if quiet.

use std::sync::Mutex;
use std::time::Duration;

use halograph_graph::progress::{Progress, Unit};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{interrupt, is_interactive, say};

/// Shows the current stage.
pub struct Bar {
    quiet: bool,
    current: Mutex<ProgressBar>,
}

impl Bar {
    /// Creates a bar. Installs the signal handler: Ctrl-C and SIGTERM cancel the work, which then removes its temporary files.
    pub fn new(quiet: bool) -> Self {
        interrupt::install();
        Bar { quiet, current: Mutex::new(ProgressBar::hidden()) }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.current.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Progress for Bar {
    fn begin(&self, stage: &str, total: Option<u64>, unit: Unit) {
        if self.quiet {
            return;
        }
        if !is_interactive() {
            return say(&format!("{stage} …"));
        }
        // Before the next bar is drawn: both would use the same line.
        self.bar().finish_and_clear();
        let count = match unit {
            Unit::Bytes => "{bytes}/{total_bytes}",
            Unit::Items => "{human_pos}/{human_len}",
        };
        let template = match total {
            Some(_) => format!("{{msg:20}} [{{bar:30}}] {count} {{eta}}"),
            None => "{msg:20} {spinner} {elapsed}".to_string(),
        };
        let style = ProgressStyle::with_template(&template).expect("the templates above are valid");
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(stage.to_string());
        if total.is_none() {
            // The stage may never report progress.
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        *self.bar() = bar;
    }

    fn brief(&self, stage: &str) {
        if is_interactive() {
            self.begin(stage, None, Unit::Items);
        }
    }

    fn uninterruptible(&self, active: bool) {
        interrupt::set_uninterruptible(active);
    }

    fn advance(&self, n: u64) {
        self.bar().inc(n);
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar().finish_and_clear();
    }
}
