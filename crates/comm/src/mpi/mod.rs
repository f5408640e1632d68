//! Ranks as processes started by an MPI launcher, on one or several hosts.
//!
//! The progress thread makes all MPI calls and never blocks in one: it posts sends and receives and tests them. MPI
//! collectives and error handlers are not used, because they neither time out nor name the rank that failed.

mod raw;
mod send_queue;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use halograph_kernels::buffer::Buffer;
use rustix::process::Pid;

use self::raw::{Lane, PendingReceive, Probed, QUEUES};
use self::send_queue::SendQueue;
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::inbox::Inbox;
use crate::message::Message;
use crate::notice::text;
use crate::options::Options;
use crate::shared::Shared;
use crate::tag::Kind;
use crate::transport::{self, Link, Outgoing, SendStatus, Sender, Transport, TransportError};

/// Sleep after a poll without progress: the time since the last progress divided by this, within bounds. On a slow
/// link, where a piece takes milliseconds, frequent polls would take CPU time from compute threads.
const SLEEP_DIVISOR: u32 = 8;
const MIN_SLEEP: Duration = Duration::from_micros(20);
const MAX_SLEEP: Duration = Duration::from_micros(500);
/// Maximum while urgent messages are in flight: MPI progresses long messages only during calls.
const MAX_SLEEP_WHILE_URGENT: Duration = Duration::from_micros(100);
/// Maximum number of messages received in one poll.
const MAX_PROBES: usize = 256;

/// Initialises MPI and returns the world communicator of the ranks that the launcher started. Blocks until all ranks
/// have connected; collective. Fails if called twice in a process.
pub fn join(options: &Options) -> Result<Comm> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    if JOINED.swap(true, Ordering::Relaxed) {
        return Err(Error::Start { cause: "MPI was already initialised in this process".to_string() });
    }
    let piece = options.piece;
    let comm = Comm::start(options, move || open(piece).map_err(|cause| Error::Start { cause }))?;
    let name = [transport::host(), machine(), std::process::id().to_string()].join("\n");
    let names = comm.gather(comm.group().control(Kind::Hosts), Message::of(name.as_bytes()))?;
    let names: Vec<String> = names.iter().map(text).collect();
    comm.shared().set_hosts(names.iter().map(|name| name.lines().next().unwrap_or("").into()).collect());
    comm.shared().set_processes(names.iter().map(|name| process(name)).collect());
    Ok(comm)
}

/// Returns an identifier of the running kernel and the PID namespace, within which process ids are comparable.
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// Returns the process of a rank, if it is another process on this host.
fn process(name: &str) -> Option<Pid> {
    let [_, location, number] = name.lines().collect::<Vec<_>>().try_into().ok()?;
    let number: i32 = number.parse().ok()?;
    let other = number != std::process::id() as i32;
    (other && location == machine() && location.trim().len() > 1).then(|| Pid::from_raw(number)).flatten()
}

/// Initialises MPI and returns this rank's link.
fn open(piece: usize) -> Result<Link, String> {
    let (rank, size) = raw::init()?;
    let inbox = Arc::new(Inbox::new(size));
    let outbox = Arc::new(Outbox { messages: Mutex::default(), inbox: inbox.clone() });
    let queues = || [const { VecDeque::new() }; QUEUES];
    let transport = Mpi {
        outbox: outbox.clone(),
        sending: (0..size).map(|_| SendQueue::default()).collect(),
        receiving: (0..size).map(|_| queues()).collect(),
        pieces: (0..size).map(|_| [const { Vec::new() }; QUEUES]).collect(),
        piece: (piece / size_of::<u64>()).max(1),
        last_progress: Instant::now(),
    };
    let (sender, transport) = (Box::new(OutboxSender(outbox)), Box::new(transport));
    Ok(Link { rank, inbox, sender, transport, hosts: None, began: None })
}

/// Messages that the progress thread has not yet moved to a send queue.
struct Outbox {
    messages: Mutex<VecDeque<Outgoing>>,
    inbox: Arc<Inbox>,
}

