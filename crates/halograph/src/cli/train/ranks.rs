//! `halograph train` under a launcher. Rank 0 alone shows progress and results. An error is printed by one rank, the one
//! that knows the cause; the other ranks exit without a message.

use std::process::ExitCode;
use std::time::Duration;

use halograph::comm::Comm;
use halograph::job::{JobOptions, World};
use halograph::{Error, Result};

use crate::cli::{exit_code, interrupt, print_error};

/// How long a rank without a message waits before it exits: the first rank to exit decides the launcher's exit code.
const EXIT_DELAY: Duration = Duration::from_millis(200);

/// Joins the ranks that a launcher started. Until all have joined, a signal ends the process.
pub fn join(options: &JobOptions) -> Result<World> {
    if !halograph::comm::launched() {
        return Ok(World::alone());
    }
    interrupt::set_joining(true);
    let world = World::join(&options.settings)?;
    interrupt::set_joining(false);
    Ok(world)
}

/// Runs `work` as one of several ranks, then leaves the others or reports the failure to them.
pub fn run(world: &World, work: impl FnOnce() -> Result<ExitCode>) -> ExitCode {
    interrupt::install();
    interrupt::end_on_second_signal();
    interrupt::set_rank();
    if !world.is_leader() {
        interrupt::set_quiet();
    }
    match work().and_then(|code| world.clone().close().map(|()| code)) {
        Ok(code) => code,
        Err(error) => fail(world, error),
    }
}

fn fail(world: &World, error: Error) -> ExitCode {
    interrupt::set_quiet();
    let comm = world.comm().expect("one of several ranks");
    let error = &cause(error, comm);
    if world.reports(error) {
        // Printed before the others are notified: the launcher kills all ranks when one has exited.
        print_error(error);
        comm.fail(&error.to_string());
    } else {
        comm.wait_for_failure();
        std::thread::sleep(EXIT_DELAY);
    }
    exit_code(error)
}

/// Returns what made a launcher interrupt this rank: the failure of another rank, if there is one. May block for
/// [`EXIT_DELAY`], because the signal may arrive before the failure is detected.
fn cause(error: Error, comm: &Comm) -> Error {
    if !matches!(error, Error::Input(halograph_graph::Error::Cancelled)) {
        return error;
    }
    std::thread::sleep(EXIT_DELAY);
    comm.failure().map_or(error, Error::from)
}
