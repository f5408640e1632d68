//! Checks of ranks that an MPI launcher started, for tests and for new machines.
//!
//! `mpirun -n 4 ranks check [PIECE]` runs what every transport must do, with messages cut into pieces of PIECE bytes;
//! `mpirun -n 4 ranks work DEADLINE` exchanges messages for ever: to be stopped or killed, it takes DEADLINE seconds to
//! notice. `ranks fail RANK` has that rank fail.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program, not a library")]

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
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(what: &str, number: Option<u64>) -> Result<()> {
    let mut options = Options::default();
    match (what, number) {
        ("check", Some(piece)) => options.piece = piece as usize,
        ("work", Some(seconds)) => options.deadline = Duration::from_secs(seconds),
        _ => {}
    }
    assert!(launched(), "start this program with mpirun");
    let comm = mpi::join(&options)?;
    comm.trace();
    handshake(&comm, &[("what", what.to_string())])?;
    match what {
        "work" => work(&comm)?,
        "fail" => fail(&comm, number.unwrap_or(0) as usize)?,
        _ => check(&comm)?,
    }
    let (rank, size) = (comm.rank(), comm.size());
    comm.close()?;
    println!("rank {rank} of {size}: all is well");
    Ok(())
}

fn check(comm: &Comm) -> Result<()> {
    assert_eq!(comm.hosts().len(), comm.size());
    for _ in 0..3 {
        checks::all(comm)?;
        overtaking(comm)?;
    }
    let spans = comm.take_spans();
    assert!(comm.size() == 1 || !spans.is_empty());
    assert!(spans.iter().all(|span| span.start <= span.end));
    Ok(())
}

/// A short message is there before a long one that was sent behind it, though earlier. Threads hand over whole messages:
/// this is of processes alone.
fn overtaking(comm: &Comm) -> Result<()> {
    let (next, previous) = checks::neighbours(comm);
    if next == comm.rank() {
        return Ok(());
    }
    let (long, short) = (Tag::new(Purpose::Features).layer(10), Tag::new(Purpose::Features).layer(11));
    comm.send_with(next, long, Priority::Background, Message::of(&vec![1.0f32; 4_000_000]))?;
    comm.send(next, short, Message::of(&[2.0f32]))?;
    let behind = comm.receive(previous, long);
    comm.receive(previous, short).wait()?;
    assert!(!behind.is_there(), "16 MB are here before 4 bytes");
    behind.wait()?.expect::<f32>(4_000_000)?;
    Ok(())
}

fn fail(comm: &Comm, rank: usize) -> Result<()> {
    if comm.rank() == rank {
        let (host, cause) = (comm.hosts()[rank].clone(), "it was asked to".to_string());
        comm.fail(&cause);
        return Err(Error::Failed { rank, host, cause });
    }
    comm.barrier(Tag::new(Purpose::Control))
}

/// Tells where it is, then works until something happens.
fn work(comm: &Comm) -> Result<()> {
    let start = Instant::now();
    let mut told = false;
    for epoch in 0.. {
        comm.at(Position::new("forward").epoch(epoch).layer(1));
        let tag = Tag::new(Purpose::Features).epoch(epoch);
        comm.all_to_all(tag, vec![Message::of(&vec![epoch as f32; 50_000]); comm.size()])?;
        // Others have heard of its work by then.
        if !told && start.elapsed() > Duration::from_secs(2) {
            told = true;
            println!("rank {} is process {}", comm.rank(), std::process::id());
            // Lines of a pipe would wait for more.
            std::io::stdout().flush().expect("somebody reads this");
        }
    }
    Ok(())
}
