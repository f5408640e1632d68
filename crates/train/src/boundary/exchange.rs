//! Which rows ranks read of each other, and those rows on their way.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use half::f16;
use halograph_comm::{Comm, Message, Priority, Receiving, Tag};
use halograph_graph::error::Error as InputError;
use halograph_kernels::{Real, rows};
use halograph_nn::{Input, Matrix};
use rayon::prelude::*;

use super::line::{Cargo, Deviation, Journey};
use crate::error::Result;

/// Which rows ranks read of each other in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// For each rank, the owned rows that it reads, in the order of its halo rows.
    send: Vec<Vec<u32>>,
    /// For each rank, how many halo rows it owns. They follow one another in the order of ranks.
    receive: Vec<usize>,
}

impl Exchange {
    /// Tells every rank what is read of it. `wanted`: for each rank, the dataset ids of the halo rows that it owns;
    /// `row_of`: the owned row of an id.
    pub fn negotiate(
        comm: &Comm,
        tag: Tag,
        wanted: &[Vec<u32>],
        row_of: impl Fn(u32) -> Option<u32>,
    ) -> Result<Self> {
        let messages = wanted.iter().map(|ids| Message::of(ids)).collect();
        let asked = comm.all_to_all(tag, messages)?;
        let mut send = Vec::new();
        for (rank, ids) in asked.iter().enumerate() {
            let rows = ids.as_slice::<u32>()?.iter().map(|&id| {
                row_of(id).ok_or_else(|| {
                    let problem = format!(
                        "rank {rank} asks for vertex {id}, which rank {} does not compute",
                        comm.rank()
                    );
                    InputError::input("shards", problem)
                        .help("partition the dataset again, all parts at once")
                })
            });
            send.push(rows.collect::<std::result::Result<Vec<u32>, _>>()?);
        }
        Ok(Exchange { send, receive: wanted.iter().map(Vec::len).collect() })
    }

    /// Number of halo rows.
    pub fn halo_rows(&self) -> usize {
        self.receive.iter().sum()
    }

    /// Sends the rows that others read, and expects those that we do.
    pub fn start<T: Real>(
        &self,
        comm: &Comm,
        tag: Tag,
        priority: Priority,
        messages: &Input<T>,
    ) -> Result<Arriving<T>> {
        let columns = messages.cols();
        match messages {
            Input::Full(x) => self.send_rows(comm, tag, priority, x)?,
            Input::Half(x) => self.send_rows(comm, tag, priority, x)?,
        }
        let from = |(rank, &rows): (usize, &usize)| (rows > 0).then(|| (rows, comm.receive(rank, tag)));
        let parts = self.receive.iter().enumerate().filter_map(from).collect();
        let is_half = matches!(messages, Input::Half(_));
        Ok(Arriving { parts, columns, is_half, flight: Flight::begin(), numbers: PhantomData })
    }

