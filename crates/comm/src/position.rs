//! Positions of ranks in their work.

use std::fmt;

/// Position of a rank in its work, or of the work that a message belongs to. Part of heartbeats and trace spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Epoch.
    pub epoch: u32,
    /// Optimiser step within the epoch.
    pub step: u32,
    /// Layer of the model.
    pub layer: u16,
    /// Chunk of the graph.
    pub chunk: u16,
    /// Phase, e.g. "forward"; for a message, the name of its purpose.
    pub phase: &'static str,
}

impl Position {
    /// Returns a position in this phase; all numbers are zero.
    pub const fn new(phase: &'static str) -> Self {
        Position { epoch: 0, step: 0, layer: 0, chunk: 0, phase }
    }

    /// Returns this position in another epoch.
    pub const fn epoch(self, epoch: u32) -> Self {
        Position { epoch, ..self }
    }

    /// Returns this position in another optimiser step.
    pub const fn step(self, step: u32) -> Self {
        Position { step, ..self }
    }

    /// Returns this position at another layer.
    pub const fn layer(self, layer: u16) -> Self {
        Position { layer, ..self }
    }

    /// Returns this position at another graph chunk.
    pub const fn chunk(self, chunk: u16) -> Self {
        Position { chunk, ..self }
    }

    /// Encodes the position for a heartbeat.
    pub(crate) fn encode(&self) -> String {
        format!("{}\n{}\n{self}", self.epoch, self.step)
    }

    /// Writes the numbers; step and chunk, which full-graph training does not use, only if they are not zero.
    pub(crate) fn write_numbers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.epoch)?;
        if self.step > 0 {
            write!(f, ", step {}", self.step)?;
        }
        write!(f, ", layer {}", self.layer)?;
        if self.chunk > 0 {
            write!(f, ", chunk {}", self.chunk)?;
        }
        Ok(())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_numbers(f)?;
        write!(f, ", {}", self.phase)
    }
}

/// Last known position of another rank, and how it became known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnownPosition {
    /// From a heartbeat.
    Heartbeat {
        epoch: u32,
        step: u32,
        /// All of the position, for error messages.
        text: String,
    },
    /// From the tag of a message.
    Message(Position),
}

impl KnownPosition {
    /// Decodes the position in a heartbeat; `None` if the text encodes none.
    pub(crate) fn from_heartbeat(text: &str) -> Option<Self> {
        let [epoch, step, text] = text.splitn(3, '\n').collect::<Vec<_>>().try_into().ok()?;
        let (epoch, step) = (epoch.parse().ok()?, step.parse().ok()?);
        Some(KnownPosition::Heartbeat { epoch, step, text: text.to_string() })
    }

    /// Returns whether `position` belongs to an earlier optimiser step.
    pub(crate) fn is_after(&self, position: Position) -> bool {
        let known = match self {
            KnownPosition::Heartbeat { epoch, step, .. } => (*epoch, *step),
            KnownPosition::Message(known) => (known.epoch, known.step),
        };
        known > (position.epoch, position.step)
    }
}

impl fmt::Display for KnownPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnownPosition::Heartbeat { text, .. } => f.write_str(text),
            KnownPosition::Message(position) => position.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_decoded_as_they_were_encoded() {
        let position = Position::new("forward").epoch(3).step(12).layer(1);
        let known = KnownPosition::from_heartbeat(&position.encode()).unwrap();
        assert_eq!(known.to_string(), position.to_string());
        assert!(known.is_after(position.step(11).layer(9)) && !known.is_after(position.layer(0)));
        assert!(!known.is_after(position.epoch(4).step(0)));
        assert_eq!(KnownPosition::from_heartbeat("forward"), None);
    }

    #[test]
    fn display_omits_step_and_chunk_when_zero() {
        let position = Position::new("forward").epoch(3).layer(1);
        assert_eq!(position.to_string(), "epoch 3, layer 1, forward");
        let text = position.step(12).chunk(4).to_string();
        assert_eq!(text, "epoch 3, step 12, layer 1, chunk 4, forward");
    }
}
