//! Tags and keys that identify messages.

use std::fmt;

use crate::position::Position;

/// Purpose of a message. Sent bytes are counted by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Rows of features or hidden layers.
    Features,
    /// Gradients of these rows.
    Gradients,
    /// Parameters and their gradients.
    Weights,
    /// Sums for norms, losses and counts.
    Statistics,
    /// Requests for sampled neighbours, and their replies.
    Sampling,
    /// Output rows of a stage of the model, sent to the rank of the next stage.
    Activations,
    /// Gradients of these rows, sent back.
    ActivationGradients,
    /// All messages of evaluation.
    Evaluation,
    /// Messages sent once per run, before training.
    Setup,
    /// Coordination: heartbeats, failures, barriers. Not part of the communication volume.
    Control,
}

impl Purpose {
    /// All purposes, in the order of their discriminants.
    pub const ALL: [Purpose; 10] = [
        Purpose::Features,
        Purpose::Gradients,
        Purpose::Weights,
        Purpose::Statistics,
        Purpose::Sampling,
        Purpose::Activations,
        Purpose::ActivationGradients,
        Purpose::Evaluation,
        Purpose::Setup,
        Purpose::Control,
    ];

    /// Returns the name used in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Features => "features",
            Purpose::Gradients => "gradients",
            Purpose::Weights => "weights",
            Purpose::Statistics => "statistics",
            Purpose::Sampling => "sampling",
            Purpose::Activations => "activations",
            Purpose::ActivationGradients => "activation_gradients",
            Purpose::Evaluation => "evaluation",
            Purpose::Setup => "setup",
            Purpose::Control => "control",
        }
    }
}

/// Identifies a message among those of one sender.
///
/// Messages with equal tags are received in the order in which they were sent, provided that all of them have the same
/// [`Priority`](crate::Priority).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// Purpose.
    pub purpose: Purpose,
    /// Epoch.
    pub epoch: u32,
    /// Optimiser step within the epoch.
    pub step: u32,
    /// Layer of the model.
    pub layer: u16,
    /// Chunk of the graph.
    pub chunk: u16,
    /// Distinguishes messages whose other fields are equal.
    pub slot: u8,
}

impl Tag {
    /// Number of bits of an encoded tag.
    const BITS: u32 = 108;

    /// Returns a tag with this purpose; all other fields are zero.
    pub const fn new(purpose: Purpose) -> Self {
        Tag { purpose, epoch: 0, step: 0, layer: 0, chunk: 0, slot: 0 }
    }

    /// Returns the position that a message with this tag belongs to.
    pub(crate) const fn position(self) -> Position {
        let Tag { purpose, epoch, step, layer, chunk, slot: _ } = self;
        Position { epoch, step, layer, chunk, phase: purpose.name() }
    }

    /// Returns this tag with another epoch.
    pub const fn epoch(self, epoch: u32) -> Self {
        Tag { epoch, ..self }
    }

    /// Returns this tag with another optimiser step.
    pub const fn step(self, step: u32) -> Self {
        Tag { step, ..self }
    }

    /// Returns this tag with another layer.
    pub const fn layer(self, layer: u16) -> Self {
        Tag { layer, ..self }
    }

    /// Returns this tag with another graph chunk.
    pub const fn chunk(self, chunk: u16) -> Self {
        Tag { chunk, ..self }
    }

    /// Returns this tag with another slot.
    pub const fn slot(self, slot: u8) -> Self {
        Tag { slot, ..self }
    }

    /// Encodes the tag in the low [`Tag::BITS`] bits.
    const fn to_u128(self) -> u128 {
        (self.purpose as u128) << 104
            | (self.epoch as u128) << 72
            | (self.step as u128) << 40
            | (self.layer as u128) << 24
            | (self.chunk as u128) << 8
            | self.slot as u128
    }

    /// Decodes a tag; `None` if the purpose is unknown.
    fn from_u128(code: u128) -> Option<Self> {
        let purpose = *Purpose::ALL.get((code >> 104) as usize)?;
        let (epoch, step) = ((code >> 72) as u32, (code >> 40) as u32);
        let (layer, chunk, slot) = ((code >> 24) as u16, (code >> 8) as u16, code as u8);
        Some(Tag { purpose, epoch, step, layer, chunk, slot })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.purpose.name())?;
        self.position().write_numbers(f)?;
        if self.slot > 0 {
            write!(f, ", slot {}", self.slot)?;
        }
        f.write_str(")")
    }
}