    fn send_rows<E: Pod + Send + Sync>(
        &self,
        comm: &Comm,
        tag: Tag,
        priority: Priority,
        x: &Matrix<E>,
    ) -> Result<()> {
        for (rank, rows) in self.send.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let mut message = Message::new::<E>(rows.len() * x.cols());
            let to = message.as_mut_slice::<E>().par_chunks_mut(x.cols().max(1));
            to.zip(rows).with_min_len(64).for_each(|(to, &row)| {
                to.copy_from_slice(x.run(row as usize..row as usize + 1));
            });
            comm.send_with(rank, tag, priority, message)?;
        }
        Ok(())
    }

    /// Sends gradients of halo rows back to their owners, and expects those of our own rows.
    pub fn start_back<T: Real>(
        &self,
        comm: &Comm,
        tag: Tag,
        priority: Priority,
        grad: &Matrix<T>,
    ) -> Result<Returning<T>> {
        let mut first = 0;
        for (rank, &count) in self.receive.iter().enumerate().filter(|(_, count)| **count > 0) {
            let mut message = Message::new::<T>(count * grad.cols());
            copy(grad.run(first..first + count), message.as_mut_slice());
            comm.send_with(rank, tag, priority, message)?;
            first += count;
        }
        let from = |(rank, rows): (usize, &'_ Vec<u32>)| (!rows.is_empty()).then(|| comm.receive(rank, tag));
        let parts = self.send.iter().enumerate().map(from).collect();
        Ok(Returning { parts, rows: self.sent_rows(), flight: Flight::begin(), numbers: PhantomData })
    }

    /// Adds gradients that have come back to those of our own rows, in the order of ranks.
    pub fn add<T: Real>(&self, returned: &Returned<T>, grad: &mut Matrix<T>) -> Result<()> {
        let columns = grad.cols();
        for (message, to) in returned.messages.iter().zip(&self.send) {
            let Some(message) = message else { continue };
            rows::scatter_add(message.expect::<T>(to.len() * columns)?, columns, to, grad.data_mut());
        }
        Ok(())
    }

    /// Gradients that came back before, from where they were saved: rows of each rank, one after the other.
    pub fn returned<T: Real>(&self, saved: &Matrix<T>) -> Returned<T> {
        let mut first = 0;
        let message = |rows: &Vec<u32>| {
            let run = first..first + rows.len();
            first = run.end;
            (!rows.is_empty()).then(|| Message::of(saved.run(run)))
        };
        let messages = Arc::new(self.send.iter().map(message).collect());
        Returned { messages, rows: self.sent_rows(), numbers: PhantomData }
    }

    /// Number of rows that others read, each counted for every rank that does.
    pub fn sent_rows(&self) -> usize {
        self.send.iter().map(Vec::len).sum()
    }
}

