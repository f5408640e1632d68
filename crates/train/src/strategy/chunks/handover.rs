//! Rows and gradients handed over between the stage groups of a way.

use std::sync::Arc;

use halograph_comm::{Comm, Message, Priority, Purpose, Tag};
use halograph_kernels::Real;
use halograph_nn::{Matrix, Model};

use super::grid::{Grid, StageLayout};
use crate::error::Result;
use crate::stage::{Activations, Gradients, StageRunner};

/// Tags of rows that are handed over: those of a stage's input, and those of the initial stage.
#[derive(Debug, Clone, Copy)]
pub struct Tags {
    /// Input of the next stage.
    pub rows: Tag,
    /// Output of the initial stage.
    pub initial: Tag,
}

impl Tags {
    /// Returns the tags of a chunk in a training step.
    pub fn training(purpose: Purpose, (epoch, step): (u64, u64), chunk: usize) -> Self {
        let rows = Tag::new(purpose).epoch(epoch as u32).step(step as u32).chunk(chunk as u16);
        Tags { rows, initial: rows.slot(1) }
    }
}

/// The boundaries between this rank's stages and those of the ranks before and after it.
pub struct Handover<'g> {
    pub grid: &'g Grid,
    pub layout: &'g StageLayout,
}

impl Handover<'_> {
    fn column(&self) -> &Comm {
        &self.grid.column
    }

    /// Sends the first `rows` rows after the last stage of this rank, if there is a rank with later stages. Does not block.
    pub fn send_forward<T: Real>(&self, tags: Tags, rows: usize, done: &Activations<T>) -> Result<()> {
        if self.grid.is_last() {
            return Ok(());
        }
        let last = self.layout.groups[self.grid.stage].end - 1;
        let to = self.grid.stage + 1;
        let initial = done.initial.as_deref();
        if let Some(initial) = initial {
            self.send(to, tags.initial.layer(last as u16), initial, rows)?;
        }
        // After the initial stage, its output is enough: the receiver applies the dropout of the next stage.
        if self.layout.initial == Some(last) {
            return Ok(());
        }
        self.send(to, tags.rows.layer(last as u16), &done.input.full(), rows)
    }

    /// Receives `rows` rows as input of the first stage of this rank. Blocks.
    pub fn receive_forward<T: Real>(
        &self,
        tags: Tags,
        rows: usize,
        runner: &StageRunner<T>,
        model: &Model<T>,
    ) -> Result<Activations<T>> {
        let before = self.layout.groups[self.grid.stage].start - 1;
        let from = self.grid.stage - 1;
        let receive = |tag: Tag, stage: usize| {
            self.receive(from, tag.layer(before as u16), (rows, self.layout.widths[stage]))
        };
        let initial = self.layout.initial.filter(|&stage| stage <= before);
        let initial = initial.map(|stage| Ok::<_, crate::Error>((stage, receive(tags.initial, stage)?)));
        match initial.transpose()? {
            Some((stage, initial)) if stage == before => Ok(runner.after_initial(model, before + 1, initial)),
            initial => {
                let input = receive(tags.rows, before)?;
                Ok(Activations::received(input.into(), initial.map(|(_, initial)| Arc::new(initial))))
            }
        }
    }

    /// Sends the gradients of what [`Handover::receive_forward`] returned. Does not block.
    pub fn send_backward<T: Real>(
        &self,
        tags: Tags,
        runner: &StageRunner<T>,
        model: &Model<T>,
        grads: Gradients<T>,
    ) -> Result<()> {
        let before = self.layout.groups[self.grid.stage].start - 1;
        let (to, rows) = (self.grid.stage - 1, grads.output.rows());
        let tags = Tags { rows: tags.rows.layer(before as u16), initial: tags.initial.layer(before as u16) };
        match self.layout.initial {
            Some(stage) if stage == before => {
                let grad = runner.initial_gradient(model, before + 1, grads);
                return self.send(to, tags.initial, &grad, rows);
            }
            Some(stage) if stage < before => {
                let zeros = || Matrix::zeros(rows, self.layout.widths[stage]);
                self.send(to, tags.initial, &grads.initial.unwrap_or_else(zeros), rows)?;
            }
            _ => {}
        }
        self.send(to, tags.rows, &grads.output, rows)
    }

    /// Receives gradients of the `rows` rows that [`Handover::send_forward`] sent. `initial_rows`: how many rows of the
    /// initial stage this rank has. Blocks.
    pub fn receive_backward<T: Real>(
        &self,
        tags: Tags,
        rows: usize,
        initial_rows: usize,
    ) -> Result<Gradients<T>> {
        let last = self.layout.groups[self.grid.stage].end - 1;
        let receive = |tag: Tag, stage: usize| {
            self.receive(self.grid.stage + 1, tag.layer(last as u16), (rows, self.layout.widths[stage]))
        };
        let initial = self.layout.initial.filter(|&stage| stage <= last);
        let initial = initial.map(|stage| receive(tags.initial, stage)).transpose()?;
        if self.layout.initial == Some(last) {
            return Ok(Gradients::of_initial(initial.expect("received above")));
        }
        let mut grads = Gradients::of_loss(receive(tags.rows, last)?);
        grads.initial = initial.map(|grad| padded(grad, initial_rows));
        Ok(grads)
    }

    fn send<T: Real>(&self, to: usize, tag: Tag, matrix: &Matrix<T>, rows: usize) -> Result<()> {
        let message = Message::of(matrix.run(0..rows));
        Ok(self.column().send_with(to, tag, Priority::Urgent, message)?)
    }

    fn receive<T: Real>(&self, from: usize, tag: Tag, (rows, width): (usize, usize)) -> Result<Matrix<T>> {
        let message = self.column().receive(from, tag).wait()?;
        let mut matrix = Matrix::unspecified(rows, width);
        matrix.data_mut().copy_from_slice(message.expect::<T>(rows * width)?);
        Ok(matrix)
    }
}

/// Returns `grad` with zeros as further rows.
fn padded<T: Real>(grad: Matrix<T>, rows: usize) -> Matrix<T> {
    if grad.rows() == rows {
        return grad;
    }
    let mut all = Matrix::zeros(rows, grad.cols());
    all.run_mut(0..grad.rows()).copy_from_slice(grad.data());
    all
}
