//! What has arrived at a rank, and what it knows of the others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::notice;
use crate::tag::{Key, Part, Tag};

/// A message and when it came.
pub(crate) struct Arrived {
    pub message: Message,
    pub at: Instant,
}

/// What is known of another rank.
struct Peer {
    /// When anything came from it last.
    heard: Instant,
    /// Where it said it was.
    last: Option<String>,
    /// Whether it has sent all that it will send.
    leaves: bool,
}

impl Peer {
    /// Where it was when it was heard of last.
    fn last(&self) -> String {
        self.last.clone().unwrap_or_else(|| "its start, before any sign of life".to_string())
    }
}

/// A rank whose silence has lasted too long.
pub(crate) struct Silent {
    pub rank: usize,
    pub seconds: u64,
    pub last: String,
}

/// What is waited for will not come: its sender has left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Never;

pub(crate) struct State {
    queues: HashMap<(usize, Key), VecDeque<Arrived>>,
    peers: Vec<Peer>,
    failure: Option<Error>,
    /// Whether another rank told of the failure.
    told: bool,
}

impl State {
    /// The next message of `from` under `key`, if there is one or never will be.
    pub fn next(&mut self, from: usize, key: Key) -> Option<Result<Arrived, Never>> {
        let taken = self.take(from, key).map(Ok);
        taken.or_else(|| self.peers[from].leaves.then_some(Err(Never)))
    }

    fn take(&mut self, from: usize, key: Key) -> Option<Arrived> {
        let queue = self.queues.get_mut(&(from, key))?;
        let first = queue.pop_front();
        if queue.is_empty() {
            // Tags name epochs: queues that stay would add up.
            self.queues.remove(&(from, key));
        }
        first
    }

    fn fail(&mut self, error: Error) -> bool {
        let first = self.failure.is_none();
        self.failure.get_or_insert(error);
        first
    }
}

/// What has arrived at a rank. Transports deliver, the rank's threads take and wait.
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the rank's progress thread.
    pub bell: Bell,
}

