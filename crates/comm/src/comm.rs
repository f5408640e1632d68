//! Communicators: send and receive.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::inbox::State;
use crate::message::Message;
use crate::options::Options;
use crate::position::Position;
use crate::progress::Progress;
use crate::shared::{End, Shared};
use crate::tag::{Key, Kind, Purpose, Tag};
use crate::trace::{Span, SpanGuard, Track};
use crate::transport::{Link, Priority};

/// How long a failed rank keeps sending its failure notices.
const NOTICE_TIME: Duration = Duration::from_secs(2);
/// Additional time for the progress thread to end.
const GRACE: Duration = Duration::from_millis(500);

/// A communicator: connects this rank to the others of a group.
///
/// The world communicator contains all ranks; [`Comm::subgroup`] creates communicators of some of them. Clones are
/// handles of the same communicator and may be used from several threads of the rank.
///
/// A rank must call [`Comm::close`] on its world communicator at the end. If the last handle of the world
/// communicator is dropped before that, the rank has failed. Handles of subgroups may be dropped at any time.
#[derive(Clone)]
pub struct Comm {
    shared: Arc<Shared>,
    group: Arc<Group>,
    /// `None` for subgroups: only handles of the world keep the rank running.
    lifetime: Option<Arc<Lifetime>>,
}

/// Stops the progress thread when the last handle of the world communicator is dropped.
struct Lifetime {
    shared: Arc<Shared>,
    /// Disconnected when the progress thread has ended.
    progress: Mutex<mpsc::Receiver<()>>,
}

impl Comm {
    /// Starts the progress thread, which calls `open`. Blocks until the transport is open, at most for the deadline.
    pub(crate) fn start(
        options: &Options,
        open: impl FnOnce() -> Result<Link> + Send + 'static,
    ) -> Result<Self> {
        let (options, deadline) = (options.clone(), options.deadline);
        let (opened, receiver) = mpsc::channel();
        let (alive, progress) = mpsc::channel();
        let body = move || {
            let _alive = alive;
            match open().map(|link| Shared::open(link, options)) {
                Err(error) => drop(opened.send(Err(error))),
                Ok((shared, transport)) => {
                    let progress = Progress::new(shared.clone(), transport);
                    drop(opened.send(Ok(shared)));
                    progress.run();
                }
            }
        };
        let failed = |cause: String| Error::Start { cause };
        thread::Builder::new().name("comm".into()).spawn(body).map_err(|e| failed(e.to_string()))?;
        let not_opened = |error| match error {
            mpsc::RecvTimeoutError::Timeout => {
                failed(format!("not all ranks have connected within {} s (timeout)", deadline.as_secs()))
            }
            mpsc::RecvTimeoutError::Disconnected => failed("the progress thread panicked".into()),
        };
        let shared = receiver.recv_timeout(deadline).map_err(not_opened)??;
        let group = Arc::new(Group::world(shared.rank, shared.size));
        let lifetime = Lifetime { shared: shared.clone(), progress: Mutex::new(progress) };
        Ok(Comm { shared, group, lifetime: Some(Arc::new(lifetime)) })
    }

    /// Returns a communicator of some ranks of this one. Does not communicate.
    ///
    /// `members` lists ranks of this communicator, this rank included. Their order in the list is the order of ranks
    /// in the new communicator, which all its collectives follow.
    ///
    /// All members must call it with the same `members` and `id`. Messages of groups are separated by the ids of the
    /// groups: two groups that share a rank, nested groups included, must have different ids; disjoint groups may
    /// share one. Id 0 is that of the world.
    ///
    /// Failures are not confined to a group: a failure of any rank ends every wait in every group, and errors name
    /// world ranks. Counters, positions, traces and deadlines are those of the whole rank. Closing the world
    /// communicator closes its subgroups; dropping a subgroup has no effect on others.
    ///
    /// Returns [`Error::Group`] if `id` is 0, or if `members` repeats a rank, contains a rank that does not exist, or
    /// omits this rank.
    pub fn subgroup(&self, members: &[usize], id: u16) -> Result<Comm> {
        let group = self.group.subgroup(members, id, self.hosts())?;
        Ok(Comm { shared: self.shared.clone(), group: Arc::new(group), lifetime: None })
    }

