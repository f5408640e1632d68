//! Where a rank is in its work.

use std::fmt;

/// Where a rank is in its work, or what a message belongs to. Heartbeats report it and trace spans hold it.
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
    /// Phase of the work, e.g. "forward"; for a message, the name of its purpose.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_omits_step_and_chunk_when_zero() {
        let position = Position::new("forward").epoch(3).layer(1);
        assert_eq!(position.to_string(), "epoch 3, layer 1, forward");
        let text = position.step(12).chunk(4).to_string();
        assert_eq!(text, "epoch 3, step 12, layer 1, chunk 4, forward");
    }
}
