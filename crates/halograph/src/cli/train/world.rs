//! `halograph train` under a launcher: this process is one of several ranks.
//!
//! Every process reads its own command line; what they say must agree, but for where things are. Rank 0 makes or takes
//! up the run and tells the others where it and the data are; a rank that was given DATA or `--out` of its own uses
//! that, so that hosts need not share a file system.
//!
//! Rank 0 alone shows progress and results. What fails is said once, by the rank that knows it at first hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use halograph::comm::{self, Comm, Message};
use halograph::config::{self, Setting};
use halograph::train;
use halograph::train::event::{Event, Observer};
use halograph::train::launch::{self, Extras, Order, Role};
use halograph::train::run::{Header, annex};
use halograph::train::tags::Control;
use halograph_graph::error::Result as InputResult;
use halograph_graph::partition::Assignment;
use halograph_graph::progress::Silent;
use serde::{Deserialize, Serialize};

use super::demo::Demo;
use super::job::Job;
use super::watch::Watch;
use super::{Args, finish, show};
use crate::cli::engine::{Summary, plain};
use crate::cli::progress::Bar;
use crate::cli::source::Source;
use crate::cli::trained::own_data;
use crate::cli::{code, fail, interrupt};

/// How long a rank that has nothing to say waits for those that do: the first to end decides the launcher's exit code.
const COURTESY: Duration = Duration::from_millis(200);

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Plan {
    header: Header,
    run: PathBuf,
    trace: Option<PathBuf>,
}

/// The ranks that a launcher started, if it started several.
#[cfg(feature = "mpi")]
pub fn join(settings: &[Setting]) -> anyhow::Result<Option<Comm>> {
    if !comm::launched() {
        return Ok(None);
    }
    // Settings that make no sense are refused when all ranks can be told.
    let deadline =
        config::resolve(settings).ok().map(|config| Duration::from_secs_f64(config.train.deadline));
    let options = comm::Options::default();
    let options = comm::Options { deadline: deadline.unwrap_or(options.deadline), ..options };
    interrupt::end_at_first(true);
    let comm = comm::mpi::join(&options).map_err(train::Error::from)?;
    interrupt::end_at_first(false);
    if comm.size() > 1 {
        return Ok(Some(comm));
    }
    comm.close().map_err(train::Error::from)?;
    Ok(None)
}

/// Without MPI a rank would train all by itself, and so would all others.
#[cfg(not(feature = "mpi"))]
pub fn join(_: &[Setting]) -> anyhow::Result<Option<Comm>> {
    if !comm::launched() {
        return Ok(None);
    }
    Err(halograph_graph::Error::input(
        "launcher",
        "this process is one of several ranks, and this build has no MPI",
    )
    .help("build with `cargo build --release --features mpi`, or start one process with --ranks N")
    .into())
}

/// Trains as one of these ranks.
pub fn run(args: &Args, settings: &[Setting], comm: Comm) -> anyhow::Result<ExitCode> {
    interrupt::watch();
    interrupt::end_at_second();
    interrupt::hesitate();
    if comm.rank() > 0 {
        interrupt::be_silent();
    }
    let error = match take_part(args, settings, &comm) {
        Ok(code) => match comm.clone().close() {
            Ok(()) => return Ok(code),
            Err(error) => train::Error::from(error).into(),
        },
        Err(error) => error,
    };
    interrupt::be_silent();
    if is_for_this_rank(&error, &comm) {
        // Said before the others are told: the launcher ends all when one of them has ended.
        let code = fail(&error);
        comm.fail(&error.to_string());
        return Ok(code);
    }
    comm.wait_for_failure();
    std::thread::sleep(COURTESY);
    Ok(code(&error))
}

/// Whether it is this rank that says what went wrong: not if another one knows it better, or just as well.
fn is_for_this_rank(error: &anyhow::Error, comm: &Comm) -> bool {
    match error.downcast_ref() {
        Some(train::Error::Ranks(comm::Error::Failed { rank, .. })) if *rank != comm.rank() => false,
        Some(train::Error::Ranks(comm::Error::Mismatch { .. }) | train::Error::Diverged { .. }) => {
            comm.rank() == 0
        }
        _ => !comm.failure_is_remote(),
    }
}

fn take_part(args: &Args, settings: &[Setting], comm: &Comm) -> anyhow::Result<ExitCode> {
    let settings = agree(settings, comm)?;
    if comm.rank() == 0 { lead(args, &settings, comm) } else { follow(args, comm) }
}

