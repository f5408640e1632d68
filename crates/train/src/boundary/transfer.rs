//! Rows on their way between ranks, and rows that have arrived.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use half::f16;
use halograph_comm::{Message, ReceiveRequest};
use halograph_kernels::Real;
use halograph_nn::{Input, Matrix};
use rayon::prelude::*;

use super::encoding;
use super::versions::{Deviation, RemoteRows, Transfer};
use crate::config::RowEncoding;
use crate::error::Result;

/// Numbers copied by one task.
const COPY_CHUNK: usize = 1 << 16;
/// Numbers blended by one task.
const BLEND_CHUNK: usize = 1 << 14;

/// Copies on all threads of the pool.
pub(super) fn copy<E: Pod + Send + Sync>(from: &[E], to: &mut [E]) {
    let chunks = to.par_chunks_mut(COPY_CHUNK).zip(from.par_chunks(COPY_CHUNK));
    chunks.for_each(|(to, from)| to.copy_from_slice(from));
}

/// Time between the request for messages and the arrival of the last one.
struct Flight {
    started: Instant,
    waited: Duration,
    last_arrival: Option<Instant>,
}

impl Flight {
    fn start() -> Self {
        Flight { started: Instant::now(), waited: Duration::ZERO, last_arrival: None }
    }

    fn wait(&mut self, receiving: ReceiveRequest) -> Result<Message> {
        let start = Instant::now();
        let (message, at) = receiving.wait_timed()?;
        self.waited += start.elapsed();
        self.last_arrival = self.last_arrival.max(Some(at));
        Ok(message)
    }

    /// Returns the time in flight that overlapped with computation: in flight, but not waited for.
    fn hidden(&self) -> Duration {
        let whole = self.last_arrival.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.started));
        whole.saturating_sub(self.waited)
    }
}

/// Halo rows in flight.
pub struct FeatureTransfer<T> {
    /// Number of rows of each rank that owns any, and their message.
    parts: Vec<(usize, ReceiveRequest)>,
    columns: usize,
    is_half: bool,
    encoding: RowEncoding,
    flight: Flight,
    numbers: PhantomData<T>,
}

impl<T> FeatureTransfer<T> {
    pub(super) fn new(
        parts: Vec<(usize, ReceiveRequest)>,
        columns: usize,
        is_half: bool,
        encoding: RowEncoding,
    ) -> Self {
        FeatureTransfer { parts, columns, is_half, encoding, flight: Flight::start(), numbers: PhantomData }
    }

    /// Returns the number of halo rows and their width.
    pub fn shape(&self) -> (usize, usize) {
        (self.parts.iter().map(|(rows, _)| rows).sum(), self.columns)
    }

    fn rows<E: Pod + Send + Sync>(
        mut self,
        place: impl Fn(&Message, &mut [E]) -> Result<()>,
    ) -> Result<(Matrix<E>, Duration)> {
        let (total, columns) = self.shape();
        let mut all = Matrix::unspecified(total, columns);
        let mut first = 0;
        for (rows, receiving) in self.parts {
            let message = self.flight.wait(receiving)?;
            place(&message, all.run_mut(first..first + rows))?;
            first += rows;
        }
        Ok((all, self.flight.hidden()))
    }
}

/// Copies the rows of a dense message.
fn place<E: Pod + Send + Sync>(message: &Message, rows: &mut [E]) -> Result<()> {
    copy(message.expect(rows.len())?, rows);
    Ok(())
}

impl<T: Real> Transfer for FeatureTransfer<T> {
    type Rows = Input<T>;

    fn finish(self) -> Result<(Input<T>, Duration)> {
        if self.is_half {
            let (rows, hidden) = self.rows::<f16>(place)?;
            return Ok((Input::Half(Arc::new(rows)), hidden));
        }
        let columns = self.columns;
        let (rows, hidden) = match self.encoding {
            RowEncoding::Dense => self.rows(place)?,
            RowEncoding::Nonzero => self.rows(|message, rows| encoding::decode(message, columns, rows))?,
        };
        Ok((rows.into(), hidden))
    }
}

impl<T: Real> RemoteRows for Input<T> {
    type Number = T;

    fn zeros_like(&self) -> Self {
        Matrix::zeros(self.rows(), self.cols()).into()
    }

