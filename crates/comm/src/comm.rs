//! What a rank holds: messages to and from the others.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::options::Options;
use crate::position::Position;
use crate::progress::Progress;
use crate::shared::{End, Shared};
use crate::tag::{Key, Purpose, Tag};
use crate::trace::{Span, SpanGuard, Track};
use crate::transport::{Link, Priority};

/// How long a rank that gives up goes on telling others why.
const FAREWELL: Duration = Duration::from_secs(2);
/// How much longer the progress thread may take to end than it was given.
const GRACE: Duration = Duration::from_millis(500);

/// A rank's connection to the others. Clones are the same connection, for all threads of the rank.
///
/// A rank that is done says so with [`Comm::close`]; one whose last clone is dropped without that counts as failed.
#[derive(Clone)]
pub struct Comm {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Hangs up when the progress thread has ended.
    progress: Mutex<mpsc::Receiver<()>>,
}

impl Comm {
    /// A rank whose progress thread opens its link to the others.
    pub(crate) fn start(
        options: &Options,
        open: impl FnOnce() -> Result<Link> + Send + 'static,
    ) -> Result<Self> {
        let (options, patience) = (options.clone(), options.deadline);
        let (tell, told) = mpsc::channel();
        let (alive, progress) = mpsc::channel();
        let body = move || {
            let _alive = alive;
            let opened = open().map(|link| Shared::open(link, options));
            match opened {
                Err(error) => drop(tell.send(Err(error))),
                Ok((shared, transport)) => {
                    let progress = Progress::new(shared.clone(), transport);
                    drop(tell.send(Ok(shared)));
                    progress.run();
                }
            }
        };
        let failed = |cause: String| Error::Start { cause };
        thread::Builder::new().name("comm".into()).spawn(body).map_err(|e| failed(e.to_string()))?;
        let late = |error| match error {
            mpsc::RecvTimeoutError::Timeout => {
                failed(format!("not all of them have come together within {} s", patience.as_secs()))
            }
            mpsc::RecvTimeoutError::Disconnected => failed("its progress thread ended".into()),
        };
        let shared = told.recv_timeout(patience).map_err(late)??;
        Ok(Comm { inner: Arc::new(Inner { shared, progress: Mutex::new(progress) }) })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.shared().rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.shared().size
    }

    /// The host of every rank.
    pub fn hosts(&self) -> &[String] {
        self.shared().hosts()
    }

    /// Sets where this rank is in its work. Heartbeats report it, so that errors about a lost rank can name it.
    pub fn at(&self, position: Position) {
        self.shared().set_position(position);
    }

    /// Sends `message` to rank `to` with [`Priority::Urgent`]. Never blocks.
    pub fn send(&self, to: usize, tag: Tag, message: Message) -> Result<()> {
        self.send_with(to, tag, Priority::Urgent, message)
    }

    /// Sends `message` to rank `to` with the given priority. Never blocks.
    pub fn send_with(&self, to: usize, tag: Tag, priority: Priority, message: Message) -> Result<()> {
        self.send_in(to, Key::user(tag), priority, message)
    }

    pub(crate) fn send_as(&self, to: usize, key: Key, message: Message) -> Result<()> {
        self.send_in(to, key, Priority::Urgent, message)
    }

    fn send_in(&self, to: usize, key: Key, priority: Priority, message: Message) -> Result<()> {
        assert!(to < self.size(), "rank {to} is one of {}", self.size());
        match self.shared().inbox.failure() {
            Some(failure) => Err(failure),
            None => {
                self.shared().send_in(to, key, priority, message);
                Ok(())
            }
        }
    }

    /// Asks for the next message that rank `from` sends under `tag`.
    pub fn receive(&self, from: usize, tag: Tag) -> Receiving {
        self.receive_as(from, Key::user(tag))
    }

    pub(crate) fn receive_as(&self, from: usize, key: Key) -> Receiving {
        assert!(from < self.size(), "rank {from} is one of {}", self.size());
        let since = self.shared().recorder.now().filter(|_| key.tag.purpose != Purpose::Control);
        Receiving { shared: self.shared().clone(), from, key, since }
    }

