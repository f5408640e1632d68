//! Trains the runs of a sweep, each in a process of its own: a run that fails or needs too much memory does not end the others.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use halograph::config::{self, Setting};
use halograph::sweep::{Finished, Point, Sweep};
use halograph::train::run::{is_run, read_header, read_summary};
use halograph::words::seconds;
use halograph_graph::error::{IoContext, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Options;
use crate::cli::{cores, interrupt, say};

/// Time between two looks at a running process.
const POLL: Duration = Duration::from_millis(20);
/// The key of the threads of a rank. A run that differs only in it is the same.
const THREADS: &str = "train.threads";

pub struct Runner<'a> {
    sweep: &'a Sweep,
    folder: &'a Path,
    options: &'a Options<'a>,
    program: PathBuf,
    next: AtomicUsize,
    outcome: Mutex<Outcome>,
}

/// What has become of the runs.
#[derive(Default)]
pub struct Outcome {
    /// Runs that ended, in the order of the sweep once all have.
    pub finished: Vec<Finished>,
    /// Names of runs that failed.
    pub failed: Vec<String>,
    /// Exit code of the first that failed.
    pub code: u8,
}

impl<'a> Runner<'a> {
    pub fn new(sweep: &'a Sweep, folder: &'a Path, options: &'a Options) -> Result<Self> {
        let program = std::env::current_exe().at(std::path::Path::new("this program"), "find")?;
        let (next, outcome) = (AtomicUsize::new(0), Mutex::default());
        Ok(Runner { sweep, folder, options, program, next, outcome })
    }

    /// Trains all runs that have not ended. Blocks; stops after a signal, when the runs in progress have saved their state.
    pub fn run(&self) -> Outcome {
        thread::scope(|scope| {
            for _ in 0..self.options.jobs.min(self.sweep.points.len()) {
                scope.spawn(|| self.work());
            }
        });
        let mut outcome = std::mem::take(&mut *self.outcome.lock().unwrap_or_else(|e| e.into_inner()));
        outcome.finished.sort_by_key(|run| self.sweep.points.iter().position(|point| *point == run.point));
        outcome
    }

    fn work(&self) {
        while !interrupt::requested() {
            let k = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = self.sweep.points.get(k) else { return };
            self.train(k, point);
        }
    }

    /// Trains a run, unless it has ended already, and records its outcome.
    fn train(&self, k: usize, point: &Point) {
        let start = Instant::now();
        let ended = match self.ended(point) {
            Some(summary) => Ok((summary, "already trained".into())),
            None => self.start(point).map(|summary| (summary, seconds(start.elapsed().as_secs_f64()))),
        };
        let mut outcome = self.outcome.lock().unwrap_or_else(|e| e.into_inner());
        let head = format!("{}/{} {}", k + 1, self.sweep.points.len(), point.name());
        match ended {
            Ok((summary, how)) => {
                if !self.options.json && !self.options.quiet {
                    say(&format!("{head}: {}{}", scores(&summary), how));
                }
                outcome.finished.push(Finished { point: point.clone(), summary });
            }
            Err(Failure::Interrupted) => {}
            Err(Failure::Failed { code, problem }) => {
                say(&format!("{head}: {problem}"));
                outcome.code = if outcome.failed.is_empty() { code } else { outcome.code };
                outcome.failed.push(point.name());
            }
        }
    }

    /// Returns the summary of a run that has ended with these settings.
    fn ended(&self, point: &Point) -> Option<Value> {
        let directory = point.directory(self.folder);
        let summary = is_run(&directory).then(|| read_summary(&directory).ok().flatten()).flatten()?;
        let config = read_header(&directory).ok()?.config;
        let differences = config::differences(&config, &self.sweep.config(point).ok()?).ok()?;
        let is_same = differences.iter().all(|key| key == THREADS);
        (is_same && summary["ending"] != "interrupted").then_some(summary)
    }

    /// Runs `train` and waits for its end.
    fn start(&self, point: &Point) -> std::result::Result<Value, Failure> {
        let directory = point.directory(self.folder);
        let log = self.folder.join(format!("{}.log", point.name()));
        let other = |e: halograph_graph::Error| Failure::Failed { code: 1, problem: format!("error: {e}") };
        let status = self
            .spawn(point, &directory, &log)
            .and_then(|child| wait(child).at(&log, "wait for"))
            .map_err(other)?;
        match status.code() {
            Some(0) => {
                let _ = fs::remove_file(&log);
                read_summary(&directory).map_err(other)?.ok_or(Failure::Interrupted)
            }
            Some(code) if code == i32::from(interrupt::EXIT_CODE) => Err(Failure::Interrupted),
            code => Err(Failure::Failed {
                code: code.map_or(1, |code| code as u8),
                problem: problem(&log, status),
            }),
        }
    }

    fn spawn(&self, point: &Point, directory: &Path, log: &Path) -> Result<Child> {
        let errors = File::create(log).at(log, "create")?;
        let mut command = Command::new(&self.program);
        command.arg("train").args(self.options.data).arg("-o").arg(directory).args(["--resume", "--quiet"]);
        command.args(self.options.force.then_some("--force"));
        for setting in self.sweep.settings(point).iter().chain(&self.threads(point)) {
            command.arg("--set").arg(assignment(setting));
        }
        // A group of its own: a signal of the terminal reaches it through this process, once.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        command.spawn().at(&self.program, "start")
    }

    /// Returns the share of the cores that a rank of one of several concurrent runs has, unless the user chose it.
    fn threads(&self, point: &Point) -> Option<Setting> {
        let train = self.sweep.config(point).ok()?.train;
        let share = cores() / self.options.jobs / train.ranks.max(1) as usize;
        let wanted = self.options.jobs > 1 && train.threads == 0;
        wanted.then(|| Setting::new("--jobs", THREADS, &share.max(1).to_string()))
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

/// Waits for a process; forwards one signal to it.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    let mut forwarded = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt::requested() && !forwarded {
            forwarded = true;
            // It may have ended meanwhile.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        thread::sleep(POLL);
    }
}

/// Returns what a failed run printed.
fn problem(log: &Path, status: ExitStatus) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    match text.find("error: ") {
        Some(at) => text[at..].trim_end().to_string(),
        None => format!("error: {status}; see {}", log.display()),
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
