//! `halograph train` under a launcher: this process is one of several ranks.
//!
//! Every process reads its own command line. Rank 0 makes or takes up the run and tells the others where it and the data
//! are; a rank that was given DATA of its own opens that, so that hosts need not share a file system for data.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::comm::{self, Comm, Message, Purpose, Tag};
use halograph::config::Setting;
use halograph::train::ranks::{self, Extras, Order};
use halograph::train::run::Header;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::watch::Watch;
use super::{Args, finish, show};
use crate::cli::engine::plain;
use crate::cli::interrupt;
use crate::cli::source::Source;

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
struct Plan {
    header: Header,
    run: PathBuf,
}

/// The ranks that a launcher started, if it started several.
#[cfg(feature = "mpi")]
pub fn join(settings: &[Setting]) -> anyhow::Result<Option<Comm>> {
    if !comm::launched() {
        return Ok(None);
    }
    // Settings that make no sense are refused by every rank before any of them waits for another.
    let deadline = halograph::config::resolve(settings)?.train.deadline;
    let deadline = std::time::Duration::from_secs_f64(deadline);
    let options = comm::Options { deadline, ..comm::Options::default() };
    let comm = comm::mpi::join(&options).map_err(halograph::train::Error::from)?;
    if comm.size() > 1 {
        return Ok(Some(comm));
    }
    comm.close().map_err(halograph::train::Error::from)?;
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
    let done = take_part(args, settings, &comm);
    match done {
        Ok(code) => {
            comm.close().map_err(halograph::train::Error::from)?;
            Ok(code)
        }
        Err(error) => {
            comm.fail(&error.to_string());
            Err(error)
        }
    }
}

fn take_part(args: &Args, settings: &[Setting], comm: &Comm) -> anyhow::Result<ExitCode> {
    let ranks = Setting::new("launcher", "train.ranks", &comm.size().to_string());
    let settings: Vec<Setting> = settings.iter().cloned().chain([ranks]).collect();
    interrupt::watch();
    interrupt::end_at_second();
    if comm.rank() == 0 { lead(args, &settings, comm) } else { follow(args, comm) }
}

fn lead(args: &Args, settings: &[Setting], comm: &Comm) -> anyhow::Result<ExitCode> {
    let mut job = Job::open(args, settings)?;
    job.notes.iter().for_each(|note| crate::cli::say(&format!("note: {note}")));
    let (source, run) = job.parts();
    let plan = Plan { header: run.header().clone(), run: std::path::absolute(run.path())? };
    tell(comm, Some(&plan))?;
    let mut watch: Watch = show(args, run.path());
    let order = Order {
        config: &plan.header.config,
        data: &plan.header.data,
        path: &plan.run,
        extras: Extras { trace: args.trace.as_deref(), ..Extras::default() },
    };
    let summary = ranks::train_among(comm, order, source.for_ranks(), Some(run.lead(&mut watch)));
    drop(watch);
    let summary = summary.map_err(plain)?.expect("rank 0 gives a summary");
    finish(args, &job, &summary)
}

fn follow(args: &Args, comm: &Comm) -> anyhow::Result<ExitCode> {
    let plan = tell(comm, None)?;
    let path: &Path = args.data.as_deref().unwrap_or(&plan.header.data.path);
    let source = Source::open(path, comm.rank() as u32)?;
    let order = Order {
        config: &plan.header.config,
        data: &plan.header.data,
        path: &plan.run,
        extras: Extras { trace: args.trace.as_deref(), ..Extras::default() },
    };
    ranks::train_among(comm, order, source.for_ranks(), None).map_err(plain)?;
    Ok(if interrupt::asked() { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::SUCCESS })
}

/// The plan of rank 0, on every rank.
fn tell(comm: &Comm, plan: Option<&Plan>) -> anyhow::Result<Plan> {
    let text = plan.map(serde_json::to_vec).transpose()?;
    let tag = Tag::new(Purpose::Control).step(9);
    let told =
        comm.broadcast(tag, 0, text.as_deref().map(Message::of)).map_err(halograph::train::Error::from)?;
    Ok(serde_json::from_slice(told.as_slice().map_err(halograph::train::Error::from)?)?)
}
