//! What a message is for.

use std::fmt;

/// What bytes are sent for: they are counted by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Rows of inputs or hidden layers.
    Features,
    /// Gradients of such rows.
    Gradients,
    /// Gradients of parameters, and parameters.
    Weights,
    /// Sums for norms, losses and counts.
    Statistics,
    /// Whatever evaluation sends.
    Evaluation,
    /// Once per run, before training.
    Setup,
    /// Keeping ranks together: heartbeats, failures, barriers. Never part of a volume.
    Control,
}

impl Purpose {
    /// All of them, in the order of their numbers.
    pub const ALL: [Purpose; 7] = [
        Purpose::Features,
        Purpose::Gradients,
        Purpose::Weights,
        Purpose::Statistics,
        Purpose::Evaluation,
        Purpose::Setup,
        Purpose::Control,
    ];

    /// As reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Features => "features",
            Purpose::Gradients => "gradients",
            Purpose::Weights => "weights",
            Purpose::Statistics => "statistics",
            Purpose::Evaluation => "evaluation",
            Purpose::Setup => "setup",
            Purpose::Control => "control",
        }
    }
}

/// Which message of a sender this is. Several under one tag are received in the order they were sent, if all of them were
/// sent by [`Comm::send`](crate::Comm::send), or all by [`Comm::send_behind`](crate::Comm::send_behind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// What it is for.
    pub purpose: Purpose,
    /// In which epoch.
    pub epoch: u32,
    /// Of which layer.
    pub layer: u16,
    /// Which one of several.
    pub step: u8,
}

impl Tag {
    /// For `purpose`; epoch, layer and step are zero.
    pub const fn new(purpose: Purpose) -> Self {
        Tag { purpose, epoch: 0, layer: 0, step: 0 }
    }

    /// The same tag in another epoch.
    pub const fn epoch(self, epoch: u32) -> Self {
        Tag { epoch, ..self }
    }

    /// The same tag of another layer.
    pub const fn layer(self, layer: u16) -> Self {
        Tag { layer, ..self }
    }

    /// The same tag, another one of several.
    pub const fn step(self, step: u8) -> Self {
        Tag { step, ..self }
    }

    /// All of it in one number below 2^60.
    pub const fn to_u64(self) -> u64 {
        (self.purpose as u64) << 56 | (self.epoch as u64) << 24 | (self.layer as u64) << 8 | self.step as u64
    }

    /// The tag of that number, if it is one.
    pub fn from_u64(number: u64) -> Option<Self> {
        let purpose = *Purpose::ALL.get((number >> 56) as usize)?;
        Some(Tag { purpose, epoch: (number >> 24) as u32, layer: (number >> 8) as u16, step: number as u8 })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tag { purpose, epoch, layer, step } = self;
        write!(f, "{} (epoch {epoch}, layer {layer}, step {step})", purpose.name())
    }
}

/// Whose message it is: the user's own, or one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// What users send and collectives made of it.
    User,
    /// A chunk of a vector, on its way to the rank that adds it up.
    Addend,
    /// A chunk that has been added up.
    Sum,
    /// "I live."
    Beat,
    /// "I failed", or "that rank is lost".
    Notice,
    /// "I have sent all I had to send."
    Leave,
    /// Names of hosts, facts to compare, and the barrier after these.
    Hosts,
    Facts,
    Agreed,
    /// "What time is it?" and the answer.
    Ping,
    Pong,
}

impl Part {
    const ALL: [Part; 11] = [
        Part::User,
        Part::Addend,
        Part::Sum,
        Part::Beat,
        Part::Notice,
        Part::Leave,
        Part::Hosts,
        Part::Facts,
        Part::Agreed,
        Part::Ping,
        Part::Pong,
    ];
}

/// A tag together with whose it is: what messages are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub tag: Tag,
    pub part: Part,
}

impl Key {
    /// A message of the user.
    pub const fn user(tag: Tag) -> Self {
        Key { tag, part: Part::User }
    }

    /// One of our own.
    pub const fn control(part: Part) -> Self {
        Key { tag: Tag::new(Purpose::Control), part }
    }

    pub const fn to_u64(self) -> u64 {
        (self.part as u64) << 60 | self.tag.to_u64()
    }

    pub fn from_u64(number: u64) -> Option<Self> {
        let part = *Part::ALL.get((number >> 60) as usize)?;
        Some(Key { part, tag: Tag::from_u64(number & ((1 << 60) - 1))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_keys_survive_being_numbers() {
        for (i, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose as usize, i);
            for (epoch, layer, step) in [(0, 0, 0), (1, 2, 3), (u32::MAX, 0, u8::MAX), (0, u16::MAX, 0)] {
                let tag = Tag { purpose, epoch, layer, step };
                assert_eq!(Tag::from_u64(tag.to_u64()), Some(tag));
                for (k, part) in Part::ALL.into_iter().enumerate() {
                    assert_eq!(part as usize, k);
                    let key = Key { tag, part };
                    assert_eq!(Key::from_u64(key.to_u64()), Some(key));
                }
            }
        }
        assert_eq!(Tag::from_u64(7 << 56), None);
        assert_eq!(Key::from_u64(u64::MAX), None);
    }

    #[test]
    fn a_tag_reads_as_a_user_would_say_it() {
        let tag = Tag::new(Purpose::Features).epoch(3).layer(1);
        assert_eq!(tag.to_string(), "features (epoch 3, layer 1, step 0)");
    }
}
