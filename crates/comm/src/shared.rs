//! State shared by the threads of a rank, its progress thread included.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::counters::AtomicCounters;
use crate::error::{Error, Result};
use crate::inbox::{Inbox, State};
use crate::message::Message;
use crate::notice;
use crate::options::Options;
use crate::position::Position;
use crate::tag::{Key, Kind, Purpose, Tag};
use crate::trace::{Recorder, Track};
use crate::transport::{Link, Outgoing, Priority, SendStatus, Sender, Transport};

/// Commands to the progress thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Commands {
    /// Do nothing, as if the process were stopped.
    pub stall: bool,
    /// Announce that this rank leaves, and send nothing afterwards.
    pub leave: bool,
    /// End the thread.
    pub end: Option<End>,
}

/// How the progress thread ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// Whether all ranks have agreed to leave.
    pub agreed: bool,
    /// Time of the end, even if messages are still to be sent.
    pub by: Instant,
}

/// An all-reduce in progress.
pub(crate) trait Reduction: Send {
    /// Returns the key of its addends.
    fn key(&self) -> Key;

    /// Processes the messages that have arrived. Returns the number of steps made.
    fn advance(&mut self, shared: &Shared) -> Result<usize>;

    /// Returns whether the sums are complete.
    fn is_done(&self) -> bool;
}

/// State of a rank. All ranks are world ranks.
pub(crate) struct Shared {
    /// World rank of this process.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// Options that the communicator was started with.
    pub options: Options,
    /// Timeout of silent ranks, in nanoseconds.
    deadline: AtomicU64,
    /// Messages that have arrived.
    pub inbox: Arc<Inbox>,
    /// Counters of sent messages.
    pub sent: AtomicCounters,
    /// Trace.
    pub recorder: Recorder,
    /// Whether all ranks share a clock.
    pub one_clock: bool,
    sender: Box<dyn Sender>,
    hosts: OnceLock<Vec<String>>,
    /// Process of every rank that is another process on this host.
    processes: OnceLock<Vec<Option<Pid>>>,
    position: Mutex<Position>,
    commands: Mutex<Commands>,
    reductions: Mutex<Vec<Box<dyn Reduction>>>,
    /// Nanoseconds that threads of this rank have been blocked in [`Shared::wait`].
    waited: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a process has ended. A process without permission to signal it exists.
fn has_ended(process: Pid) -> bool {
    test_kill_process(process) == Err(Errno::SRCH)
}

impl Shared {
    /// Returns the state of a rank whose transport was opened, and the transport.
    pub(crate) fn open(link: Link, options: Options) -> (Arc<Self>, Box<dyn Transport>) {
        link.inbox.set_delay(options.delay);
        let shared = Shared {
            rank: link.rank,
            size: link.inbox.ranks(),
            deadline: AtomicU64::new(options.deadline.as_nanos() as u64),
            options,
            inbox: link.inbox,
            sent: AtomicCounters::default(),
            recorder: Recorder::new(link.began.unwrap_or_else(Instant::now)),
            one_clock: link.began.is_some(),
            sender: link.sender,
            hosts: link.hosts.map_or_else(OnceLock::new, OnceLock::from),
            processes: OnceLock::new(),
            position: Mutex::new(Position::new("start")),
            commands: Mutex::default(),
            reductions: Mutex::default(),
            waited: AtomicU64::new(0),
        };
        (Arc::new(shared), link.transport)
    }

    /// Returns all ranks except this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.size).filter(move |&rank| rank != me)
    }

    /// Returns the host of every rank; empty until the hosts are known.
    pub(crate) fn hosts(&self) -> &[String] {
        self.hosts.get().map_or(&[], |hosts| hosts)
    }

    /// Returns the host of a rank, for error messages.
    pub(crate) fn host(&self, rank: usize) -> String {
        self.hosts().get(rank).cloned().unwrap_or_else(|| "unknown host".to_string())
    }

    /// Sets the host of every rank. Called once, before the communicator is returned to the user.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads know their host"))]
    pub(crate) fn set_hosts(&self, hosts: Vec<String>) {
        let _ = self.hosts.set(hosts);
    }

    /// Sets the process of every rank that is another process on this host. Called once, as [`Shared::set_hosts`].
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads share a process"))]
    pub(crate) fn set_processes(&self, processes: Vec<Option<Pid>>) {
        let _ = self.processes.set(processes);
    }

    /// Returns a rank on this host whose process has ended although the rank had not left, and its last known position.
    pub(crate) fn ended_process(&self) -> Option<(usize, String)> {
        let processes = self.processes.get()?.iter().enumerate();
        let mut ended = processes.filter(|(_, process)| process.is_some_and(has_ended));
        ended.find_map(|(rank, _)| Some((rank, self.inbox.position_of(rank)?)))
    }

