//! Ranks as processes that an MPI launcher started, on one machine or many.
//!
//! All calls of MPI are made by the progress thread, which never blocks in one: sends and receives are posted and
//! tested in turn. Collectives and error handlers of MPI are not used; ours end in time and name who is missing.

mod raw;
mod road;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use halograph_kernels::buffer::Buffer;
use rustix::process::Pid;

use self::raw::{Arriving, Lane, Probed, QUEUES};
use self::road::Road;
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::inbox::Inbox;
use crate::message::Message;
use crate::notice::text;
use crate::options::Options;
use crate::shared::Shared;
use crate::tag::Part;
use crate::transport::{self, Arrival, Link, Outgoing, Sender, Transport, Trouble};

/// How long to sleep when nothing happened: a share of the time since anything did, within bounds. On a slow link, where
/// a piece takes milliseconds, a thread that looked often would take a core from those that compute.
const NAP_SHARE: u32 = 8;
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(500);
/// The longest while something is under way that may be waited for: MPI moves long messages only when it is called.
const LONGEST_WHILE_URGENT: Duration = Duration::from_micros(100);
/// Messages taken in between two looks at anything else.
const AT_ONCE: usize = 256;

/// Joins the ranks that the launcher started. Once per process.
pub fn join(options: &Options) -> Result<Comm> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    if JOINED.swap(true, Ordering::Relaxed) {
        return Err(Error::Start { cause: "this process has joined its ranks before".to_string() });
    }
    let piece = options.piece;
    let comm = Comm::start(options, move || open(piece).map_err(|cause| Error::Start { cause }))?;
    let name = [transport::host(), machine(), std::process::id().to_string()].join("\n");
    let names = comm.gather(comm.group().control(Part::Hosts), Message::of(name.as_bytes()))?;
    let names: Vec<String> = names.iter().map(text).collect();
    comm.shared().set_hosts(names.iter().map(|name| name.lines().next().unwrap_or("").into()).collect());
    comm.shared().set_processes(names.iter().map(|name| process(name)).collect());
    Ok(comm)
}

/// Where numbers of processes mean the same: the running kernel, and the name space in it.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// The process that said this of itself, if it is another one of this machine.
fn process(name: &str) -> Option<Pid> {
    let [_, place, number] = name.lines().collect::<Vec<_>>().try_into().ok()?;
    let number: i32 = number.parse().ok()?;
    let other = number != std::process::id() as i32;
    (other && place == machine() && place.trim().len() > 1).then(|| Pid::from_raw(number)).flatten()
}

fn open(piece: usize) -> Result<Link, String> {
    let (rank, size) = raw::init()?;
    let inbox = Arc::new(Inbox::new(size));
    let queue = Arc::new(Queue { waiting: Mutex::default(), inbox: inbox.clone() });
    let lanes = || [const { VecDeque::new() }; QUEUES];
    let transport = Mpi {
        queue: queue.clone(),
        roads: (0..size).map(|_| Road::default()).collect(),
        arriving: (0..size).map(|_| lanes()).collect(),
        pieces: (0..size).map(|_| [const { Vec::new() }; QUEUES]).collect(),
        piece: (piece / size_of::<u64>()).max(1),
        last: Instant::now(),
    };
    let (sender, transport) = (Box::new(Waiting(queue)), Box::new(transport));
    Ok(Link { rank, inbox, sender, transport, hosts: None, began: None })
}

