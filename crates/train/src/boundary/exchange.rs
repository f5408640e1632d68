//! The rows that ranks read of each other in one block.

use std::ops::Range;

use bytemuck::Pod;
use halograph_comm::{Comm, Message, Priority, Tag};
use halograph_graph::error::Error as InputError;
use halograph_kernels::{Real, rows};
use halograph_nn::{Input, Matrix, Sparse};
use rayon::prelude::*;

use super::encoding;
use super::transfer::{FeatureTransfer, GradientTransfer, ReturnedGradients, copy};
use crate::config::RowEncoding;
use crate::error::Result;

/// Rows moved by one task when rows are gathered.
const GATHER_ROWS: usize = 64;

/// The rows that ranks read of each other in one block: boundary rows are sent forward, gradients of halo rows back.
///
/// Halo rows are numbered by owner rank, then in the order in which the owner sends them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// For each rank, the owned rows that it reads, in the order of its halo rows.
    send_rows: Vec<Vec<u32>>,
    /// For each rank, how many of our halo rows it owns.
    halo_counts: Vec<usize>,
}

impl Exchange {
    /// Creates an exchange from lists that both sides know already; communicates nothing.
    ///
    /// `send_rows[q]`: owned rows that rank q reads, in the order of its halo rows. `halo_counts[q]`: how many halo rows
    /// rank q owns. What rank p sends to q must be as many rows as q expects of p.
    pub fn new(send_rows: Vec<Vec<u32>>, halo_counts: Vec<usize>) -> Self {
        assert_eq!(send_rows.len(), halo_counts.len(), "both lists have an entry per rank");
        Exchange { send_rows, halo_counts }
    }

    /// Creates an exchange by telling every rank which rows are read of it. Collective; blocks.
    ///
    /// `wanted[q]`: dataset ids of the halo rows that rank q owns. `row_of`: the owned row of a dataset id.
    pub fn negotiate(
        comm: &Comm,
        tag: Tag,
        wanted: &[Vec<u32>],
        row_of: impl Fn(u32) -> Option<u32>,
    ) -> Result<Self> {
        let messages = wanted.iter().map(|ids| Message::of(ids)).collect();
        let asked = comm.all_to_all(tag, messages)?;
        let mut send_rows = Vec::new();
        for (rank, ids) in asked.iter().enumerate() {
            let unknown = |id: u32| {
                let here = comm.rank();
                let problem = format!("rank {rank} asks for vertex {id}, which rank {here} does not compute");
                InputError::input("shards", problem).help("partition the dataset again, all parts at once")
            };
            let rows = ids.as_slice::<u32>()?.iter().map(|&id| row_of(id).ok_or_else(|| unknown(id)));
            send_rows.push(rows.collect::<std::result::Result<Vec<u32>, _>>()?);
        }
        Ok(Exchange::new(send_rows, wanted.iter().map(Vec::len).collect()))
    }

    /// Splits the exchange by runs of owned rows: `own` has the start of each run and the end, and `halo` for each run the
    /// halo rows of every rank in the corresponding run there. Every rank must read the rows of one run after those of the run
    /// before. Owned rows are numbered anew from the start of their run.
    pub fn by_run(&self, own: &[usize], halo: &[Vec<Range<usize>>]) -> Vec<Exchange> {
        let within = |rows: &[u32], run: &[usize]| -> Vec<u32> {
            let [start, end] = [run[0], run[1]].map(|end| rows.partition_point(|&row| (row as usize) < end));
            rows[start..end].iter().map(|&row| row - run[0] as u32).collect()
        };
        let exchange = |(run, halo): (&[usize], &Vec<Range<usize>>)| {
            let send_rows = self.send_rows.iter().map(|rows| within(rows, run)).collect();
            Exchange::new(send_rows, halo.iter().map(Range::len).collect())
        };
        own.windows(2).zip(halo).map(exchange).collect()
    }

    /// Returns an exchange of no rows with the same ranks.
    pub fn of_no_rows(&self) -> Self {
        let ranks = self.halo_counts.len();
        Exchange::new(vec![Vec::new(); ranks], vec![0; ranks])
    }

    /// Returns the number of halo rows.
    pub fn halo_rows(&self) -> usize {
        self.halo_counts.iter().sum()
    }

    /// Returns the number of rows sent, each counted once per rank that reads it.
    pub fn sent_rows(&self) -> usize {
        self.send_rows.iter().map(Vec::len).sum()
    }