impl Outbox {
    fn messages(&self) -> MutexGuard<'_, VecDeque<Outgoing>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds messages to the outbox.
struct OutboxSender(Arc<Outbox>);

impl Sender for OutboxSender {
    fn send(&self, outgoing: Outgoing) -> SendStatus {
        self.0.messages().push_back(outgoing);
        self.0.inbox.wakeup.notify();
        SendStatus::Queued
    }
}

/// The MPI transport of a rank.
struct Mpi {
    outbox: Arc<Outbox>,
    /// Messages being sent, by receiver.
    sending: Vec<SendQueue>,
    /// Messages and pieces being received, by sender and queue, in the order of the sends.
    receiving: Vec<[VecDeque<PendingReceive>; QUEUES]>,
    /// Received pieces of an incomplete message, by sender and queue.
    pieces: Vec<[Vec<Buffer<u64>>; QUEUES]>,
    /// Maximum words of a piece.
    piece: usize,
    /// Time of the last poll that made progress.
    last_progress: Instant,
}

impl Mpi {
    /// Completes and posts sends. Continues after an error, so that notices reach the other ranks.
    fn send_pending(&mut self, shared: &Shared) -> Result<bool, TransportError> {
        let messages = std::mem::take(&mut *self.outbox.messages());
        messages.into_iter().for_each(|outgoing| self.sending[outgoing.to].push(outgoing));
        let mut result = Ok(false);
        for queue in &mut self.sending {
            for progressed in [queue.complete(shared), queue.post(self.piece)] {
                result = match (result, progressed) {
                    (Ok(before), Ok(now)) => Ok(before | now),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
        }
        result
    }

    /// Posts receives of messages that a probe finds.
    fn post_receives(&mut self, me: usize) -> Result<bool, TransportError> {
        for i in 0..MAX_PROBES {
            let probed = raw::probe().map_err(|cause| TransportError { rank: me, cause })?;
            let Some(probed) = probed else { return Ok(i > 0) };
            let Probed { from, lane, .. } = probed;
            let pending = probed.receive().map_err(|cause| TransportError { rank: from, cause })?;
            self.receiving[from][lane.queue()].push_back(pending);
        }
        Ok(true)
    }

    /// Delivers received messages in the order of the sends.
    fn deliver(&mut self, shared: &Shared) -> Result<bool, TransportError> {
        let mut progressed = false;
        for (from, queue) in
            (0..self.receiving.len()).flat_map(|from| (0..QUEUES).map(move |queue| (from, queue)))
        {
            let error = |cause| TransportError { rank: from, cause };
            while let Some(first) = self.receiving[from][queue].front_mut()
                && first.is_done().map_err(error)?
            {
                let received = self.receiving[from][queue].pop_front().expect("it is the first");
                self.accept(from, received, shared).map_err(error)?;
                progressed = true;
            }
        }
        Ok(progressed)
    }

    /// Delivers a message, or stores a piece of one.
    fn accept(&mut self, from: usize, received: PendingReceive, shared: &Shared) -> Result<(), String> {
        let lane = received.lane;
        let mut words = received.into_words();
        let pieces = &mut self.pieces[from][lane.queue()];
        if lane.is_piece() {
            // The sender of a long message is not silent.
            shared.inbox.mark_alive(from);
            pieces.push(words);
            return Ok(());
        }
        if !pieces.is_empty() {
            pieces.push(words);
            words = join_pieces(&std::mem::take(pieces));
        }
        let (key, message) = Message::unsealed(words).ok_or("it sent a message that cannot be decoded")?;
        shared.inbox.deliver(from, key, message);
        Ok(())
    }

    /// Returns whether urgent messages are being sent or received.
    fn has_urgent(&self) -> bool {
        let urgent = |queues: &[VecDeque<PendingReceive>; QUEUES]| !queues[Lane::Urgent.queue()].is_empty();
        self.sending.iter().any(SendQueue::has_urgent) || self.receiving.iter().any(urgent)
    }
}

/// Concatenates the pieces of a message.
fn join_pieces(pieces: &[Buffer<u64>]) -> Buffer<u64> {
    let mut words = Buffer::unspecified(pieces.iter().map(|piece| piece.len()).sum());
    let mut rest = &mut words[..];
    for piece in pieces {
        let (start, end) = rest.split_at_mut(piece.len());
        start.copy_from_slice(piece);
        rest = end;
    }
    words
}

impl Transport for Mpi {
    fn poll(&mut self, shared: &Shared) -> Result<bool, TransportError> {
        let mut progressed = self.send_pending(shared)?;
        progressed |= self.post_receives(shared.rank)?;
        progressed |= self.deliver(shared)?;
        if progressed {
            self.last_progress = Instant::now();
        }
        Ok(progressed)
    }

    /// Returns whether messages, or failure notices only, wait to be sent.
    fn pending(&self, notices_only: bool) -> bool {
        let counts = |outgoing: &Outgoing| !notices_only || Lane::of(outgoing) == Lane::Notice;
        self.outbox.messages().iter().any(counts)
            || self.sending.iter().any(|queue| !queue.is_empty(notices_only))
    }

    fn max_sleep(&self) -> Duration {
        let max = if self.has_urgent() { MAX_SLEEP_WHILE_URGENT } else { MAX_SLEEP };
        (self.last_progress.elapsed() / SLEEP_DIVISOR).clamp(MIN_SLEEP, max)
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        raw::finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_concatenated() {
        let pieces = [&[1u64, 2][..], &[3], &[], &[4, 5, 6]].map(Buffer::from);
        assert_eq!(&*join_pieces(&pieces), &[1, 2, 3, 4, 5, 6]);
    }
}
