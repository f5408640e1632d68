//! Errors of communication.

use crate::tag::Tag;

/// Result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failure of communication. The first failure on any rank ends the waits of all ranks. Ranks are world ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No message or heartbeat of a rank arrived within the deadline.
    #[error(
        "rank {rank} on {host} sent nothing for {silent_seconds} s (timeout); last known position: {last}{}\n  help: \
         check that process, its host and the network; a rank that computes for long still sends heartbeats",
        waiting(.waiting_for)
    )]
    Lost {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Time since its last message.
        silent_seconds: u64,
        /// Its last known position.
        last: String,
        /// Tag of the message that this rank was waiting for, from any rank.
        waiting_for: Option<Tag>,
    },
    /// The process of a rank on this host ended without reporting a failure.
    #[error(
        "rank {rank} on {host} exited without reporting an error; last known position: {last}\n  help: check whether \
         a signal or the out-of-memory killer ended its process"
    )]
    Exited {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Its last known position.
        last: String,
    },
    /// A rank reported a failure.
    #[error("rank {rank} on {host} failed: {cause}")]
    Failed {
        /// The rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Its message.
        cause: String,
    },
    /// Ranks were started with different versions, settings or data.
    #[error(
        "{what} differs between ranks: \"{here}\" here, \"{there}\" on rank {rank}\n  help: start every rank with the \
         same program, settings and data"
    )]
    Mismatch {
        /// Name of the fact that differs.
        what: String,
        /// Its value on this rank.
        here: String,
        /// Its value on the other.
        there: String,
        /// The other rank.
        rank: usize,
    },
    /// The transport failed to send to a rank or to receive from it.
    #[error("communication with rank {rank} on {host} failed: {cause}")]
    Transport {
        /// The other rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Message of the transport.
        cause: String,
    },
    /// Ranks could not be started.
    #[error("cannot start ranks: {cause}")]
    Start {
        /// Message of the system.
        cause: String,
    },
    /// The members of a subgroup are invalid.
    #[error("invalid members of group {id}: {problem}")]
    Group {
        /// Id of the group.
        id: u16,
        /// The problem.
        problem: String,
    },
    /// A message has an unexpected length.
    #[error("{message} has {bytes} bytes, expected {wanted}")]
    Size {
        /// The message and its sender.
        message: String,
        /// Its length.
        bytes: usize,
        /// The expected length.
        wanted: String,
    },
    /// This rank has closed its communicator.
    #[error("the communicator of this rank is closed")]
    Closed,
}

fn waiting(tag: &Option<Tag>) -> String {
    tag.map_or(String::new(), |tag| format!("; this rank was waiting for {tag}"))
}

impl Error {
    /// Returns this error for a thread that waits for `tag`.
    pub(crate) fn while_waiting(mut self, tag: Tag) -> Self {
        if let Error::Lost { waiting_for, .. } = &mut self {
            *waiting_for = Some(tag);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::Purpose;

    #[test]
    fn the_error_about_a_lost_rank_names_host_position_and_awaited_message() {
        let (host, last) = ("node7".to_string(), "epoch 3, layer 1, forward".to_string());
        let lost = Error::Lost { rank: 2, host, silent_seconds: 31, last, waiting_for: None };
        let text = lost.clone().while_waiting(Tag::new(Purpose::Features).epoch(3)).to_string();
        for part in ["rank 2", "node7", "31 s", "epoch 3, layer 1, forward", "waiting for features (epoch 3"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert!(!lost.to_string().contains("waiting"));
    }
}
