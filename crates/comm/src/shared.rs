//! What the threads of a rank share, its progress thread among them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::counters::Counting;
use crate::error::{Error, Result};
use crate::inbox::{Inbox, State};
use crate::message::Message;
use crate::notice;
use crate::options::Options;
use crate::position::Position;
use crate::reduce::Reduction;
use crate::tag::{Key, Part, Purpose, Tag};
use crate::trace::{Recorder, Track};
use crate::transport::{Arrival, Link, Outgoing, Priority, Sender, Transport};

/// What the progress thread is asked to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Orders {
    /// Do nothing at all, as if the process were stopped.
    pub stall: bool,
    /// Say that this rank leaves, and be quiet from then on.
    pub leave: bool,
    /// End.
    pub end: Option<End>,
}

/// How the progress thread ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// After all ranks have agreed to.
    pub agreed: bool,
    /// Whatever is under way, not later than this.
    pub by: Instant,
}

pub(crate) struct Shared {
    pub rank: usize,
    pub size: usize,
    pub options: Options,
    /// Nanoseconds of silence after which a rank is lost.
    deadline: AtomicU64,
    pub inbox: Arc<Inbox>,
    pub sent: Counting,
    pub recorder: Recorder,
    /// Whether all ranks read the same clock.
    pub one_clock: bool,
    sender: Box<dyn Sender>,
    hosts: OnceLock<Vec<String>>,
    /// Processes of other ranks that this one can see, by rank.
    processes: OnceLock<Vec<Option<Pid>>>,
    position: Mutex<Position>,
    orders: Mutex<Orders>,
    reductions: Mutex<Vec<Box<dyn Reduction>>>,
    /// Nanoseconds this rank's threads could not go on.
    waited: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a process is no more; one that only may not be asked is.
fn has_ended(process: Pid) -> bool {
    test_kill_process(process) == Err(Errno::SRCH)
}

impl Shared {
    /// A rank as its transport opened it, and the transport.
    pub fn open(link: Link, options: Options) -> (Arc<Self>, Box<dyn Transport>) {
        let shared = Shared {
            rank: link.rank,
            size: link.inbox.ranks(),
            deadline: AtomicU64::new(options.deadline.as_nanos() as u64),
            options,
            inbox: link.inbox,
            sent: Counting::default(),
            recorder: Recorder::new(link.began.unwrap_or_else(Instant::now)),
            one_clock: link.began.is_some(),
            sender: link.sender,
            hosts: link.hosts.map_or_else(OnceLock::new, OnceLock::from),
            processes: OnceLock::new(),
            position: Mutex::new(Position::new("start")),
            orders: Mutex::default(),
            reductions: Mutex::default(),
            waited: AtomicU64::new(0),
        };
        (Arc::new(shared), link.transport)
    }

    /// All ranks but this one.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.rank;
        (0..self.size).filter(move |&rank| rank != me)
    }

    pub fn hosts(&self) -> &[String] {
        self.hosts.get().map_or(&[], |hosts| hosts)
    }

    pub fn host(&self, rank: usize) -> String {
        self.hosts().get(rank).cloned().unwrap_or_else(|| "an unknown host".to_string())
    }

    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads know their host"))]
    pub fn set_hosts(&self, hosts: Vec<String>) {
        // Whoever sets them does so once, before the rank is handed out.
        let _ = self.hosts.set(hosts);
    }

    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads share a process"))]
    pub fn set_processes(&self, processes: Vec<Option<Pid>>) {
        let _ = self.processes.set(processes);
    }

    /// A rank of this machine whose process has ended though it had not left, and where it was last.
    pub fn gone(&self) -> Option<(usize, String)> {
        let processes = self.processes.get()?.iter().enumerate();
        let mut ended = processes.filter(|(_, process)| process.is_some_and(has_ended));
        ended.find_map(|(rank, _)| Some((rank, self.inbox.last_of(rank)?)))
    }

    pub fn deadline(&self) -> Duration {
        Duration::from_nanos(self.deadline.load(Ordering::Relaxed))
    }

