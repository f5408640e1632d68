//! Trains the runs of a sweep, each in a process of its own: a run that fails or needs too much memory does not end the others.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use halograph::config::{self, Setting};
use halograph::sweep::{Finished, Point, Sweep};
use halograph::train::run::{is_run, read_header, read_summary};
use halograph::words::seconds;
use halograph_graph::error::{Error, Result};
use serde_json::Value;

use super::Options;
use super::process::{Ended, Process};
use crate::cli::{cores, interrupt, say};

/// The key of the threads of a rank. A run that differs only in it is the same.
const THREADS: &str = "train.threads";

pub struct Runner<'a> {
    pub sweep: &'a Sweep,
    /// Fingerprint of the dataset.
    pub fingerprint: &'a str,
    /// The folder of the runs.
    pub folder: &'a Path,
    pub options: &'a Options<'a>,
}

/// What has become of the runs.
#[derive(Default)]
pub struct Outcome {
    /// Runs that ended, in the order of the sweep.
    pub finished: Vec<Finished>,
    /// Names of runs that failed.
    pub failed: Vec<String>,
    /// Exit code of the first that failed.
    pub code: u8,
}

/// What concurrent runs share.
#[derive(Default)]
struct Progress {
    /// The next run to train.
    next: AtomicUsize,
    outcome: Mutex<Outcome>,
    /// Notes that were printed.
    notes: Mutex<HashSet<String>>,
}

