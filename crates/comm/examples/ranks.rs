//! Checks the MPI transport: run by tests, and by users on a new cluster.
//!
//! - `mpirun -n 4 ranks check [PIECE]` runs all checks, with messages split into pieces of PIECE bytes.
//! - `ranks work DEADLINE` exchanges messages until a rank fails (deadline in seconds), so that ranks can be killed.
//! - `ranks fail RANK` makes that rank fail.
//! - `ranks fail-outside RANK` makes that rank fail while the others wait in a group without it.
#![expect(clippy::print_stdout, reason = "a program, not a library")]

#[path = "../tests/checks/mod.rs"]
mod checks;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use halograph_comm::{
    Comm, Error, Message, Options, Position, Priority, Purpose, Result, Tag, handshake, launched, mpi,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = arguments.get(1).map(|text| text.parse().expect("the second argument is a number"));
    match run(arguments.first().map_or("check", String::as_str), number) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("error: {error}"));
            ExitCode::from(3)
        }
    }
}

/// Writes a line to standard error in one piece: lines of several ranks must not mix.
fn report(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("standard error is open");
}

fn run(mode: &str, number: Option<u64>) -> Result<()> {
    let mut options = Options::default();
    match (mode, number) {
        ("check", Some(piece)) => options.piece = piece as usize,
        ("work", Some(seconds)) => options.deadline = Duration::from_secs(seconds),
        _ => {}
    }
    assert!(launched(), "start this program with mpirun");
    let comm = mpi::join(&options)?;
    comm.trace();
    handshake(&comm, &[("mode", mode.to_string())])?;
    match mode {
        "work" => work(&comm)?,
        "fail" => fail(&comm, number.unwrap_or(0) as usize)?,
        "fail-outside" => fail_outside(&comm, number.unwrap_or(0) as usize)?,
        _ => check(&comm)?,
    }
    let (rank, size) = (comm.rank(), comm.size());
    comm.close()?;
    println!("rank {rank} of {size}: all checks passed");
    Ok(())
}

fn check(comm: &Comm) -> Result<()> {
    assert_eq!(comm.hosts().len(), comm.size());
    for _ in 0..3 {
        checks::all(comm)?;
        checks::groups::all(comm)?;
        overtaking(comm)?;
    }
    checks::delayed(comm)?;
    let spans = comm.take_spans();
    assert!(comm.size() == 1 || !spans.is_empty());
    assert!(spans.iter().all(|span| span.start <= span.end));
    checks::delayed_at_close(comm)
}

/// Checks that a short urgent message arrives before a long background message that was sent earlier. Only between
/// processes: threads deliver whole messages at once.
fn overtaking(comm: &Comm) -> Result<()> {
    let (next, previous) = checks::neighbours(comm);
    if next == comm.rank() {
        return Ok(());
    }
    let (long, short) = (Tag::new(Purpose::Features).layer(10), Tag::new(Purpose::Features).layer(11));
    let messages = (Message::of(&vec![1.0f32; 4_000_000]), Message::of(&[2.0f32]));
    comm.send_with(next, long, Priority::Background, messages.0)?;
    comm.send(next, short, messages.1)?;
    let (_, short_at) = comm.receive(previous, short).wait_timed()?;
    let (message, long_at) = comm.receive(previous, long).wait_timed()?;
    message.expect::<f32>(4_000_000)?;
    assert!(short_at < long_at, "16 MB arrived before 4 bytes");
    Ok(())
}

/// Fails on `rank`, while the others wait for it.
fn fail(comm: &Comm, rank: usize) -> Result<()> {
    if comm.rank() == rank { fail_here(comm) } else { comm.barrier(Tag::new(Purpose::Control)) }
}

/// Fails on `rank`, while the others wait for each other in a group without it.
fn fail_outside(comm: &Comm, rank: usize) -> Result<()> {
    let members: Vec<usize> = (0..comm.size()).filter(|&member| member != rank).collect();
    let ready = Tag::new(Purpose::Control);
    if comm.rank() == rank {
        members.iter().try_for_each(|&member| comm.receive(member, ready).wait().map(drop))?;
        let failed = fail_here(comm);
        // The launcher ends all ranks when this one ends: let the others report first.
        std::thread::sleep(Duration::from_secs(1));
        return failed;
    }
    comm.send(rank, ready, Message::empty())?;
    let group = comm.subgroup(&members, 1)?;
    // No rank sends this message.
    let waited = group.receive((group.rank() + 1) % group.size(), Tag::new(Purpose::Features)).wait();
    waited.map(drop).inspect_err(|error| report(&format!("a wait in the group ended: {error}")))
}

fn fail_here(comm: &Comm) -> Result<()> {
    let (rank, cause) = (comm.rank(), "failure requested".to_string());
    comm.fail(&cause);
    Err(Error::Failed { rank, host: comm.hosts()[rank].clone(), cause })
}

/// Exchanges messages until a rank fails. Prints the process id after two seconds.
fn work(comm: &Comm) -> Result<()> {
    let start = Instant::now();
    let mut printed = false;
    for epoch in 0.. {
        comm.set_position(Position::new("forward").epoch(epoch).layer(1));
        let tag = Tag::new(Purpose::Features).epoch(epoch);
        comm.all_to_all(tag, vec![Message::of(&vec![epoch as f32; 50_000]); comm.size()])?;
        if !printed && start.elapsed() > Duration::from_secs(2) {
            printed = true;
            println!("rank {} is process {}", comm.rank(), std::process::id());
            // Output to a pipe is buffered.
            std::io::stdout().flush().expect("standard output is open");
        }
    }
    Ok(())
}