    pub fn set_deadline(&self, deadline: Duration) {
        self.deadline.store(deadline.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn position(&self) -> Position {
        *lock(&self.position)
    }

    pub fn set_position(&self, position: Position) {
        *lock(&self.position) = position;
    }

    pub fn orders(&self) -> Orders {
        *lock(&self.orders)
    }

    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut lock(&self.orders));
        self.inbox.bell.ring();
    }

    /// Sends without waiting and counts it; what goes to this rank itself is not sent.
    pub fn send(&self, to: usize, key: Key, message: Message) {
        self.send_in(to, key, Priority::Urgent, message);
    }

    pub fn send_in(&self, to: usize, key: Key, priority: Priority, message: Message) {
        if to == self.rank {
            return self.inbox.deliver(to, key, message);
        }
        self.sent.add(key.tag.purpose, message.bytes());
        let since = self.recorder.now().filter(|_| key.tag.purpose != Purpose::Control);
        if let Arrival::Here = self.sender.send(Outgoing { to, key, priority, message, since }) {
            self.left(to, key, since);
        }
    }

    /// A message handed over at `since` has left.
    pub fn left(&self, to: usize, key: Key, since: Option<Instant>) {
        if since.is_some() {
            let name = || format!("{} to {to}", key.tag);
            self.recorder.add(Track::Send, Position::of(key.tag), since, Instant::now(), name);
        }
    }

    /// Waits until `ready` has an answer and counts how long.
    pub fn wait<R>(&self, tag: Tag, ready: impl FnMut(&mut State) -> Option<R>) -> Result<R> {
        let start = Instant::now();
        let answer = self.inbox.wait(tag, ready);
        let end = Instant::now();
        self.waited.fetch_add((end - start).as_nanos() as u64, Ordering::Relaxed);
        let since = self.recorder.is_on().then_some(start);
        self.recorder.add(Track::Wait, Position::of(tag), since, end, || tag.to_string());
        answer
    }

    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Stops this rank with `error` and tells all others, unless something failed before.
    pub fn fail(&self, error: Error) {
        if self.inbox.fail(error.clone()) {
            let notice = notice::write(&error, self.rank, &self.host(self.rank));
            self.others().for_each(|to| self.send(to, Key::control(Part::Notice), notice.clone()));
        }
    }

    /// As [`Shared::fail`], for what this rank has to say of itself.
    pub fn fail_because(&self, cause: &str) {
        self.fail(Error::Failed { rank: self.rank, host: self.host(self.rank), cause: cause.to_string() });
    }

    /// What to say when rank `from` has left and will not send `tag` any more.
    pub fn never(&self, from: usize, tag: Tag) -> Error {
        let cause = format!("it was done before it had sent {tag} to rank {}", self.rank);
        Error::Failed { rank: from, host: self.host(from), cause }
    }

    /// Has the progress thread advance `reduction` until it is done.
    pub fn begin(&self, reduction: Box<dyn Reduction>) {
        lock(&self.reductions).push(reduction);
        self.inbox.bell.ring();
    }

    pub fn is_reducing(&self) -> bool {
        !lock(&self.reductions).is_empty()
    }

    /// Advances what is being reduced. Whether anything was done.
    pub fn reduce(&self) -> bool {
        // Others may begin meanwhile; theirs come behind.
        let mut reductions = std::mem::take(&mut *lock(&self.reductions));
        if reductions.is_empty() {
            return false;
        }
        let mut happened = false;
        let mut busy: Vec<Key> = Vec::new();
        reductions.retain_mut(|reduction| {
            let key = reduction.key();
            // Messages of two reductions with one key cannot be told apart: one after the other.
            let steps = if busy.contains(&key) { Ok(0) } else { reduction.advance(self) };
            busy.push(key);
            happened |= !matches!(steps, Ok(0));
            steps.map_err(|error| self.fail(error)).is_ok() && !reduction.is_done()
        });
        let mut begun = lock(&self.reductions);
        reductions.append(&mut begun);
        *begun = reductions;
        happened
    }
}
