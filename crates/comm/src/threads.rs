//! Ranks as threads of one process: the transport that is always there.

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
use crate::transport::{self, Arrival, Link, Outgoing, Sender, Transport, Trouble};

/// Runs `work` once on each of `ranks` threads, as rank 0, 1, …; returns their results in this order.
///
/// A rank that returns an error or panics stops all others at their next wait, and they return what it failed of. Ranks
/// that succeed leave together.
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
            builder.spawn_scoped(scope, move || as_rank(comm, work))
        };
        let started: Vec<_> = comms.into_iter().map(start).collect();
        started.into_iter().map(|rank| rank.map_or_else(not_started, |rank| join(rank.join()))).collect()
    })
}

/// The connections of `ranks` ranks within this process, to be used from a thread each.
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

fn link(rank: usize, inboxes: Inboxes, began: Option<Instant>) -> Link {
    Link {
        rank,
        inbox: inboxes[rank].clone(),
        hosts: Some(vec![transport::host(); inboxes.len()]),
        sender: Box::new(Direct { rank, inboxes }),
        transport: Box::new(Nothing),
        began,
    }
}

fn as_rank<R, E: From<Error> + Display>(comm: Comm, work: &impl Fn(&Comm) -> Result<R, E>) -> Result<R, E> {
    match catch_unwind(AssertUnwindSafe(|| work(&comm))) {
        Ok(Ok(result)) => comm.close().map(|()| result).map_err(E::from),
        Ok(Err(error)) => {
            comm.fail(&error.to_string());
            Err(error)
        }
        Err(panic) => {
            let cause = format!("it panicked: {}", said(&*panic));
            comm.fail(&cause);
            let host = comm.hosts()[comm.rank()].clone();
            Err(E::from(Error::Failed { rank: comm.rank(), host, cause }))
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The rank was dropped with the closure it should have run, so that the others know.
fn not_started<R, E: From<Error>>(cause: std::io::Error) -> Result<R, E> {
    Err(E::from(Error::Start { cause: cause.to_string() }))
}

fn join<R, E: From<Error>>(joined: thread::Result<Result<R, E>>) -> Result<R, E> {
    let panicked = |panic: Box<dyn Any + Send>| Error::Start { cause: said(&*panic).to_string() };
    joined.unwrap_or_else(|panic| Err(E::from(panicked(panic))))
}

/// Puts messages into the others' inboxes, without copying them.
struct Direct {
    rank: usize,
    inboxes: Inboxes,
}

impl Sender for Direct {
    fn send(&self, outgoing: Outgoing) -> Arrival {
        self.inboxes[outgoing.to].deliver(self.rank, outgoing.key, outgoing.message);
        Arrival::Here
    }
}

/// What is left to do for the progress thread then.
struct Nothing;

impl Transport for Nothing {
    fn poll(&mut self, _: &Shared) -> Result<bool, Trouble> {
        Ok(false)
    }

    fn pending(&self, _: bool) -> bool {
        false
    }

    fn nap(&self) -> Duration {
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
    fn ranks_that_were_suspended_together_miss_nobody() {
        let options = Options { deadline: Duration::from_secs(1), ..Options::default() };
        let comms = world(2, &options).unwrap();
        let suspend =
            |stall| comms.iter().for_each(|comm| comm.shared().order(|orders| orders.stall = stall));
        suspend(true);
        thread::sleep(options.deadline * 2);
        suspend(false);
        thread::scope(|scope| {
            let meet = |comm| scope.spawn(move || Comm::barrier(comm, Tag::new(Purpose::Control)).unwrap());
            comms.iter().for_each(|comm| drop(meet(comm)));
        });
    }

    #[test]
    fn ranks_with_clocks_of_their_own_agree_on_that_of_rank_0() {
        const APART: Duration = Duration::from_millis(200);
        let inboxes: Inboxes = (0..2).map(|_| Arc::new(Inbox::new(2))).collect();
        let comms = [0, 1].map(|rank| {
            let inboxes = inboxes.clone();
            let comm = Comm::start(&Options::default(), move || Ok(link(rank, inboxes, None))).unwrap();
            thread::sleep(APART);
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
        // Half the quickest answer is what they may be apart.
        assert!(Duration::from_nanos(a.abs_diff(b)) < APART / 2, "{a} {b}");
    }
}