    /// Returns the timeout of silent ranks.
    pub(crate) fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    /// Sets the timeout of silent ranks.
    pub(crate) fn set_deadline(&self, deadline: Duration) {
        self.deadline.store(deadline.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the position of this rank.
    pub(crate) fn position(&self) -> Position {
        *lock(&self.position)
    }

    /// Sets the position of this rank.
    pub(crate) fn set_position(&self, position: Position) {
        *lock(&self.position) = position;
    }

    /// Returns the current commands.
    pub(crate) fn commands(&self) -> Commands {
        *lock(&self.commands)
    }

    /// Changes the commands and wakes the progress thread.
    pub(crate) fn command(&self, change: impl FnOnce(&mut Commands)) {
        change(&mut lock(&self.commands));
        self.inbox.wakeup.notify();
    }

    /// Sends an urgent message as [`Shared::send_with`].
    pub(crate) fn send(&self, to: usize, key: Key, message: Message) {
        self.send_with(to, key, Priority::Urgent, message);
    }

    /// Sends and counts a message. Never blocks. A message to this rank itself is delivered and not counted.
    pub(crate) fn send_with(&self, to: usize, key: Key, priority: Priority, message: Message) {
        if to == self.rank {
            return self.inbox.deliver_at_once(to, key, message);
        }
        self.sent.add(key.tag.purpose, message.bytes());
        let since = self.recorder.now().filter(|_| key.tag.purpose != Purpose::Control);
        if let SendStatus::Delivered = self.sender.send(Outgoing { to, key, priority, message, since }) {
            self.message_sent(to, key, since);
        }
    }

    /// Records in the trace that a message handed over at `since` was sent.
    pub(crate) fn message_sent(&self, to: usize, key: Key, since: Option<Instant>) {
        if since.is_some() {
            let name = || format!("{} to {to}", key.tag);
            self.recorder.add(Track::Send, key.tag.position(), since, Instant::now(), name);
        }
    }

    /// Waits as [`Inbox::wait`], and counts and traces the time.
    pub(crate) fn wait<R>(&self, tag: Tag, ready: impl FnMut(&mut State) -> Option<R>) -> Result<R> {
        let start = Instant::now();
        let answer = self.inbox.wait(tag, ready);
        let end = Instant::now();
        self.waited.fetch_add((end - start).as_nanos() as u64, Ordering::Relaxed);
        let since = self.recorder.is_enabled().then_some(start);
        self.recorder.add(Track::Wait, tag.position(), since, end, || tag.to_string());
        answer
    }

    /// Returns the total time that threads of this rank have been blocked in [`Shared::wait`].
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Ends all waits with `error` and notifies all other ranks, unless there was an earlier failure.
    pub(crate) fn fail(&self, error: Error) {
        if self.inbox.fail(error.clone()) {
            let notice = notice::encode(&error, self.rank, &self.host(self.rank));
            self.others().for_each(|to| self.send(to, Key::control(Kind::Notice), notice.clone()));
        }
    }

    /// Fails as [`Shared::fail`] with [`Error::Failed`] of this rank.
    pub(crate) fn fail_because(&self, cause: &str) {
        self.fail(Error::Failed { rank: self.rank, host: self.host(self.rank), cause: cause.to_string() });
    }

    /// Returns the error for a message with `tag` that rank `from` did not send before it left.
    pub(crate) fn sender_left(&self, from: usize, tag: Tag) -> Error {
        let cause = format!("it closed its communicator before sending {tag} to rank {}", self.rank);
        Error::Failed { rank: from, host: self.host(from), cause }
    }

    /// Passes `reduction` to the progress thread, which advances it until it is done.
    pub(crate) fn start_reduction(&self, reduction: Box<dyn Reduction>) {
        lock(&self.reductions).push(reduction);
        self.inbox.wakeup.notify();
    }

    /// Returns whether reductions are in progress.
    pub(crate) fn is_reducing(&self) -> bool {
        !lock(&self.reductions).is_empty()
    }

    /// Advances all reductions. Returns whether any of them made progress.
    pub(crate) fn advance_reductions(&self) -> bool {
        // Reductions that other threads start meanwhile are appended below.
        let mut reductions = std::mem::take(&mut *lock(&self.reductions));
        if reductions.is_empty() {
            return false;
        }
        let mut progressed = false;
        let mut busy: Vec<Key> = Vec::new();
        reductions.retain_mut(|reduction| {
            let key = reduction.key();
            // Messages of reductions with equal keys are indistinguishable: advance one after the other.
            let steps = if busy.contains(&key) { Ok(0) } else { reduction.advance(self) };
            busy.push(key);
            progressed |= !matches!(steps, Ok(0));
            steps.map_err(|error| self.fail(error)).is_ok() && !reduction.is_done()
        });
        let mut started = lock(&self.reductions);
        reductions.append(&mut started);
        *started = reductions;
        progressed
    }
}