    /// Stops all ranks: every wait, here and on the others, ends with the first failure anybody has told of.
    pub fn fail(&self, cause: &str) {
        self.shared().fail_because(cause);
    }

    /// Waits until somebody has told what failed, but no longer than until whoever should have would be lost.
    pub fn hear_failure(&self) {
        self.shared().inbox.wait_for_failure(self.shared().deadline());
    }

    /// Whether what failed was first known to another rank: then that one has more to say about it.
    pub fn was_told(&self) -> bool {
        self.shared().inbox.was_told()
    }

    /// Changes how long the silence of a rank may last; to the same on every rank.
    pub fn set_deadline(&self, deadline: Duration) {
        self.shared().set_deadline(deadline);
    }

    /// What this rank has sent so far.
    pub fn sent(&self) -> Counters {
        self.shared().sent.now()
    }

    /// How long this rank's threads have waited for others so far, all together.
    pub fn waited(&self) -> Duration {
        self.shared().waited()
    }

    /// Begins to record what is sent, received and waited for, and [`Comm::span`].
    pub fn trace(&self) {
        self.shared().recorder.switch_on();
    }

    /// Records work of this rank from now until the guard is dropped; costs nothing unless tracing.
    pub fn span(&self, name: &'static str) -> SpanGuard<'_> {
        let recorder = &self.shared().recorder;
        SpanGuard { recorder, name, start: recorder.now().map(|now| (now, self.shared().position())) }
    }

    /// What was recorded since the last call. Times are of rank 0's clock after a [`handshake`](crate::handshake()).
    pub fn take_spans(&self) -> Vec<Span> {
        self.shared().recorder.take()
    }

    /// Leaves when all ranks are about to. Other clones are of no use afterwards.
    pub fn close(self) -> Result<()> {
        let shared = self.shared();
        shared.order(|orders| orders.leave = true);
        shared.inbox.wait_for_leave(shared.rank, Tag::new(Purpose::Control))?;
        shared.inbox.fail(Error::Closed);
        if self.inner.end(true, shared.deadline()) {
            return Ok(());
        }
        let cause = "it did not end in time, though all ranks had agreed to".to_string();
        Err(Error::Failed { rank: shared.rank, host: shared.host(shared.rank), cause })
    }

    /// Falls silent like a process that was stopped, until the others have noticed or could have thrice: for tests.
    #[doc(hidden)]
    pub fn stall(&self) -> Option<Error> {
        self.shared().order(|orders| orders.stall = true);
        self.shared().inbox.wait_for_failure(self.shared().deadline() * 3)
    }
}

impl Inner {
    /// Ends the progress thread. Whether it did.
    fn end(&self, agreed: bool, within: Duration) -> bool {
        let end = End { agreed, by: Instant::now() + within };
        self.shared.order(|orders| orders.end = Some(end));
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.recv_timeout(within + GRACE) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.shared.orders().end.is_some() {
            return;
        }
        let cause = if thread::panicking() { "it panicked" } else { "it ended before its work was done" };
        self.shared.fail_because(cause);
        self.end(false, FAREWELL);
    }
}

/// A message that was asked for.
#[must_use = "the message is what `wait` returns"]
pub struct Receiving {
    shared: Arc<Shared>,
    from: usize,
    key: Key,
    since: Option<Instant>,
}

impl Receiving {
    /// Whether [`Receiving::wait`] would return at once.
    pub fn is_there(&self) -> bool {
        self.shared.inbox.is_there(self.from, self.key)
    }

    /// The message, when it is there.
    pub fn wait(self) -> Result<Message> {
        Ok(self.wait_timed()?.0)
    }

    /// The message, when it is there, and when it came.
    pub fn wait_timed(self) -> Result<(Message, Instant)> {
        let Receiving { shared, from, key, since } = self;
        let next = shared.wait(key.tag, |state| state.next(from, key))?;
        let arrived = next.map_err(|_| shared.never(from, key.tag))?;
        let name = || format!("{} from {from}", key.tag);
        shared.recorder.add(Track::Receive, Position::of(key.tag), since, arrived.at, name);
        Ok((arrived.message, arrived.at))
    }
}