impl Runner<'_> {
    /// Trains all runs that have not ended. Blocks; stops after a signal, when the runs in progress have saved their state.
    pub fn run(&self) -> Outcome {
        let progress = Progress::default();
        thread::scope(|scope| {
            for _ in 0..self.jobs() {
                scope.spawn(|| self.work(&progress));
            }
        });
        let mut outcome = progress.outcome.into_inner().unwrap_or_else(|e| e.into_inner());
        outcome.finished.sort_by_key(|run| run.index);
        outcome
    }

    /// Returns the number of concurrent runs.
    fn jobs(&self) -> usize {
        self.options.jobs.min(self.sweep.points.len())
    }

    fn work(&self, progress: &Progress) {
        while !interrupt::requested() {
            let index = progress.next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = self.sweep.points.get(index) else { return };
            self.train(index, point, progress);
        }
    }

    /// Trains a run, unless it has ended already, and records its outcome.
    fn train(&self, index: usize, point: &Point, progress: &Progress) {
        let start = Instant::now();
        let ended = match self.ended(point) {
            Ok(Some(summary)) => Ok((summary, "already trained".into())),
            Ok(None) => {
                self.start(point, progress).map(|summary| (summary, seconds(start.elapsed().as_secs_f64())))
            }
            Err(error) => Err(Failure::of(2, &error)),
        };
        let mut outcome = progress.outcome.lock().unwrap_or_else(|e| e.into_inner());
        let head = format!("{}/{} {}", index + 1, self.sweep.points.len(), point.name());
        match ended {
            Ok((summary, how)) => {
                if !self.options.json && !self.options.quiet {
                    say(&format!("{head}: {}{}", scores(&summary), how));
                }
                outcome.finished.push(Finished { index, point: point.clone(), summary });
            }
            Err(Failure::Interrupted) => {}
            Err(Failure::Failed { code, problem }) => {
                say(&format!("{head}: {problem}"));
                outcome.code = if outcome.failed.is_empty() { code } else { outcome.code };
                outcome.failed.push(point.name());
            }
        }
    }

    /// Returns the summary of a run that has ended with these settings; refuses a run on another dataset.
    fn ended(&self, point: &Point) -> Result<Option<Value>> {
        let directory = point.directory(self.folder);
        if !is_run(&directory) {
            return Ok(None);
        }
        let header = read_header(&directory)?;
        if header.data.fingerprint != self.fingerprint {
            let problem = format!("was trained on another dataset ({})", header.data.name);
            return Err(Error::input(directory.display(), problem)
                .help("give that dataset, or another folder with --out"));
        }
        let differences = config::differences(&header.config, &point.config)?;
        let is_same = differences.iter().all(|key| key == THREADS);
        let summary = read_summary(&directory)?.filter(|summary| summary["ending"] != "interrupted");
        Ok(summary.filter(|_| is_same))
    }

    /// Runs `train` and waits for its end.
    fn start(&self, point: &Point, progress: &Progress) -> std::result::Result<Value, Failure> {
        let directory = point.directory(self.folder);
        let other = |error: Error| Failure::of(1, &error);
        let process = Process::start(&self.arguments(point, &directory), self.folder).map_err(other)?;
        let ended = process.wait().map_err(other)?;
        say_notes(&ended.messages, progress);
        match ended.status.code() {
            Some(0) => read_summary(&directory).map_err(other)?.ok_or(Failure::Interrupted),
            Some(code) if code == i32::from(interrupt::EXIT_CODE) => Err(Failure::Interrupted),
            // Killed, perhaps by the signal that was sent to this process too.
            None if interrupt::requested() => Err(Failure::Interrupted),
            code => Err(Failure::Failed {
                code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
                problem: self.problem(point, &ended),
            }),
        }
    }

    /// Returns the arguments of the process that trains a run.
    fn arguments(&self, point: &Point, directory: &Path) -> Vec<std::ffi::OsString> {
        let mut words = vec!["train".into()];
        words.extend(self.options.data.map(Into::into));
        words.extend(["--quiet".into(), "--stop-by-stdin".into(), "-o".into(), directory.into()]);
        // Without data, only an existing run can be resumed.
        words.extend(is_run(directory).then(|| "--resume".into()));
        words.extend(self.options.force.then(|| "--force".into()));
        for setting in self.sweep.settings(point).iter().chain(&self.threads(point)) {
            words.extend(["--set".into(), assignment(setting).into()]);
        }
        words
    }

    /// Returns the share of the cores that a rank of one of several concurrent runs has, unless the user chose it.
    fn threads(&self, point: &Point) -> Option<Setting> {
        let train = &point.config.train;
        let share = cores() / self.jobs() / train.ranks.max(1);
        let wanted = self.jobs() > 1 && train.threads == 0;
        wanted.then(|| Setting::new("--jobs", THREADS, &share.max(1).to_string()))
    }

    /// Returns the error that a failed run printed. If it printed none, its messages are kept in a file.
    fn problem(&self, point: &Point, ended: &Ended) -> String {
        if let Some(error) = ended.error() {
            return error.to_string();
        }
        let log = self.folder.join(format!("{}.log", point.name()));
        let is_kept = !ended.messages.is_empty() && std::fs::write(&log, &ended.messages).is_ok();
        let more = if is_kept { format!("; see {}", log.display()) } else { String::new() };
        format!("error: the process ended with {}{more}{}", ended.status, ended.help())
    }
}

/// Why a run has no result.
enum Failure {
    /// A signal stopped it; its state is saved.
    Interrupted,
    Failed {
        code: u8,
        problem: String,
    },
}

impl Failure {
    fn of(code: u8, error: &Error) -> Self {
        Failure::Failed { code, problem: format!("error: {error}") }
    }
}

/// Prints the notes among the messages of a run. Most concern all runs, and are printed once.
fn say_notes(messages: &str, progress: &Progress) {
    let mut printed = progress.notes.lock().unwrap_or_else(|e| e.into_inner());
    for note in messages.lines().filter(|line| line.starts_with("note: ")) {
        if printed.insert(note.to_string()) {
            say(note);
        }
    }
}

fn scores(summary: &Value) -> String {
    let score = |name: &str| summary[name].as_f64().map(|x| format!("{name} {x:.4}, ")).unwrap_or_default();
    ["val", "test"].map(score).concat()
}

/// Returns `key=value` as `--set` reads it.
fn assignment(setting: &Setting) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let part = |part: &String| match part.chars().all(plain) {
        true => part.clone(),
        false => toml::Value::String(part.clone()).to_string(),
    };
    let key: Vec<String> = setting.key.iter().map(part).collect();
    format!("{}={}", key.join("."), setting.value)
}
