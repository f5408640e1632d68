//! Messages that have arrived at a rank, and the known state of the other ranks.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::message::Message;
use crate::notice;
use crate::position::KnownPosition;
use crate::tag::{Key, Kind, Purpose, Tag};
use crate::wakeup::Wakeup;

/// A message and the time of its arrival.
pub(crate) struct Arrived {
    pub message: Message,
    pub at: Instant,
}

/// A message that has arrived and is withheld until it is due.
struct Delayed {
    due: Instant,
    from: usize,
    key: Key,
    message: Message,
}

/// Known state of another rank.
struct Peer {
    /// Arrival of the last message or piece from it.
    last_arrival: Instant,
    /// Its last known position.
    position: Option<KnownPosition>,
    /// Whether it has announced that it sends no more messages.
    has_left: bool,
}

impl Peer {
    fn new(now: Instant) -> Self {
        Peer { last_arrival: now, position: None, has_left: false }
    }

    /// Updates the position by a heartbeat.
    fn heartbeat(&mut self, text: &str) {
        self.position = KnownPosition::from_heartbeat(text).or(self.position.take());
    }

    /// Updates the position by the key of a message. In a fast run, many epochs pass between two heartbeats.
    fn message(&mut self, Key { kind, tag, .. }: Key) {
        // Work in the background may be ahead of the step. Control messages are not part of a step. Other messages of
        // background priority may arrive after those of later steps.
        if kind == Kind::Background {
            return;
        }
        let position = tag.position();
        let is_old = self.position.as_ref().is_some_and(|known| known.is_after(position));
        if tag.purpose != Purpose::Control && !is_old {
            self.position = Some(KnownPosition::Message(position));
        }
    }

    /// Returns the last known position, for error messages.
    fn last_position(&self) -> String {
        let known = self.position.as_ref().map(ToString::to_string);
        known.unwrap_or_else(|| "none, it has sent no message".to_string())
    }
}

/// A rank that has been silent for longer than the deadline.
pub(crate) struct SilentRank {
    pub rank: usize,
    pub seconds: u64,
    pub last: String,
}

/// The sender of an awaited message has left without sending it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SenderLeft;

/// Content of an inbox.
pub(crate) struct State {
    /// Messages that have arrived and were not taken, by sender and key.
    queues: HashMap<(usize, Key), VecDeque<Arrived>>,
    /// Artificial delay of messages.
    delay: Duration,
    /// Messages that are withheld, in the order of their arrival, which is that of their due times.
    delayed: VecDeque<Delayed>,
    /// Known state of every rank.
    peers: Vec<Peer>,
    /// The first failure of any rank.
    failure: Option<Error>,
    /// Whether the failure was reported by another rank.
    failure_is_remote: bool,
}

impl State {
    /// Returns the next message of `from` with `key`, if it has arrived or can no longer arrive.
    pub(crate) fn next(&mut self, from: usize, key: Key) -> Option<Result<Arrived, SenderLeft>> {
        let taken = self.take(from, key).map(Ok);
        taken.or_else(|| self.is_done(from).then_some(Err(SenderLeft)))
    }

    /// Returns whether rank `from` has left and none of its messages is withheld.
    fn is_done(&self, from: usize) -> bool {
        self.peers[from].has_left && !self.delayed.iter().any(|delayed| delayed.from == from)
    }

    /// Stores a message of rank `from`. Heartbeats and notices update the state instead.
    fn accept(&mut self, from: usize, key: Key, message: Message, at: Instant) {
        match key.kind {
            Kind::Heartbeat => self.peers[from].heartbeat(&notice::text(&message)),
            Kind::Leave => self.peers[from].has_left = true,
            Kind::Notice => self.failure_is_remote |= self.fail(notice::decode(from, &message)),
            _ => {
                self.peers[from].message(key);
                let arrived = Arrived { message: message.arrived(from, key), at };
                self.queues.entry((from, key)).or_default().push_back(arrived);
            }
        }
    }

    /// Removes the first message of a queue.
    fn take(&mut self, from: usize, key: Key) -> Option<Arrived> {
        let queue = self.queues.get_mut(&(from, key))?;
        let first = queue.pop_front();
        if queue.is_empty() {
            // Keys contain epochs: empty queues would accumulate.
            self.queues.remove(&(from, key));
        }
        first
    }

    /// Stores the failure, unless there was an earlier one. Returns whether this is the first.
    fn fail(&mut self, error: Error) -> bool {
        let first = self.failure.is_none();
        self.failure.get_or_insert(error);
        first
    }
}