    /// Starts sending boundary rows and receiving halo rows. Does not block. Rows of 16-bit numbers are always dense.
    pub fn start_features<T: Real>(
        &self,
        comm: &Comm,
        tag: Tag,
        (priority, encoding): (Priority, RowEncoding),
        messages: &Input<T>,
    ) -> Result<FeatureTransfer<T>> {
        match (messages, encoding) {
            (Input::Full(x), RowEncoding::Dense) => {
                self.send_boundary(comm, tag, priority, |rows| dense(x, rows))?
            }
            (Input::Full(x), RowEncoding::Nonzero) => {
                self.send_boundary(comm, tag, priority, |rows| encoding::encode(x, rows))?;
            }
            (Input::Half(x), _) => self.send_boundary(comm, tag, priority, |rows| dense(x, rows))?,
            // Zeros included: only a first layer that is forced to project last sends its input.
            (Input::Sparse(x), _) => self.send_boundary(comm, tag, priority, |rows| densified(x, rows))?,
        }
        let owners = self.halo_counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let parts = owners.map(|(rank, &count)| (count, comm.receive(rank, tag))).collect();
        let is_half = matches!(messages, Input::Half(_));
        Ok(FeatureTransfer::new(parts, messages.cols(), is_half, encoding))
    }

    fn send_boundary(
        &self,
        comm: &Comm,
        tag: Tag,
        priority: Priority,
        encode: impl Fn(&[u32]) -> Message,
    ) -> Result<()> {
        for (rank, rows) in self.send_rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            comm.send_with(rank, tag, priority, encode(rows))?;
        }
        Ok(())
    }

    /// Starts returning gradients of halo rows to their owners and receiving those of owned rows. `halo`: the halo rows, if
    /// only gradients of their nonzero entries are returned. Does not block.
    pub fn start_gradients<T: Real>(
        &self,
        comm: &Comm,
        tag: Tag,
        priority: Priority,
        grad: &Matrix<T>,
        halo: Option<&Matrix<T>>,
    ) -> Result<GradientTransfer<T>> {
        let mut first = 0;
        for (rank, &count) in self.halo_counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let run = first..first + count;
            let message = match halo {
                None => dense_run(grad, run),
                Some(halo) => encoding::encode_where(grad, halo, run),
            };
            comm.send_with(rank, tag, priority, message)?;
            first += count;
        }
        let readers = self.send_rows.iter().enumerate();
        let parts = readers.map(|(rank, rows)| (!rows.is_empty()).then(|| comm.receive(rank, tag))).collect();
        Ok(GradientTransfer::new(parts, self.sent_rows()))
    }

    /// Adds returned gradients to those of owned rows, in the order of ranks, not of arrival. `sent`: the rows that were sent,
    /// if only gradients of their nonzero entries are returned.
    pub fn add_gradients<T: Real>(
        &self,
        returned: &ReturnedGradients<T>,
        grad: &mut Matrix<T>,
        sent: Option<&Matrix<T>>,
    ) -> Result<()> {
        let columns = grad.cols();
        for (message, rows) in returned.messages().iter().zip(&self.send_rows) {
            let Some(message) = message else { continue };
            match sent {
                None => {
                    let values = message.expect::<T>(rows.len() * columns)?;
                    rows::scatter_add(values, columns, rows, grad.data_mut());
                }
                Some(sent) => encoding::add_where(message, sent, rows, grad)?,
            }
        }
        Ok(())
    }

    /// Rebuilds returned gradients from a saved matrix: the rows of each rank, one rank after the other.
    pub fn restore_gradients<T: Real>(&self, saved: &Matrix<T>) -> ReturnedGradients<T> {
        let mut first = 0;
        let message = |rows: &Vec<u32>| {
            let run = first..first + rows.len();
            first = run.end;
            (!rows.is_empty()).then(|| Message::of(saved.run(run)))
        };
        ReturnedGradients::new(self.send_rows.iter().map(message).collect(), self.sent_rows())
    }
}

/// Returns a message of `rows` of `x`.
fn dense<E: Pod + Send + Sync>(x: &Matrix<E>, rows: &[u32]) -> Message {
    let mut message = Message::new::<E>(rows.len() * x.cols());
    let to = message.as_mut_slice::<E>().par_chunks_mut(x.cols().max(1));
    to.zip(rows).with_min_len(GATHER_ROWS).for_each(|(to, &row)| {
        to.copy_from_slice(x.run(row as usize..row as usize + 1));
    });
    message
}

/// Returns a message of `rows` of `x`, zeros included.
fn densified<T: Real>(x: &Sparse<T>, rows: &[u32]) -> Message {
    let mut message = Message::new::<T>(rows.len() * x.cols());
    let to = message.as_mut_slice::<T>().par_chunks_mut(x.cols().max(1));
    to.zip(rows).with_min_len(GATHER_ROWS).for_each(|(to, &row)| x.copy_row(row as usize, to));
    message
}

/// Returns a message of consecutive rows of `x`.
fn dense_run<T: Real>(x: &Matrix<T>, run: Range<usize>) -> Message {
    let mut message = Message::new::<T>(run.len() * x.cols());
    copy(x.run(run), message.as_mut_slice());
    message
}