impl Inbox {
    /// For one of `ranks` ranks, all of them just heard of.
    pub fn new(ranks: usize) -> Self {
        let now = Instant::now();
        let peers = (0..ranks).map(|_| Peer { heard: now, last: None, leaves: false }).collect();
        let state = State { queues: HashMap::new(), peers, failure: None, told: false };
        Inbox { state: Mutex::new(state), changed: Condvar::new(), bell: Bell::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ranks(&self) -> usize {
        self.state().peers.len()
    }

    /// Takes in a message of rank `from`.
    pub fn deliver(&self, from: usize, key: Key, message: Message) {
        let at = Instant::now();
        let mut state = self.state();
        state.peers[from].heard = at;
        match key.part {
            Part::Beat => state.peers[from].last = Some(notice::text(&message)),
            Part::Leave => state.peers[from].leaves = true,
            Part::Notice => state.told |= state.fail(notice::read(from, &message)),
            _ => {
                let arrived = Arrived { message: message.arrived(from, key), at };
                state.queues.entry((from, key)).or_default().push_back(arrived);
            }
        }
        drop(state);
        if key.part != Part::Beat {
            self.changed.notify_all();
        }
        if matches!(key.part, Part::Addend | Part::Sum | Part::Leave | Part::Notice) {
            self.bell.ring();
        }
    }

    /// Learns that rank `from` lives.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "between threads whole messages arrive"))]
    pub fn heard(&self, from: usize) {
        self.state().peers[from].heard = Instant::now();
    }

    /// Makes everybody who waits look again.
    pub fn look_again(&self) {
        // Whoever has looked already, but does not sleep yet, holds the lock.
        drop(self.state());
        self.changed.notify_all();
    }

    /// Whether anything is known that would end a wait for `key` of `from`.
    pub fn is_there(&self, from: usize, key: Key) -> bool {
        let state = self.state();
        state.failure.is_some() || state.peers[from].leaves || state.queues.contains_key(&(from, key))
    }

    /// The next message of `from` under `key`, if there is one or never will be.
    pub fn next(&self, from: usize, key: Key) -> Option<Result<Message, Never>> {
        self.state().next(from, key).map(|next| next.map(|arrived| arrived.message))
    }

    /// Waits until `ready` has an answer. A failure of any rank ends every wait.
    pub fn wait<R>(&self, tag: Tag, mut ready: impl FnMut(&mut State) -> Option<R>) -> Result<R> {
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

    /// Waits until all ranks but `me` have said that they leave.
    pub fn wait_for_leave(&self, me: usize, tag: Tag) -> Result<()> {
        let all = |s: &mut State| s.peers.iter().enumerate().all(|(rank, peer)| rank == me || peer.leaves);
        self.wait(tag, |state| all(state).then_some(()))
    }

    /// Waits until something failed anywhere, but no longer than `most`.
    pub fn wait_for_failure(&self, most: Duration) -> Option<Error> {
        let waited = self.changed.wait_timeout_while(self.state(), most, |state| state.failure.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.failure.clone()
    }

    /// Ends all waits, now and later, with `error`, unless there was an earlier one. Whether this is the first.
    pub fn fail(&self, error: Error) -> bool {
        let first = self.state().fail(error);
        self.changed.notify_all();
        self.bell.ring();
        first
    }

    pub fn failure(&self) -> Option<Error> {
        self.state().failure.clone()
    }

    /// Whether the failure was first known elsewhere.
    pub fn was_told(&self) -> bool {
        self.state().told
    }

    /// Where a rank that has not left was heard of last.
    pub fn last_of(&self, rank: usize) -> Option<String> {
        let peer = &self.state().peers[rank];
        (!peer.leaves).then(|| peer.last())
    }

    /// Who has been silent for longer than `deadline`. Ranks that left may be silent.
    pub fn silent(&self, me: usize, deadline: Duration) -> Option<Silent> {
        let now = Instant::now();
        let state = self.state();
        let silence = |peer: &Peer| now.saturating_duration_since(peer.heard);
        let lost = |(rank, peer): &(usize, &Peer)| *rank != me && !peer.leaves && silence(peer) > deadline;
        // Who has been silent longest fell silent first: the others may only be waiting for it.
        let (rank, peer) = state.peers.iter().enumerate().filter(lost).max_by_key(|(_, p)| silence(p))?;
        Some(Silent { rank, seconds: silence(peer).as_secs(), last: peer.last() })
    }

    /// Begins to count everybody's silence anew: after this process itself was away.
    pub fn forgive(&self) {
        let now = Instant::now();
        self.state().peers.iter_mut().for_each(|peer| peer.heard = now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::tag::Purpose;

    const TAG: Tag = Tag::new(Purpose::Features);

    fn user(tag: Tag) -> Key {
        Group::world(0, 1).key(Part::User, tag)
    }

    fn failed(rank: usize) -> Error {
        Error::Failed { rank, host: "h".into(), cause: "c".into() }
    }

    fn number(message: &Message) -> u64 {
        message.as_slice::<u64>().unwrap()[0]
    }

    #[test]
    fn messages_are_sorted_by_sender_and_key_and_keep_their_order() {
        let inbox = Inbox::new(3);
        let (a, b) = (user(TAG), user(TAG.slot(1)));
        for (from, key, value) in [(1, a, 10), (2, a, 20), (1, b, 30), (1, a, 11)] {
            inbox.deliver(from, key, Message::of(&[value as u64]));
        }
        assert!(inbox.is_there(2, a) && !inbox.is_there(2, b));
        let order = [(1, b), (1, a), (2, a), (1, a)]
            .map(|(from, key)| number(&inbox.next(from, key).unwrap().unwrap()));
        assert_eq!(order, [30, 10, 20, 11]);
        assert!(inbox.next(1, a).is_none() && inbox.state().queues.is_empty());
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
    fn who_has_left_is_neither_awaited_nor_missed() {
        let inbox = Inbox::new(3);
        inbox.deliver(1, user(TAG), Message::empty());
        inbox.deliver(1, Key::control(Part::Leave), Message::empty());
        let next = || inbox.next(1, user(TAG)).map(|next| next.map(drop));
        assert_eq!(next(), Some(Ok(())));
        assert_eq!(next(), Some(Err(Never)));
        let silent = inbox.silent(0, Duration::ZERO).unwrap();
        assert_eq!((silent.rank, silent.seconds), (2, 0));
        inbox.deliver(2, Key::control(Part::Leave), Message::empty());
        assert!(inbox.silent(0, Duration::ZERO).is_none());
        assert_eq!(inbox.wait_for_leave(0, TAG), Ok(()));
    }
}