/// Messages that have arrived at a rank. Transports deliver them; threads of the rank wait for them and take them. All
/// ranks are world ranks.
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether messages are withheld. Lets the progress thread find out without the lock.
    has_delayed: AtomicBool,
    /// Wakes the progress thread of the rank.
    pub wakeup: Wakeup,
}

impl Inbox {
    /// Returns the empty inbox of one of `ranks` ranks.
    pub(crate) fn new(ranks: usize) -> Self {
        let now = Instant::now();
        let peers = (0..ranks).map(|_| Peer::new(now)).collect();
        let state = State {
            queues: HashMap::new(),
            delay: Duration::ZERO,
            delayed: VecDeque::new(),
            peers,
            failure: None,
            failure_is_remote: false,
        };
        Inbox {
            state: Mutex::new(state),
            changed: Condvar::new(),
            has_delayed: false.into(),
            wakeup: Wakeup::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.state().peers.len()
    }

    /// Sets the artificial delay of messages. Messages that are withheld stay so, and later ones do not overtake them.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Stores a message of rank `from` and wakes waiting threads, or withholds it for the artificial delay. Heartbeats
    /// and notices update the state instead.
    pub(crate) fn deliver(&self, from: usize, key: Key, message: Message) {
        let state = self.state();
        let is_delayed = !state.delay.is_zero() || !state.delayed.is_empty();
        if is_delayed && key.tag.purpose != Purpose::Control {
            self.withhold(state, from, key, message);
        } else {
            self.store(state, from, key, message);
        }
    }

    /// As [`Inbox::deliver`], without delay: for messages of this rank to itself.
    pub(crate) fn deliver_at_once(&self, from: usize, key: Key, message: Message) {
        self.store(self.state(), from, key, message);
    }

    /// Withholds a message until it is due.
    fn withhold(&self, mut state: MutexGuard<State>, from: usize, key: Key, message: Message) {
        let now = Instant::now();
        state.peers[from].last_arrival = now;
        // After the delay was reduced, messages must not overtake earlier ones.
        let earliest = state.delayed.back().map_or(now, |last| last.due);
        let due = (now + state.delay).max(earliest);
        state.delayed.push_back(Delayed { due, from, key, message });
        self.has_delayed.store(true, Ordering::Relaxed);
        let is_first = state.delayed.len() == 1;
        drop(state);
        if is_first {
            // The progress thread sleeps until the first message is due.
            self.wakeup.notify();
        }
    }

    /// Stores the withheld messages that are due and wakes waiting threads. Returns whether there were any.
    pub(crate) fn deliver_due(&self) -> bool {
        if !self.has_delayed.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state();
        let now = Instant::now();
        let due = state.delayed.partition_point(|delayed| delayed.due <= now);
        for Delayed { from, key, message, .. } in state.delayed.drain(..due).collect::<Vec<_>>() {
            state.accept(from, key, message, now);
        }
        self.has_delayed.store(!state.delayed.is_empty(), Ordering::Relaxed);
        drop(state);
        if due > 0 {
            self.changed.notify_all();
        }
        due > 0
    }

    /// Returns the time until the next withheld message is due.
    pub(crate) fn until_due(&self) -> Duration {
        if !self.has_delayed.load(Ordering::Relaxed) {
            return Duration::MAX;
        }
        let now = Instant::now();
        self.state().delayed.front().map_or(Duration::MAX, |first| first.due.saturating_duration_since(now))
    }

    /// Stores a message and wakes waiting threads.
    fn store(&self, mut state: MutexGuard<State>, from: usize, key: Key, message: Message) {
        let at = Instant::now();
        state.peers[from].last_arrival = at;
        state.accept(from, key, message, at);
        drop(state);
        if key.kind != Kind::Heartbeat {
            self.changed.notify_all();
        }
        if matches!(key.kind, Kind::Addend | Kind::Sum | Kind::Leave | Kind::Notice) {
            self.wakeup.notify();
        }
    }

    /// Records that a piece of a message of rank `from` has arrived.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads deliver whole messages"))]
    pub(crate) fn mark_alive(&self, from: usize) {
        self.state().peers[from].last_arrival = Instant::now();
    }

    /// Makes all waiting threads check their condition again.
    pub(crate) fn wake_waiters(&self) {
        // A thread between checking its condition and sleeping holds the lock.
        drop(self.state());
        self.changed.notify_all();
    }

    /// Returns the next message of `from` with `key`, if it has arrived or can no longer arrive.
    pub(crate) fn next(&self, from: usize, key: Key) -> Option<Result<Message, SenderLeft>> {
        self.state().next(from, key).map(|next| next.map(|arrived| arrived.message))
    }

    /// Blocks until `ready` returns a value or any rank has failed.
    pub(crate) fn wait<R>(&self, tag: Tag, mut ready: impl FnMut(&mut State) -> Option<R>) -> Result<R> {
        let mut state = self.state();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone().while_waiting(tag));
            }
            if let Some(answer) = ready(&mut state) {
                return Ok(answer);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until all ranks except `me` have left and no message is withheld, or any rank has failed.
    pub(crate) fn wait_for_leave(&self, me: usize, tag: Tag) -> Result<()> {
        let all = |s: &mut State| (0..s.peers.len()).all(|rank| rank == me || s.is_done(rank));
        self.wait(tag, |state| all(state).then_some(()))
    }

    /// Blocks until any rank has failed, at most for `timeout`. Returns the failure.
    pub(crate) fn wait_for_failure(&self, timeout: Duration) -> Option<Error> {
        let waited = self.changed.wait_timeout_while(self.state(), timeout, |state| state.failure.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.failure.clone()
    }

    /// Ends all current and future waits with `error`, unless there was an earlier failure. Returns whether this is the
    /// first.
    pub(crate) fn fail(&self, error: Error) -> bool {
        let first = self.state().fail(error);
        self.changed.notify_all();
        self.wakeup.notify();
        first
    }

    /// Returns the first failure of any rank.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state().failure.clone()
    }

    /// Returns whether the failure was reported by another rank.
    pub(crate) fn failure_is_remote(&self) -> bool {
        self.state().failure_is_remote
    }

    /// Returns the last known position of a rank; `None` if the rank has left.
    pub(crate) fn position_of(&self, rank: usize) -> Option<String> {
        let peer = &self.state().peers[rank];
        (!peer.has_left).then(|| peer.last_position())
    }

    /// Returns the rank that has been silent for longest, if longer than `deadline`. Ranks that have left are ignored.
    pub(crate) fn silent(&self, me: usize, deadline: Duration) -> Option<SilentRank> {
        let now = Instant::now();
        let state = self.state();
        let silence = |peer: &Peer| now.saturating_duration_since(peer.last_arrival);
        let lost = |(rank, peer): &(usize, &Peer)| *rank != me && !peer.has_left && silence(peer) > deadline;
        // The rank that has been silent for longest is the cause: others may be waiting for it.
        let (rank, peer) = state.peers.iter().enumerate().filter(lost).max_by_key(|(_, p)| silence(p))?;
        Some(SilentRank { rank, seconds: silence(peer).as_secs(), last: peer.last_position() })
    }

    /// Sets the last arrival of all ranks to now, after this process itself was suspended.
    pub(crate) fn reset_silence(&self) {
        let now = Instant::now();
        self.state().peers.iter_mut().for_each(|peer| peer.last_arrival = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::position::Position;

    const TAG: Tag = Tag::new(Purpose::Features);

    fn user(tag: Tag) -> Key {
        Group::world(0, 1).key(Kind::User, tag)
    }

    fn failed(rank: usize) -> Error {
        Error::Failed { rank, host: "h".into(), cause: "c".into() }
    }

    fn number(message: &Message) -> u64 {
        message.as_slice::<u64>().unwrap()[0]
    }

    #[test]
    fn messages_are_queued_by_sender_and_key() {
        let inbox = Inbox::new(3);
        let (a, b) = (user(TAG), user(TAG.slot(1)));
        for (from, key, value) in [(1, a, 10), (2, a, 20), (1, b, 30), (1, a, 11)] {
            inbox.deliver(from, key, Message::of(&[value as u64]));
        }
        let order = [(1, b), (1, a), (2, a), (1, a)]
            .map(|(from, key)| number(&inbox.next(from, key).unwrap().unwrap()));
        assert_eq!(order, [30, 10, 20, 11]);
        assert!(inbox.next(1, a).is_none() && inbox.next(2, b).is_none() && inbox.state().queues.is_empty());
    }

    #[test]
    fn delayed_messages_keep_their_order_when_the_delay_changes() {
        const DELAY: Duration = Duration::from_millis(20);
        let inbox = Inbox::new(2);
        let key = user(TAG);
        let next = || inbox.next(1, key).map(|next| number(&next.unwrap()));
        assert_eq!(inbox.until_due(), Duration::MAX);
        for (value, delay) in [(0u64, DELAY), (1, DELAY / 2), (2, Duration::ZERO)] {
            inbox.set_delay(delay);
            inbox.deliver(1, key, Message::of(&[value]));
        }
        inbox.deliver_at_once(0, key, Message::of(&[9u64]));
        assert_eq!(inbox.next(0, key).map(|next| number(&next.unwrap())), Some(9));
        let mut order = Vec::new();
        while order.len() < 3 {
            inbox.deliver_due();
            order.extend(next());
            std::thread::sleep(inbox.until_due().min(DELAY));
        }
        assert_eq!(order, [0, 1, 2]);
        assert_eq!(inbox.until_due(), Duration::MAX);
        // Nothing is withheld any more.
        inbox.deliver(1, key, Message::of(&[3u64]));
        assert_eq!(next(), Some(3));
    }

    #[test]
    fn a_rank_that_leaves_does_not_overtake_its_delayed_messages() {
        let inbox = Inbox::new(2);
        inbox.set_delay(Duration::from_millis(20));
        inbox.deliver(1, user(TAG), Message::empty());
        inbox.deliver(1, Key::control(Kind::Leave), Message::empty());
        let next = || inbox.next(1, user(TAG)).map(|next| next.map(drop));
        assert_eq!(next(), None);
        // It may end its process now.
        assert_eq!(inbox.position_of(1), None);
        while !inbox.deliver_due() {
            std::thread::sleep(inbox.until_due());
        }
        assert_eq!(inbox.wait_for_leave(0, TAG), Ok(()));
        assert_eq!((next(), next()), (Some(Ok(())), Some(Err(SenderLeft))));
    }

    #[test]
    fn positions_follow_messages_between_heartbeats() {
        let inbox = Inbox::new(2);
        let position = || inbox.position_of(1).unwrap();
        let heartbeat = |position: Position| {
            let message = Message::of(position.encode().as_bytes());
            inbox.deliver(1, Key::control(Kind::Heartbeat), message);
        };
        let deliver = |kind, tag| inbox.deliver(1, Group::world(0, 2).key(kind, tag), Message::empty());
        assert!(position().contains("no message"));

        heartbeat(Position::new("forward").epoch(1).layer(1));
        assert_eq!(position(), "epoch 1, layer 1, forward");
        deliver(Kind::User, TAG.epoch(26).layer(2));
        assert_eq!(position(), "epoch 26, layer 2, features");
        deliver(Kind::Addend, Tag::new(Purpose::Weights).epoch(26).layer(1));
        assert_eq!(position(), "epoch 26, layer 1, weights");
        // Of an earlier epoch or no step at all.
        deliver(Kind::User, TAG.epoch(25));
        deliver(Kind::User, Tag::new(Purpose::Control).epoch(30));
        assert_eq!(position(), "epoch 26, layer 1, weights");
        heartbeat(Position::new("checkpoint").epoch(26));
        assert_eq!(position(), "epoch 26, layer 0, checkpoint");
    }

    #[test]
    fn the_first_failure_ends_every_wait() {
        let inbox = Inbox::new(2);
        assert!(inbox.fail(failed(1)));
        assert!(!inbox.fail(failed(0)));
        inbox.deliver(1, user(TAG), Message::empty());
        let waited = inbox.wait(TAG, |state| state.next(1, user(TAG)).map(drop));
        assert_eq!(waited, Err(failed(1)));
    }

    #[test]
    fn waiting_for_a_rank_that_has_left_fails_and_it_is_not_lost() {
        let inbox = Inbox::new(3);
        inbox.deliver(1, user(TAG), Message::empty());
        inbox.deliver(1, Key::control(Kind::Leave), Message::empty());
        let next = || inbox.next(1, user(TAG)).map(|next| next.map(drop));
        assert_eq!(next(), Some(Ok(())));
        assert_eq!(next(), Some(Err(SenderLeft)));
        let silent = inbox.silent(0, Duration::ZERO).unwrap();
        assert_eq!((silent.rank, silent.seconds), (2, 0));
        inbox.deliver(2, Key::control(Kind::Leave), Message::empty());
        assert!(inbox.silent(0, Duration::ZERO).is_none());
        assert_eq!(inbox.wait_for_leave(0, TAG), Ok(()));
    }
}
