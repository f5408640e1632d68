//! Ranks as threads of one process.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::inbox::Inbox;
use crate::options::Options;
use crate::shared::Shared;
use crate::transport::{self, Link, Outgoing, SendStatus, Sender, Transport, TransportError};

/// Runs `work` on one thread per rank and returns the results by rank. Blocks until all threads have ended.
///
/// An error or panic of a rank ends the current and all later waits of the others with that failure. Ranks that succeed
/// close their communicators.
pub fn run<R, E>(
    ranks: usize,
    options: &Options,
    work: impl Fn(&Comm) -> Result<R, E> + Sync,
) -> Vec<Result<R, E>>
where
    R: Send,
    E: Send + From<Error> + Display,
{
    let comms = match world(ranks, options) {
        Ok(comms) => comms,
        Err(error) => return (0..ranks).map(|_| Err(E::from(error.clone()))).collect(),
    };
    thread::scope(|scope| {
        let work = &work;
        let start = |comm: Comm| {
            let builder = thread::Builder::new().name(format!("rank {}", comm.rank()));
            builder.spawn_scoped(scope, move || run_rank(comm, work))
        };
        let started: Vec<_> = comms.into_iter().map(start).collect();
        started.into_iter().map(|rank| rank.map_or_else(not_started, |rank| join(rank.join()))).collect()
    })
}

/// Returns the world communicators of `ranks` ranks in this process, each for a thread of its own. Starts a progress
/// thread per rank.
pub fn world(ranks: usize, options: &Options) -> Result<Vec<Comm>> {
    let began = Some(Instant::now());
    let inboxes: Inboxes = (0..ranks).map(|_| Arc::new(Inbox::new(ranks))).collect();
    let start = |rank| {
        let inboxes = inboxes.clone();
        Comm::start(options, move || Ok(link(rank, inboxes, began)))
    };
    (0..ranks).map(start).collect()
}

type Inboxes = Arc<[Arc<Inbox>]>;

/// Returns the link of a rank to the inboxes of all ranks.
fn link(rank: usize, inboxes: Inboxes, began: Option<Instant>) -> Link {
    Link {
        rank,
        inbox: inboxes[rank].clone(),
        hosts: Some(vec![transport::host(); inboxes.len()]),
        sender: Box::new(DirectSender { rank, inboxes }),
        transport: Box::new(NoTransport),
        began,
    }
}

/// Runs `work` and closes the communicator, or reports the failure to the other ranks.
fn run_rank<R, E: From<Error> + Display>(comm: Comm, work: &impl Fn(&Comm) -> Result<R, E>) -> Result<R, E> {
    match catch_unwind(AssertUnwindSafe(|| work(&comm))) {
        Ok(Ok(result)) => comm.close().map(|()| result).map_err(E::from),
        Ok(Err(error)) => {
            comm.fail(&error.to_string());
            Err(error)
        }
        Err(panic) => {
            let cause = format!("it panicked: {}", panic_message(&*panic));
            comm.fail(&cause);
            let host = comm.hosts()[comm.rank()].clone();
            Err(E::from(Error::Failed { rank: comm.rank(), host, cause }))
        }
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Returns the error of a rank whose thread could not be started. Its communicator was dropped with the closure, which
/// failed the other ranks.
fn not_started<R, E: From<Error>>(cause: std::io::Error) -> Result<R, E> {
    Err(E::from(Error::Start { cause: cause.to_string() }))
}

/// Returns the result of a thread; its panic as an error.
fn join<R, E: From<Error>>(joined: thread::Result<Result<R, E>>) -> Result<R, E> {
    let panicked = |panic: Box<dyn Any + Send>| Error::Start { cause: panic_message(&*panic).to_string() };
    joined.unwrap_or_else(|panic| Err(E::from(panicked(panic))))
}

/// Delivers messages to the inboxes of the receivers without copying them.
struct DirectSender {
    rank: usize,
    inboxes: Inboxes,
}

impl Sender for DirectSender {
    fn send(&self, outgoing: Outgoing) -> SendStatus {
        self.inboxes[outgoing.to].deliver(self.rank, outgoing.key, outgoing.message);
        SendStatus::Delivered
    }
}

/// Transport without work for the progress thread: [`DirectSender`] delivers messages at once.
struct NoTransport;

impl Transport for NoTransport {
    fn poll(&mut self, _: &Shared) -> Result<bool, TransportError> {
        Ok(false)
    }

    fn pending(&self, _: bool) -> bool {
        false
    }

    fn max_sleep(&self) -> Duration {
        Duration::MAX
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::handshake;
    use crate::tag::{Purpose, Tag};
    use crate::trace::Track;

    #[test]
    fn ranks_suspended_together_are_not_lost() {
        let options = Options { deadline: Duration::from_secs(1), ..Options::default() };
        let comms = world(2, &options).unwrap();
        let suspend =
            |stall| comms.iter().for_each(|comm| comm.shared().command(|commands| commands.stall = stall));
        suspend(true);
        thread::sleep(options.deadline * 2);
        suspend(false);
        thread::scope(|scope| {
            let meet = |comm| scope.spawn(move || Comm::barrier(comm, Tag::new(Purpose::Control)).unwrap());
            comms.iter().for_each(|comm| drop(meet(comm)));
        });
    }

    #[test]
    fn a_handshake_synchronises_clocks() {
        const OFFSET: Duration = Duration::from_millis(200);
        let inboxes: Inboxes = (0..2).map(|_| Arc::new(Inbox::new(2))).collect();
        let comms = [0, 1].map(|rank| {
            let inboxes = inboxes.clone();
            let comm = Comm::start(&Options::default(), move || Ok(link(rank, inboxes, None))).unwrap();
            thread::sleep(OFFSET);
            comm
        });
        thread::scope(|scope| {
            comms.iter().for_each(|comm| drop(scope.spawn(|| handshake(comm, &[]).unwrap())));
        });
        let now = Instant::now();
        let [a, b] = [&comms[0], &comms[1]].map(|comm| {
            comm.shared().recorder.add(Track::Compute, comm.shared().position(), Some(now), now, String::new);
            comm.take_spans()[0].start
        });
        // The error is at most half the shortest round trip.
        assert!(Duration::from_nanos(a.abs_diff(b)) < OFFSET / 2, "{a} {b}");
    }
}