/// The settings, with the number of ranks, if they make sense and are those of all other ranks.
fn agree(settings: &[Setting], comm: &Comm) -> anyhow::Result<Vec<Setting>> {
    let ranks = Setting::new("launcher", "train.ranks", &comm.size().to_string());
    let all: Vec<Setting> = settings.iter().cloned().chain([ranks]).collect();
    let config = check_ranks(settings, comm.size()).and_then(|()| config::resolve(&all));
    let problem = config.as_ref().err().map_or(String::new(), ToString::to_string);
    let problems = comm
        .all_gather(Control::Settings.tag(), Message::of(problem.as_bytes()))
        .map_err(train::Error::from)?;
    let said = |message: &Message| message.as_slice().map(|text| String::from_utf8_lossy(text).into_owned());
    let problems = problems.iter().map(said).collect::<comm::Result<Vec<_>>>().map_err(train::Error::from)?;
    // The first rank with a problem says it; others only what is not the same.
    if let Some(first) = problems.iter().position(|said| !said.is_empty()) {
        let known = problems[..comm.rank()].contains(&problem);
        let told = || comm::Error::Failed {
            rank: first,
            host: comm.hosts()[first].clone(),
            cause: problems[first].clone(),
        };
        return Err(config
            .err()
            .filter(|_| !known)
            .map_or_else(|| train::Error::from(told()).into(), Into::into));
    }
    let facts = config::flatten(&config?)?;
    let mut facts: Vec<(&str, String)> =
        facts.iter().map(|(key, value)| (key.as_str(), config::text(value))).collect();
    facts.push(("version of halograph", env!("CARGO_PKG_VERSION").to_string()));
    comm::handshake(comm, &facts).map_err(train::Error::from)?;
    Ok(all)
}

/// Refuses another number of ranks than the launcher started.
fn check_ranks(settings: &[Setting], ranks: usize) -> InputResult<()> {
    let said = settings.iter().rev().find(|s| s.name() == "train.ranks");
    match said.filter(|s| s.value.as_integer() != Some(ranks as i64)) {
        None => Ok(()),
        Some(s) => {
            let problem = format!("train.ranks = {}, but the launcher started {ranks}", s.value);
            Err(halograph_graph::Error::input(&s.place, problem).help("leave it out: the launcher decides"))
        }
    }
}

fn lead(args: &Args, settings: &[Setting], comm: &Comm) -> anyhow::Result<ExitCode> {
    let bar = Bar::new(args.quiet || args.json);
    let mut job = Job::open(args, settings, &bar)?;
    drop(bar);
    job.notes.iter().for_each(|note| crate::cli::say(&format!("note: {note}")));
    let trained = train_together(args, &mut job, comm);
    // Too late for that: what is said now is how it ended.
    interrupt::be_silent();
    finish(args, &mut job, trained)
}

fn train_together(args: &Args, job: &mut Job, comm: &Comm) -> anyhow::Result<Summary> {
    let (source, assignment, run) = job.parts();
    let plan = Plan {
        header: run.header().clone(),
        run: std::path::absolute(run.path())?,
        trace: args.trace.clone(),
    };
    tell(comm, Some(&plan))?;
    let mut watch: Watch = show(args, run.path());
    let order = plan.order(&plan.run, assignment, args.force);
    let summary = launch::train_among(comm, order, source.for_ranks(), Role::Lead(run.lead(&mut watch)));
    Ok(summary.map_err(plain)?.expect("rank 0 gives a summary"))
}

fn follow(args: &Args, comm: &Comm) -> anyhow::Result<ExitCode> {
    let plan = tell(comm, None)?;
    let run = match &args.out {
        Some(out) => std::path::absolute(out)?,
        None => plan.run.clone(),
    };
    let data = match &args.data {
        Some(data) => data.clone(),
        None => plan.data(&annex(&run, comm.rank()))?,
    };
    let source = Source::open(&data, comm.rank() as u32)?;
    let role = Role::Follow(&mut Stop);
    launch::train_among(comm, plan.order(&run, None, args.force), source.for_ranks(), role).map_err(plain)?;
    Ok(if interrupt::asked() { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::SUCCESS })
}

impl Plan {
    fn order<'a>(&'a self, path: &'a Path, assignment: Option<&'a Assignment>, force: bool) -> Order<'a> {
        let extras = Extras { trace: self.trace.as_deref(), assignment, force, ..Extras::default() };
        Order { config: &self.header.config, data: &self.header.data, path, extras }
    }

    /// Where the data are. The built-in graph is made in `home` where that of rank 0 is not to be seen.
    fn data(&self, home: &Path) -> InputResult<PathBuf> {
        let there = &self.header.data.path;
        if there.exists() || *there != own_data(&self.run) {
            return Ok(there.clone());
        }
        let own = own_data(home);
        if !own.exists() {
            Demo::make(home, &Silent)?.settle(&own)?;
        }
        Ok(own)
    }
}

/// What a rank tells that is not the first: nothing but that somebody wants it to stop.
struct Stop;

impl Observer for Stop {
    fn on(&mut self, _: &Event) {}

    fn interrupted(&self) -> bool {
        interrupt::asked()
    }
}

/// The plan of rank 0, on every rank.
fn tell(comm: &Comm, plan: Option<&Plan>) -> anyhow::Result<Plan> {
    let text = plan.map(serde_json::to_vec).transpose()?;
    let told = comm
        .broadcast(Control::Job.tag(), 0, text.as_deref().map(Message::of))
        .map_err(train::Error::from)?;
    let plan: Plan = serde_json::from_slice(told.as_slice().map_err(train::Error::from)?)?;
    comm.set_deadline(Duration::from_secs_f64(plan.header.config.train.deadline));
    Ok(plan)
}
