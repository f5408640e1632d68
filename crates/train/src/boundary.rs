//! What travels between ranks in a layer: messages of boundary rows forward, their gradients back.
//!
//! An [`Exchange`] is what each rank reads of the others in one block. Both directions are started by one call and taken
//! by another, so that a strategy decides what is computed in between.

use std::time::{Duration, Instant};

use bytemuck::Pod;
use half::f16;
use halograph_comm::{Comm, Message, Receiving, Tag};
use halograph_graph::error::Error as InputError;
use halograph_kernels::{Real, rows};
use halograph_nn::{Input, Matrix};
use rayon::prelude::*;

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
    pub fn start<T: Real>(&self, comm: &Comm, tag: Tag, messages: &Input<T>) -> Result<Arriving> {
        let columns = messages.cols();
        match messages {
            Input::Full(x) => self.send_rows(comm, tag, x)?,
            Input::Half(x) => self.send_rows(comm, tag, x)?,
        }
        let from = |(rank, &rows): (usize, &usize)| (rows > 0).then(|| (rows, comm.receive(rank, tag)));
        let parts = self.receive.iter().enumerate().filter_map(from).collect();
        Ok(Arriving { parts, columns, is_half: matches!(messages, Input::Half(_)), flight: Flight::begin() })
    }

    fn send_rows<E: Pod + Send + Sync>(&self, comm: &Comm, tag: Tag, x: &Matrix<E>) -> Result<()> {
        for (rank, rows) in self.send.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let mut message = Message::new::<E>(rows.len() * x.cols());
            let to = message.as_mut_slice::<E>().par_chunks_mut(x.cols().max(1));
            to.zip(rows).with_min_len(64).for_each(|(to, &row)| {
                to.copy_from_slice(x.run(row as usize..row as usize + 1));
            });
            comm.send(rank, tag, message)?;
        }
        Ok(())
    }

    /// Sends gradients of halo rows back to their owners, and expects those of our own rows.
    pub fn start_back<T: Real>(&self, comm: &Comm, tag: Tag, grad: &Matrix<T>) -> Result<Returning<'_>> {
        let mut first = 0;
        for (rank, &count) in self.receive.iter().enumerate().filter(|(_, count)| **count > 0) {
            let mut message = Message::new::<T>(count * grad.cols());
            copy(grad.run(first..first + count), message.as_mut_slice());
            comm.send(rank, tag, message)?;
            first += count;
        }
        let from = |(rank, rows): (usize, &'_ Vec<u32>)| (!rows.is_empty()).then(|| comm.receive(rank, tag));
        let parts = self.send.iter().enumerate().map(from).collect();
        Ok(Returning { exchange: self, parts, flight: Flight::begin() })
    }
}

/// Copies on all threads: one alone would hold up the others.
fn copy<E: Pod + Send + Sync>(from: &[E], to: &mut [E]) {
    const CHUNK: usize = 1 << 16;
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Messages of halo rows under way.
pub struct Arriving {
    /// Rows of each rank that owns any.
    parts: Vec<(usize, Receiving)>,
    columns: usize,
    is_half: bool,
    flight: Flight,
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

impl Arriving {
    /// The messages of all halo rows, and how long they travelled while something was computed.
    pub fn wait<T: Real>(self) -> Result<(Input<T>, Duration)> {
        if self.is_half {
            let (rows, hidden) = self.rows::<f16>()?;
            return Ok((Input::Half(std::sync::Arc::new(rows)), hidden));
        }
        let (rows, hidden) = self.rows::<T>()?;
        Ok((rows.into(), hidden))
    }

    fn rows<E: Pod + Send + Sync>(mut self) -> Result<(Matrix<E>, Duration)> {
        let total = self.parts.iter().map(|(rows, _)| rows).sum();
        let mut all = Matrix::unspecified(total, self.columns);
        let mut first = 0;
        for (rows, receiving) in self.parts {
            let message = self.flight.wait(receiving)?;
            copy(message.expect::<E>(rows * self.columns)?, all.run_mut(first..first + rows));
            first += rows;
        }
        Ok((all, self.flight.hidden()))
    }
}

/// Gradients of our own rows under way.
pub struct Returning<'e> {
    exchange: &'e Exchange,
    parts: Vec<Option<Receiving>>,
    flight: Flight,
}

impl<'e> Returning<'e> {
    /// Waits for all of them; gives also how long they travelled while something was computed.
    pub fn wait(mut self) -> Result<(Returned<'e>, Duration)> {
        let mut messages = Vec::new();
        for part in self.parts {
            messages.push(part.map(|part| self.flight.wait(part)).transpose()?);
        }
        Ok((Returned { exchange: self.exchange, messages }, self.flight.hidden()))
    }
}

/// Gradients of our own rows, as others found them.
pub struct Returned<'e> {
    exchange: &'e Exchange,
    messages: Vec<Option<Message>>,
}

impl Returned<'_> {
    /// Adds them to `grad` in the order of ranks.
    pub fn add_to<T: Real>(self, grad: &mut Matrix<T>) -> Result<()> {
        let columns = grad.cols();
        for (message, to) in self.messages.into_iter().zip(&self.exchange.send) {
            let Some(message) = message else { continue };
            rows::scatter_add(message.expect::<T>(to.len() * columns)?, columns, to, grad.data_mut());
        }
        Ok(())
    }
}