    /// Returns the state shared with the progress thread.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the members of this communicator.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Returns the rank of this process in this communicator.
    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    /// Returns the number of ranks in this communicator.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// Returns the world rank of every rank of this communicator. Errors name world ranks.
    pub fn members(&self) -> &[usize] {
        self.group.members()
    }

    /// Returns the host of every rank of this communicator.
    pub fn hosts(&self) -> &[String] {
        self.group.hosts().unwrap_or_else(|| self.shared.hosts())
    }

    /// Sets the position of this rank in its work. Heartbeats carry it to the other ranks, whose errors name the last
    /// known position of a lost rank. Does not block.
    pub fn set_position(&self, position: Position) {
        self.shared().set_position(position);
    }

    /// Sends `message` to rank `to` with [`Priority::Urgent`]. Never blocks.
    pub fn send(&self, to: usize, tag: Tag, message: Message) -> Result<()> {
        self.send_with(to, tag, Priority::Urgent, message)
    }

    /// Sends `message` to rank `to` with the given priority. Never blocks.
    pub fn send_with(&self, to: usize, tag: Tag, priority: Priority, message: Message) -> Result<()> {
        self.send_key(to, self.group.key(Kind::User, tag), priority, message)
    }

    /// Sends an urgent message with a key instead of a tag. Never blocks.
    pub(crate) fn send_as(&self, to: usize, key: Key, message: Message) -> Result<()> {
        self.send_key(to, key, Priority::Urgent, message)
    }

    /// Sends a message with a key instead of a tag. Never blocks.
    pub(crate) fn send_key(&self, to: usize, key: Key, priority: Priority, message: Message) -> Result<()> {
        let to = self.group.world_rank(to);
        match self.shared().inbox.failure() {
            Some(failure) => Err(failure),
            None => {
                self.shared().send_with(to, key, priority, message);
                Ok(())
            }
        }
    }

    /// Returns a handle for the next message from rank `from` with `tag`. Does not block.
    pub fn receive(&self, from: usize, tag: Tag) -> ReceiveRequest {
        self.receive_as(from, self.group.key(Kind::User, tag))
    }

    /// Returns a handle for the next message from rank `from` with a key instead of a tag. Does not block.
    pub(crate) fn receive_as(&self, from: usize, key: Key) -> ReceiveRequest {
        let from = self.group.world_rank(from);
        let since = self.shared().recorder.now().filter(|_| key.tag.purpose != Purpose::Control);
        ReceiveRequest { shared: self.shared().clone(), from, key, since }
    }

    /// Reports a failure of this rank to all ranks. Every wait on every rank ends with the first failure of any rank.
    /// Does not block.
    pub fn fail(&self, cause: &str) {
        self.shared().fail_because(cause);
    }

    /// Blocks until a failure of any rank is known, at most for the deadline.
    pub fn wait_for_failure(&self) {
        self.shared().inbox.wait_for_failure(self.shared().deadline());
    }

    /// Returns the failure that ends all waits, if there was one.
    pub fn failure(&self) -> Option<Error> {
        self.shared().inbox.failure()
    }

    /// Returns whether the failure was reported by another rank, which then has the details.
    pub fn failure_is_remote(&self) -> bool {
        self.shared().inbox.failure_is_remote()
    }

    /// Changes [`Options::deadline`]. Must be the same on every rank.
    pub fn set_deadline(&self, deadline: Duration) {
        self.shared().set_deadline(deadline);
    }

    /// Changes [`Options::delay`]. Must be the same on every rank.
    pub fn set_delay(&self, delay: Duration) {
        self.shared().inbox.set_delay(delay);
    }

    /// Returns the counters of the messages that this rank has sent, in all groups.
    pub fn sent(&self) -> Counters {
        self.shared().sent.now()
    }

    /// Returns the total time that the threads of this rank have been blocked in waits, except those of a background
    /// [`Comm::all_to_all_with`].
    pub fn waited(&self) -> Duration {
        self.shared().waited()
    }

    /// Enables tracing: records spans of sends, receives and waits, and those of [`Comm::span`] and [`Comm::span_on`].
    pub fn trace(&self) {
        self.shared().recorder.enable();
    }

