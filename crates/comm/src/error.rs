//! Why ranks cannot go on together.

use crate::tag::Tag;

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why ranks cannot go on together. The first of these on any rank is what every rank is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank fell silent.
    #[error(
        "rank {rank} on {host} was lost: no sign of life for {silent_seconds} s, last heard of at {last}{}\n  help: \
         look for what ended or stopped that process; a rank that is only slow still gives signs of life",
        waiting(.waiting_for)
    )]
    Lost {
        /// Which rank.
        rank: usize,
        /// Where it ran.
        host: String,
        /// For how long nothing had come from it.
        silent_seconds: u64,
        /// Where it was when it was heard of last.
        last: String,
        /// What this rank was waiting for when it was told, from whomever.
        waiting_for: Option<Tag>,
    },
    /// The process of a rank on this machine ended and had not said why.
    #[error(
        "rank {rank} on {host} is gone: its process ended without a word, last heard of at {last}\n  help: look for \
         what ended that process: a signal, or a machine without memory"
    )]
    Gone {
        /// Which rank.
        rank: usize,
        /// Where it ran.
        host: String,
        /// Where it was when it was heard of last.
        last: String,
    },
    /// A rank failed and said why.
    #[error("rank {rank} on {host} failed: {cause}")]
    Failed {
        /// Which rank.
        rank: usize,
        /// Where it ran.
        host: String,
        /// What it said.
        cause: String,
    },
    /// Ranks were started with different things.
    #[error(
        "{what} differs between ranks: \"{here}\" here, \"{there}\" on rank {rank}\n  help: start every rank with the \
         same program, settings and data"
    )]
    Mismatch {
        /// The name of what differs.
        what: String,
        /// Its value on this rank.
        here: String,
        /// Its value on the other.
        there: String,
        /// The other rank.
        rank: usize,
    },
    /// The transport could not carry messages to or from a rank.
    #[error("no messages to or from rank {rank} on {host}: {cause}")]
    Transport {
        /// The rank at the other end.
        rank: usize,
        /// Where it runs.
        host: String,
        /// What the transport said.
        cause: String,
    },
    /// Ranks could not be started at all.
    #[error("cannot start ranks: {cause}")]
    Start {
        /// What the system said.
        cause: String,
    },
    /// A message of unexpected length.
    #[error("{message} has {bytes} bytes where {wanted} were expected")]
    Size {
        /// Which message, from whom.
        message: String,
        /// How long it is.
        bytes: usize,
        /// What would have been right.
        wanted: String,
    },
    /// This rank has said that it is done.
    #[error("this rank has left the others: nothing more can be sent or received")]
    Closed,
}

fn waiting(tag: &Option<Tag>) -> String {
    tag.map_or(String::new(), |tag| format!("; this rank was waiting for {tag}"))
}

impl Error {
    /// The same, said to whoever waits for `tag`.
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
    fn a_loss_says_who_where_what_and_since_when() {
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