/// Kind of a message: a user's message or an internal one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Sent by users, or by collectives other than all-reduce.
    User,
    /// Sent by a collective in the background of the rank's work.
    Background,
    /// A chunk of an all-reduce, sent to the rank that sums it.
    Addend,
    /// A chunk of the sum of an all-reduce.
    Sum,
    /// Heartbeat with the position of the sender.
    Heartbeat,
    /// Failure notice: the sender failed, or detected that another rank was lost.
    Notice,
    /// Announcement that the sender will send no more messages.
    Leave,
    /// Host names, exchanged at start.
    Hosts,
    /// Facts compared by a handshake.
    Facts,
    /// Barrier after the facts.
    Agreed,
    /// Request for the clock of rank 0.
    Ping,
    /// Reply with the clock of rank 0.
    Pong,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::User,
        Kind::Background,
        Kind::Addend,
        Kind::Sum,
        Kind::Heartbeat,
        Kind::Notice,
        Kind::Leave,
        Kind::Hosts,
        Kind::Facts,
        Kind::Agreed,
        Kind::Ping,
        Kind::Pong,
    ];
}

/// Group id of the world communicator.
pub(crate) const WORLD: u16 = 0;

/// Identifies a message among all messages of one sender: group, kind and tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub group: u16,
    pub kind: Kind,
    pub tag: Tag,
}

impl Key {
    /// Lowest bit of the group; kind and tag are encoded below it.
    const GROUP: u32 = 112;

    /// Returns the key of an internal message that belongs to no group in particular.
    pub(crate) const fn control(kind: Kind) -> Self {
        Key { group: WORLD, kind, tag: Tag::new(Purpose::Control) }
    }

    /// Encodes the key as the two words that are sent with a message.
    pub(crate) const fn to_words(self) -> [u64; 2] {
        let kind = (self.kind as u128) << Tag::BITS;
        let code = (self.group as u128) << Key::GROUP | kind | self.tag.to_u128();
        [(code >> 64) as u64, code as u64]
    }

    /// Decodes a key; `None` if the words do not encode one.
    pub(crate) fn from_words([high, low]: [u64; 2]) -> Option<Self> {
        let code = (high as u128) << 64 | low as u128;
        let kind = *Kind::ALL.get((code >> Tag::BITS) as usize & 0xf)?;
        let tag = Tag::from_u128(code & ((1 << Tag::BITS) - 1))?;
        Some(Key { group: (code >> Key::GROUP) as u16, kind, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_as_they_were_encoded() {
        const MAX: (u32, u16, u8) = (u32::MAX, u16::MAX, u8::MAX);
        for (i, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose as usize, i);
            let tag = Tag::new(purpose);
            let extremes =
                [tag.epoch(MAX.0), tag.step(MAX.0), tag.layer(MAX.1), tag.chunk(MAX.1), tag.slot(MAX.2)];
            let mixed = [tag, tag.epoch(1).step(2).layer(3).chunk(4).slot(5)];
            for tag in extremes.into_iter().chain(mixed) {
                for (k, kind) in Kind::ALL.into_iter().enumerate() {
                    assert_eq!(kind as usize, k);
                    for group in [WORLD, 1, u16::MAX] {
                        let key = Key { group, kind, tag };
                        assert_eq!(Key::from_words(key.to_words()), Some(key));
                    }
                }
            }
        }
        assert_eq!(Tag::from_u128((Purpose::ALL.len() as u128) << 104), None);
        assert_eq!(Key::from_words([u64::MAX; 2]), None);
    }

    #[test]
    fn display_omits_step_chunk_and_slot_when_zero() {
        let tag = Tag::new(Purpose::Features).epoch(3).layer(1);
        assert_eq!(tag.to_string(), "features (epoch 3, layer 1)");
        let text = tag.step(12).chunk(4).to_string();
        assert_eq!(text, "features (epoch 3, step 12, layer 1, chunk 4)");
        assert_eq!(tag.slot(2).to_string(), "features (epoch 3, layer 1, slot 2)");
    }
}