    /// Records a span of computation from now until the guard is dropped. Does nothing unless tracing is enabled.
    pub fn span(&self, name: &'static str) -> SpanGuard<'_> {
        let recorder = &self.shared().recorder;
        let start = recorder.now().map(|now| (now, self.shared().position()));
        SpanGuard::new(recorder, name, start)
    }

    /// Records a span as [`Comm::span`], on any track and at any position, e.g. of a thread that samples mini-batches ahead
    /// of the training thread.
    pub fn span_on(&self, track: Track, name: &'static str, position: Position) -> SpanGuard<'_> {
        self.shared().recorder.span_on(track, name, position)
    }

    /// Removes and returns the spans recorded so far. Times are of rank 0's clock after a
    /// [`handshake`](crate::handshake()).
    pub fn take_spans(&self) -> Vec<Span> {
        self.shared().recorder.take()
    }

    /// Blocks until all ranks of the world have called it, then disconnects this rank. Collective. Other handles,
    /// those of subgroups included, return [`Error::Closed`] afterwards.
    ///
    /// On a subgroup it drops the handle and does nothing else.
    pub fn close(self) -> Result<()> {
        let Some(lifetime) = &self.lifetime else { return Ok(()) };
        let shared = self.shared();
        shared.command(|commands| commands.leave = true);
        shared.inbox.wait_for_leave(shared.rank, Tag::new(Purpose::Control))?;
        shared.inbox.fail(Error::Closed);
        if lifetime.end(true, shared.deadline()) {
            return Ok(());
        }
        let cause =
            "its progress thread did not end within the deadline after all ranks had closed".to_string();
        Err(Error::Failed { rank: shared.rank, host: shared.host(shared.rank), cause })
    }

    /// Suspends the progress thread, as if the process were stopped (fault injection). Blocks until another rank
    /// reports the loss of this one, at most for three deadlines.
    #[doc(hidden)]
    pub fn stall(&self) -> Option<Error> {
        self.shared().command(|commands| commands.stall = true);
        self.shared().inbox.wait_for_failure(self.shared().deadline() * 3)
    }
}

impl Lifetime {
    /// Ends the progress thread and returns whether it has ended. Blocks for at most `within` and [`GRACE`].
    fn end(&self, agreed: bool, within: Duration) -> bool {
        let end = End { agreed, by: Instant::now() + within };
        self.shared.command(|commands| commands.end = Some(end));
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.recv_timeout(within + GRACE) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Drop for Lifetime {
    fn drop(&mut self) {
        if self.shared.commands().end.is_some() {
            return;
        }
        let cause =
            if thread::panicking() { "it panicked" } else { "its communicator was dropped, not closed" };
        self.shared.fail_because(cause);
        self.end(false, NOTICE_TIME);
    }
}

/// Handle for a message to be received.
#[must_use = "the message is what `wait` returns"]
pub struct ReceiveRequest {
    shared: Arc<Shared>,
    /// World rank of the sender.
    from: usize,
    key: Key,
    since: Option<Instant>,
}

impl ReceiveRequest {
    /// Blocks until the message has arrived and returns it.
    pub fn wait(self) -> Result<Message> {
        Ok(self.wait_timed()?.0)
    }

    /// Blocks until the message has arrived; returns it and its time of arrival.
    pub fn wait_timed(self) -> Result<(Message, Instant)> {
        self.wait_with(Priority::Urgent)
    }

    /// As [`ReceiveRequest::wait_timed`]. Background waits are neither counted nor traced: they delay no training step,
    /// and in a trace they would overlap the waits of the training thread.
    pub(crate) fn wait_with(self, priority: Priority) -> Result<(Message, Instant)> {
        let ReceiveRequest { shared, from, key, since } = self;
        let ready = |state: &mut State| state.next(from, key);
        let next = match priority {
            Priority::Urgent => shared.wait(key.tag, ready),
            Priority::Background => shared.inbox.wait(key.tag, ready),
        }?;
        let arrived = next.map_err(|_| shared.sender_left(from, key.tag))?;
        let name = || format!("{} from {from}", key.tag);
        shared.recorder.add(Track::Receive, key.tag.position(), since, arrived.at, name);
        Ok((arrived.message, arrived.at))
    }
}