/// Copies on all threads: one alone would hold up the others.
fn copy<E: Pod + Send + Sync>(from: &[E], to: &mut [E]) {
    const CHUNK: usize = 1 << 16;
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Messages of halo rows under way.
pub struct Arriving<T> {
    /// Rows of each rank that owns any.
    parts: Vec<(usize, Receiving)>,
    columns: usize,
    is_half: bool,
    flight: Flight,
    numbers: PhantomData<T>,
}

/// Messages from when they were asked for until the last of them came.
struct Flight {
    began: Instant,
    waited: Duration,
    last: Option<Instant>,
}

impl Flight {
    fn begin() -> Self {
        Flight { began: Instant::now(), waited: Duration::ZERO, last: None }
    }

    fn wait(&mut self, receiving: Receiving) -> Result<Message> {
        let start = Instant::now();
        let (message, at) = receiving.wait_timed()?;
        self.waited += start.elapsed();
        self.last = self.last.max(Some(at));
        Ok(message)
    }

    /// How long they travelled while something was computed.
    fn hidden(&self) -> Duration {
        let whole = self.last.map_or(Duration::ZERO, |last| last.saturating_duration_since(self.began));
        whole.saturating_sub(self.waited)
    }
}

impl<T: Real> Journey for Arriving<T> {
    type Cargo = Input<T>;

    /// The messages of all halo rows, and how long they travelled while something was computed.
    fn end(self) -> Result<(Input<T>, Duration)> {
        if self.is_half {
            let (rows, hidden) = self.rows::<f16>()?;
            return Ok((Input::Half(Arc::new(rows)), hidden));
        }
        let (rows, hidden) = self.rows::<T>()?;
        Ok((rows.into(), hidden))
    }
}

impl<T> Arriving<T> {
    /// How many halo rows there will be, and of which width.
    pub fn shape(&self) -> (usize, usize) {
        (self.parts.iter().map(|(rows, _)| rows).sum(), self.columns)
    }

    fn rows<E: Pod + Send + Sync>(mut self) -> Result<(Matrix<E>, Duration)> {
        let (total, columns) = self.shape();
        let mut all = Matrix::unspecified(total, columns);
        let mut first = 0;
        for (rows, receiving) in self.parts {
            let message = self.flight.wait(receiving)?;
            copy(message.expect::<E>(rows * columns)?, all.run_mut(first..first + rows));
            first += rows;
        }
        Ok((all, self.flight.hidden()))
    }
}

impl<T: Real> Cargo for Input<T> {
    type Number = T;

    fn blank(&self) -> Self {
        Matrix::zeros(self.rows(), self.cols()).into()
    }

    fn blend(&mut self, new: &Self, share: T) {
        let mut own = std::mem::take(self).full();
        blend(Arc::make_mut(&mut own).data_mut(), new.full().data(), share);
        *self = own.into();
    }

    fn deviation(&self, from: &Self) -> Deviation {
        Deviation::of(self.full().data(), from.full().data())
    }

    fn size(&self) -> Deviation {
        Deviation::whole(self.full().data())
    }

    fn to_matrix(&self) -> Arc<Matrix<T>> {
        self.full()
    }
}

/// Gradients of our own rows under way.
pub struct Returning<T> {
    parts: Vec<Option<Receiving>>,
    rows: usize,
    flight: Flight,
    numbers: PhantomData<T>,
}

impl<T: Real> Journey for Returning<T> {
    type Cargo = Returned<T>;

    /// What others found; gives also how long it travelled while something was computed.
    fn end(mut self) -> Result<(Returned<T>, Duration)> {
        let mut messages = Vec::new();
        for part in self.parts {
            messages.push(part.map(|part| self.flight.wait(part)).transpose()?);
        }
        let returned = Returned { messages: Arc::new(messages), rows: self.rows, numbers: PhantomData };
        Ok((returned, self.flight.hidden()))
    }
}

/// Gradients of our own rows, as others found them: of each rank that reads any, in the order of ranks.
#[derive(Clone)]
pub struct Returned<T> {
    messages: Arc<Vec<Option<Message>>>,
    /// Of all messages together.
    rows: usize,
    numbers: PhantomData<T>,
}

impl<T> Default for Returned<T> {
    fn default() -> Self {
        Returned { messages: Arc::default(), rows: 0, numbers: PhantomData }
    }
}

impl<T: Real> Returned<T> {
    fn slices(&self) -> impl Iterator<Item = &[T]> {
        let messages = self.messages.iter().flatten();
        messages.map(|message| message.as_slice().expect("others compute in the same numbers"))
    }
}

impl<T: Real> Cargo for Returned<T> {
    type Number = T;

    fn blank(&self) -> Self {
        let blank = |message: &Message| {
            let mut blank = Message::new::<u8>(message.bytes());
            blank.as_mut_slice::<u8>().fill(0);
            blank
        };
        let messages = self.messages.iter().map(|message| message.as_ref().map(blank)).collect();
        Returned { messages: Arc::new(messages), rows: self.rows, numbers: PhantomData }
    }

    fn blend(&mut self, new: &Self, share: T) {
        let own = Arc::make_mut(&mut self.messages).iter_mut().flatten();
        own.zip(new.slices()).for_each(|(own, new)| blend(own.as_mut_slice(), new, share));
    }

    fn deviation(&self, from: &Self) -> Deviation {
        self.slices().zip(from.slices()).map(|(own, other)| Deviation::of(own, other)).sum()
    }

    fn size(&self) -> Deviation {
        self.slices().map(Deviation::whole).sum()
    }

    fn to_matrix(&self) -> Arc<Matrix<T>> {
        let all: Vec<T> = self.slices().flatten().copied().collect();
        let rows = self.rows;
        Arc::new(Matrix::new(rows, all.len() / rows.max(1), all))
    }
}

/// Moves every number by a share of the way to the new one.
fn blend<T: Real>(own: &mut [T], new: &[T], share: T) {
    const CHUNK: usize = 1 << 14;
    own.par_chunks_mut(CHUNK).zip(new.par_chunks(CHUNK)).for_each(|(own, new)| {
        own.iter_mut().zip(new).for_each(|(own, &new)| *own = *own + share * (new - *own));
    });
}