/// Messages that the progress thread has not taken over yet.
struct Queue {
    waiting: Mutex<VecDeque<Outgoing>>,
    inbox: Arc<Inbox>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Outgoing>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the queue that other threads see.
struct Waiting(Arc<Queue>);

impl Sender for Waiting {
    fn send(&self, outgoing: Outgoing) -> Arrival {
        self.0.waiting().push_back(outgoing);
        self.0.inbox.bell.ring();
        Arrival::Later
    }
}

struct Mpi {
    queue: Arc<Queue>,
    /// What is being sent, by receiver.
    roads: Vec<Road>,
    /// What is being received, by sender and lane, in the order it was sent.
    arriving: Vec<[VecDeque<Arriving>; QUEUES]>,
    /// Pieces of a long message of each sender and lane, until its last one is there.
    pieces: Vec<[Vec<Buffer<u64>>; QUEUES]>,
    /// Words of the longest piece.
    piece: usize,
    /// When anything last happened.
    last: Instant,
}

impl Mpi {
    /// Sends what waits and lets go of what has left. What fails for one rank must not keep notices from the others.
    fn depart(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let waiting = std::mem::take(&mut *self.queue.waiting());
        waiting.into_iter().for_each(|outgoing| self.roads[outgoing.to].push(outgoing));
        let mut result = Ok(false);
        for road in &mut self.roads {
            for happened in [road.let_go(shared), road.post(self.piece)] {
                result = match (result, happened) {
                    (Ok(before), Ok(now)) => Ok(before | now),
                    (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
                };
            }
        }
        result
    }

    /// Begins to receive what is announced.
    fn announce(&mut self, me: usize) -> Result<bool, Trouble> {
        for i in 0..AT_ONCE {
            let probed = raw::probe().map_err(|cause| Trouble { rank: me, cause })?;
            let Some(probed) = probed else { return Ok(i > 0) };
            let Probed { from, lane, .. } = probed;
            let arriving = probed.receive().map_err(|cause| Trouble { rank: from, cause })?;
            self.arriving[from][lane.queue()].push_back(arriving);
        }
        Ok(true)
    }

    /// Delivers what has arrived, in the order it was sent.
    fn deliver(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let mut happened = false;
        for (from, queue) in
            (0..self.arriving.len()).flat_map(|from| (0..QUEUES).map(move |queue| (from, queue)))
        {
            let trouble = |cause| Trouble { rank: from, cause };
            while let Some(first) = self.arriving[from][queue].front_mut()
                && first.is_done().map_err(trouble)?
            {
                let arrived = self.arriving[from][queue].pop_front().expect("it was the first");
                self.take_in(from, arrived, shared).map_err(trouble)?;
                happened = true;
            }
        }
        Ok(happened)
    }

    fn take_in(&mut self, from: usize, arrived: Arriving, shared: &Shared) -> Result<(), String> {
        let lane = arrived.lane;
        let mut words = arrived.into_words();
        let pieces = &mut self.pieces[from][lane.queue()];
        if lane.is_piece() {
            // A long message is a sign of life too.
            shared.inbox.heard(from);
            pieces.push(words);
            return Ok(());
        }
        if !pieces.is_empty() {
            pieces.push(words);
            words = joined(std::mem::take(pieces));
        }
        let (key, message) =
            Message::unsealed(words).ok_or("it sent something that is no message of ours")?;
        shared.inbox.deliver(from, key, message);
        Ok(())
    }

    /// Whether anything is under way that does not go behind all else.
    fn is_urgent(&self) -> bool {
        let urgent = |queues: &[VecDeque<Arriving>; QUEUES]| !queues[Lane::Message.queue()].is_empty();
        self.roads.iter().any(Road::is_urgent) || self.arriving.iter().any(urgent)
    }
}

/// Pieces as the one message they were cut from.
fn joined(pieces: Vec<Buffer<u64>>) -> Buffer<u64> {
    let mut words = Buffer::unspecified(pieces.iter().map(|piece| piece.len()).sum());
    let mut rest = &mut words[..];
    for piece in &pieces {
        let (start, end) = rest.split_at_mut(piece.len());
        start.copy_from_slice(piece);
        rest = end;
    }
    words
}

impl Transport for Mpi {
    fn poll(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let mut happened = self.depart(shared)?;
        happened |= self.announce(shared.rank)?;
        happened |= self.deliver(shared)?;
        if happened {
            self.last = Instant::now();
        }
        Ok(happened)
    }

    fn pending(&self, notices_only: bool) -> bool {
        let matters = |outgoing: &Outgoing| !notices_only || Lane::of(outgoing) == Lane::Notice;
        self.queue.waiting().iter().any(matters) || self.roads.iter().any(|road| !road.is_empty(notices_only))
    }

    fn nap(&self) -> Duration {
        let longest = if self.is_urgent() { LONGEST_WHILE_URGENT } else { LONGEST_NAP };
        (self.last.elapsed() / NAP_SHARE).clamp(SHORTEST_NAP, longest)
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        raw::finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_one_message() {
        let pieces = [&[1u64, 2][..], &[3], &[], &[4, 5, 6]].map(Buffer::from);
        assert_eq!(&*joined(pieces.into()), &[1, 2, 3, 4, 5, 6]);
    }
}