    fn blend(&mut self, new: &Self, share: T) {
        let mut own = std::mem::take(self).full();
        blend(Arc::make_mut(&mut own).data_mut(), new.full().data(), share);
        *self = own.into();
    }

    fn deviation(&self, fresh: &Self) -> Deviation {
        Deviation::between(self.full().data(), fresh.full().data())
    }

    fn squared_norm(&self) -> Deviation {
        Deviation::of_zeros(self.full().data())
    }

    fn to_matrix(&self) -> Arc<Matrix<T>> {
        self.full()
    }
}

/// Gradients of owned rows in flight.
pub struct GradientTransfer<T> {
    parts: Vec<Option<ReceiveRequest>>,
    rows: usize,
    flight: Flight,
    numbers: PhantomData<T>,
}

impl<T> GradientTransfer<T> {
    pub(super) fn new(parts: Vec<Option<ReceiveRequest>>, rows: usize) -> Self {
        GradientTransfer { parts, rows, flight: Flight::start(), numbers: PhantomData }
    }
}

impl<T: Real> Transfer for GradientTransfer<T> {
    type Rows = ReturnedGradients<T>;

    fn finish(mut self) -> Result<(ReturnedGradients<T>, Duration)> {
        let mut messages = Vec::new();
        for part in self.parts {
            messages.push(part.map(|part| self.flight.wait(part)).transpose()?);
        }
        Ok((ReturnedGradients::new(messages, self.rows), self.flight.hidden()))
    }
}

/// Gradients of owned rows as other ranks computed them: one message per rank that reads any, in the order of ranks.
#[derive(Clone)]
pub struct ReturnedGradients<T> {
    messages: Arc<Vec<Option<Message>>>,
    /// Rows of all messages together.
    rows: usize,
    numbers: PhantomData<T>,
}

impl<T> Default for ReturnedGradients<T> {
    fn default() -> Self {
        ReturnedGradients::new(Vec::new(), 0)
    }
}

impl<T> ReturnedGradients<T> {
    pub(super) fn new(messages: Vec<Option<Message>>, rows: usize) -> Self {
        ReturnedGradients { messages: Arc::new(messages), rows, numbers: PhantomData }
    }

    pub(super) fn messages(&self) -> &[Option<Message>] {
        &self.messages
    }
}

impl<T: Real> ReturnedGradients<T> {
    fn slices(&self) -> impl Iterator<Item = &[T]> {
        let messages = self.messages.iter().flatten();
        messages.map(|message| message.as_slice().expect("all ranks compute in the same precision"))
    }
}

impl<T: Real> RemoteRows for ReturnedGradients<T> {
    type Number = T;

    fn zeros_like(&self) -> Self {
        let zeros = |message: &Message| {
            let mut zeros = Message::new::<u8>(message.bytes());
            zeros.as_mut_slice::<u8>().fill(0);
            zeros
        };
        ReturnedGradients::new(self.messages.iter().map(|m| m.as_ref().map(zeros)).collect(), self.rows)
    }

    fn blend(&mut self, new: &Self, share: T) {
        let own = Arc::make_mut(&mut self.messages).iter_mut().flatten();
        own.zip(new.slices()).for_each(|(own, new)| blend(own.as_mut_slice(), new, share));
    }

    fn deviation(&self, fresh: &Self) -> Deviation {
        self.slices().zip(fresh.slices()).map(|(own, fresh)| Deviation::between(own, fresh)).sum()
    }

    fn squared_norm(&self) -> Deviation {
        self.slices().map(Deviation::of_zeros).sum()
    }

    fn to_matrix(&self) -> Arc<Matrix<T>> {
        let all: Vec<T> = self.slices().flatten().copied().collect();
        let rows = self.rows;
        Arc::new(Matrix::new(rows, all.len() / rows.max(1), all))
    }
}

/// Moves every number of `own` by `share` of the way to that of `new`.
fn blend<T: Real>(own: &mut [T], new: &[T], share: T) {
    own.par_chunks_mut(BLEND_CHUNK).zip(new.par_chunks(BLEND_CHUNK)).for_each(|(own, new)| {
        own.iter_mut().zip(new).for_each(|(own, &new)| *own = *own + share * (new - *own));
    });
}
