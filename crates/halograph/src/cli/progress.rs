//! Progress on the terminal: a bar where there is one, a line a stage where there is not, silence if asked.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use halograph_graph::error::Result;
use halograph_graph::progress::{Progress, Unit};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{interrupt, say};

/// Shows stages as they pass.
pub struct Bar {
    quiet: bool,
    current: Mutex<ProgressBar>,
}

impl Bar {
    /// A bar that also stops the work on Ctrl-C or SIGTERM. The work looks often enough to end within seconds, and
    /// must: ended otherwise, it would leave its hidden folder behind.
    pub fn new(quiet: bool) -> Self {
        interrupt::watch();
        Bar { quiet, current: Mutex::new(ProgressBar::hidden()) }
    }

    /// Shows a short stage, which a log can do without; fails if there was a signal.
    pub fn glance(&self, stage: &str) -> Result<()> {
        if std::io::stderr().is_terminal() {
            self.begin(stage, None, Unit::Items);
        }
        let progress: &dyn Progress = self;
        progress.tick(0)
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
        if !std::io::stderr().is_terminal() {
            return say(&format!("{stage} …"));
        }
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
            // What it waits for may never report.
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let mut current = self.bar();
        current.finish_and_clear();
        *current = bar;
    }

    fn advance(&self, n: u64) {
        self.bar().inc(n);
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar().finish_and_clear();
    }
}
