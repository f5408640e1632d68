//! Messages on their way to one rank.
//!
//! What MPI was given stands in line, and a sign of life behind gigabytes would come too late. So only a little is with
//! MPI at a time, in pieces; notices are handed over at once.

use std::collections::VecDeque;

use super::raw::{Departing, Lane, QUEUES};
use crate::shared::Shared;
use crate::transport::{Outgoing, Trouble};

/// Pieces that are with MPI before the next has to wait: one travels while another is made ready.
const PIECES: usize = 2;
/// The same for what all else overtakes, and how much smaller its pieces are.
const BEHIND: usize = 4;
const SMALLER: usize = 64;

/// What is on its way to one rank: its queues, each in the order in which messages were handed over.
#[derive(Default)]
pub(super) struct Road([VecDeque<Departing>; QUEUES]);

impl Road {
    pub fn push(&mut self, outgoing: Outgoing) {
        self.0[Lane::of(&outgoing).queue()].push_back(Departing::new(outgoing));
    }

    /// Hands over to MPI what there is room for, in pieces of at most `piece` words. Whether that was anything.
    pub fn post(&mut self, piece: usize) -> Result<bool, Trouble> {
        let [messages, notices, behind] = &mut self.0;
        let noticed = post(notices, usize::MAX, piece);
        let posted = post(messages, piece.saturating_mul(PIECES), piece);
        // What is with MPI cannot be overtaken: little of it, in small pieces.
        let small = (piece / SMALLER).max(1);
        let room = if messages.is_empty() { small.saturating_mul(BEHIND) } else { 0 };
        Ok(noticed? | posted? | post(behind, room, small)?)
    }

    /// Lets go of what has left, or cannot leave. Whether that was anything.
    pub fn let_go(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let gone = self.0.each_mut().map(|queue| let_go(queue, shared));
        gone.into_iter().try_fold(false, |any, gone| Ok(any | gone?))
    }

    /// Whether anything is under way that does not go behind all else.
    pub fn is_urgent(&self) -> bool {
        !self.0[Lane::Message.queue()].is_empty()
    }

    pub fn is_empty(&self, notices_only: bool) -> bool {
        let [messages, notices, behind] = &self.0;
        notices.is_empty() && (notices_only || messages.is_empty() && behind.is_empty())
    }
}

fn post(queue: &mut VecDeque<Departing>, room: usize, piece: usize) -> Result<bool, Trouble> {
    let mut travelling: usize = queue.iter().map(Departing::travelling).sum();
    let mut happened = false;
    for departing in queue {
        while !departing.is_posted() {
            if travelling >= room {
                return Ok(happened);
            }
            let rank = departing.outgoing().to;
            travelling += departing.post(piece).map_err(|cause| Trouble { rank, cause })?;
            happened = true;
        }
    }
    Ok(happened)
}

fn let_go(queue: &mut VecDeque<Departing>, shared: &Shared) -> Result<bool, Trouble> {
    let before: usize = queue.iter().map(Departing::travelling).sum();
    let mut result = Ok(());
    queue.retain_mut(|departing| {
        let done = departing.is_done();
        let Outgoing { to, key, since, .. } = *departing.outgoing();
        match done {
            Ok(true) => shared.left(to, key, since),
            Ok(false) => return true,
            Err(cause) => result = Err(Trouble { rank: to, cause }),
        }
        false
    });
    result?;
    Ok(queue.iter().map(Departing::travelling).sum::<usize>() < before)
}
