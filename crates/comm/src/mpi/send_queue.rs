//! Messages to be sent to one rank.
//!
//! MPI sends posted messages in order, so a heartbeat posted after gigabytes of data would arrive too late. Therefore
//! only a few pieces of messages are posted to MPI at a time; heartbeats and failure notices are posted at once.

use std::collections::VecDeque;

use super::raw::{Lane, PendingSend, QUEUES};
use crate::shared::Shared;
use crate::transport::{Outgoing, TransportError};

/// Maximum pieces of urgent messages in flight: one is sent while another is prepared.
const URGENT_PIECES: usize = 2;
/// Maximum pieces of background messages in flight.
const BACKGROUND_PIECES: usize = 4;
/// Size of an urgent piece divided by that of a background piece.
const BACKGROUND_DIVISOR: usize = 64;

/// Messages to be sent to one rank, in one queue per priority, each in the order of the calls.
#[derive(Default)]
pub(super) struct SendQueue([VecDeque<PendingSend>; QUEUES]);

impl SendQueue {
    /// Adds a message to its queue.
    pub(super) fn push(&mut self, outgoing: Outgoing) {
        self.0[Lane::of(&outgoing).queue()].push_back(PendingSend::new(outgoing));
    }

    /// Posts pieces of at most `piece` words to MPI, up to the limits in flight. Returns whether any were posted.
    pub(super) fn post(&mut self, piece: usize) -> Result<bool, TransportError> {
        let [urgent, notices, background] = &mut self.0;
        let noticed = post(notices, usize::MAX, piece);
        let posted = post(urgent, piece.saturating_mul(URGENT_PIECES), piece);
        // Urgent messages cannot overtake posted pieces: post few and small ones.
        let small = (piece / BACKGROUND_DIVISOR).max(1);
        let limit = if urgent.is_empty() { small.saturating_mul(BACKGROUND_PIECES) } else { 0 };
        Ok(noticed? | posted? | post(background, limit, small)?)
    }

    /// Removes messages that were sent or failed. Returns whether any piece was completed.
    pub(super) fn complete(&mut self, shared: &Shared) -> Result<bool, TransportError> {
        let completed = self.0.each_mut().map(|queue| complete(queue, shared));
        completed.into_iter().try_fold(false, |any, completed| Ok(any | completed?))
    }

    /// Returns whether urgent messages are pending.
    pub(super) fn has_urgent(&self) -> bool {
        !self.0[Lane::Urgent.queue()].is_empty()
    }

    /// Returns whether no messages, or with `notices_only` no notices, are pending.
    pub(super) fn is_empty(&self, notices_only: bool) -> bool {
        let [urgent, notices, background] = &self.0;
        notices.is_empty() && (notices_only || urgent.is_empty() && background.is_empty())
    }
}

/// Posts pieces of a queue while fewer than `limit` words are in flight.
fn post(queue: &mut VecDeque<PendingSend>, limit: usize, piece: usize) -> Result<bool, TransportError> {
    let mut in_flight: usize = queue.iter().map(PendingSend::in_flight).sum();
    let mut posted = false;
    for pending in queue {
        while !pending.is_posted() {
            if in_flight >= limit {
                return Ok(posted);
            }
            let rank = pending.outgoing().to;
            in_flight += pending.post(piece).map_err(|cause| TransportError { rank, cause })?;
            posted = true;
        }
    }
    Ok(posted)
}

/// Removes messages of a queue that were sent or failed. Returns whether any piece was completed.
fn complete(queue: &mut VecDeque<PendingSend>, shared: &Shared) -> Result<bool, TransportError> {
    let before: usize = queue.iter().map(PendingSend::in_flight).sum();
    let mut result = Ok(());
    queue.retain_mut(|pending| {
        let done = pending.is_done();
        let Outgoing { to, key, since, .. } = *pending.outgoing();
        match done {
            Ok(true) => shared.message_sent(to, key, since),
            Ok(false) => return true,
            Err(cause) => result = Err(TransportError { rank: to, cause }),
        }
        false
    });
    result?;
    Ok(queue.iter().map(PendingSend::in_flight).sum::<usize>() < before)
}
