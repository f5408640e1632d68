//! Fetches the input rows of a macrobatch that other ranks own: each once, and only those that are not kept.

use halograph_comm::{Message, Purpose};
use halograph_graph::sample::{RowSet, Sample};
use halograph_kernels::Real;
use rayon::prelude::*;

use super::cache::KeptRows;
use super::relay::{Batches, check_owned};
use super::rows::FetchedRows;
use super::source::RankSource;
use crate::error::Result;

/// Slots of the messages.
const REQUEST: u8 = 0;
const REPLY: u8 = 1;
/// Bytes of dataset id and degree of a row.
const FACTS: usize = size_of::<(u32, u32)>();

/// Fetches input rows from the other ranks.
pub(super) struct Fetcher<'s, T: Real> {
    source: &'s RankSource<'s, T>,
    kept: KeptRows,
    remote: RowSet,
    /// Place of each vertex among the remote rows of the current macrobatch, by its number.
    places: Vec<u32>,
    /// Own rows of the shard that the current macrobatch reads.
    loaded: RowSet,
}

/// What was fetched for a macrobatch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FetchCounts {
    /// Distinct remote rows.
    pub remote_rows: u64,
    /// Those of them that were not kept.
    pub fetched_rows: u64,
}

impl<'s, T: Real> Fetcher<'s, T> {
    /// Creates a fetcher that keeps rows in `kept`. Allocates.
    pub(super) fn new(source: &'s RankSource<'s, T>, kept: KeptRows) -> Self {
        let nodes = source.graph.numbers.nodes();
        let loaded = RowSet::new(source.graph.runs[source.graph.rank()].len());
        Fetcher { source, kept, remote: RowSet::new(nodes), places: vec![0; nodes], loaded }
    }

    /// Returns the distinct vertices of samples that other ranks own, ascending.
    pub(super) fn remote(&mut self, samples: &[Sample]) -> Vec<u32> {
        let (numbers, own) = (&self.source.graph.numbers, self.source.graph.rank());
        let all = samples.iter().flat_map(Sample::rows);
        all.filter(|&&number| !numbers.owns(own, number)).for_each(|&number| {
            self.remote.insert(number);
        });
        let mut distinct = Vec::new();
        self.remote.drain(|number| distinct.push(number));
        distinct
    }

    /// Fetches the rows of the distinct vertices `remote`, ascending, into `rows`. `coming`: those of coming macrobatches.
    /// Collective; blocks; two all-to-alls.
    pub(super) fn fetch<'v>(
        &mut self,
        batches: &Batches,
        remote: &[u32],
        coming: impl DoubleEndedIterator<Item = &'v [u32]> + ExactSizeIterator,
        rows: &mut FetchedRows,
    ) -> Result<FetchCounts> {
        let (graph, size) = (&self.source.graph, self.source.rows.row_bytes());
        rows.bytes.resize(remote.len() * size, 0);
        rows.facts.resize(remote.len(), (0, 0));
        let mut requests = vec![Vec::new(); graph.comm.size()];
        let mut missing = Vec::new();
        for (at, &number) in remote.iter().enumerate() {
            match self.kept.get(number) {
                Some((bytes, facts)) => {
                    rows.bytes[at * size..][..size].copy_from_slice(bytes);
                    rows.facts[at] = facts;
                }
                None => {
                    let owner = graph.numbers.owner(number);
                    requests[owner].push(graph.numbers.row(owner, number));
                    missing.push(at);
                }
            }
        }
        let tag = batches.tag(Purpose::Features);
        let counts: Vec<usize> = requests.iter().map(Vec::len).collect();
        let requests = requests.iter().map(|rows| Message::of(rows)).collect();
        let mut replies = Vec::new();
        let owned = graph.runs[graph.rank()].len();
        for (from, request) in graph.exchange(tag.slot(REQUEST), requests)?.iter().enumerate() {
            let rows = request.as_slice::<u32>()?;
            check_owned(rows, from, owned)?;
            for &row in rows {
                self.loaded.insert(row);
            }
            replies.push(self.reply(rows));
        }
        let replies = graph.exchange(tag.slot(REPLY), replies)?;
        let mut places = missing.iter();
        for (reply, count) in replies.iter().zip(counts) {
            let (facts, bytes) = reply.expect::<u8>(count * (FACTS + size))?.split_at(count * FACTS);
            let facts = bytemuck::cast_slice::<u8, [u32; 2]>(facts).iter();
            for (i, (&[id, degree], &at)) in facts.zip(&mut places).enumerate() {
                rows.facts[at] = (id, degree);
                rows.bytes[at * size..][..size].copy_from_slice(&bytes[i * size..][..size]);
            }
        }
        self.kept.update(remote, rows, coming);
        Ok(FetchCounts { remote_rows: remote.len() as u64, fetched_rows: missing.len() as u64 })
    }

    /// Returns the number of distinct own rows that the current macrobatch reads: for `samples`, and for the other ranks.
    pub(super) fn loaded_rows(&mut self, samples: &[Sample]) -> u64 {
        let (numbers, own) = (&self.source.graph.numbers, self.source.graph.rank());
        for &number in samples.iter().flat_map(Sample::rows).filter(|&&number| numbers.owns(own, number)) {
            self.loaded.insert(numbers.row(own, number));
        }
        let mut count = 0;
        self.loaded.drain(|_| count += 1);
        count
    }

    /// Returns ids and degrees of requested rows, then the rows.
    fn reply(&self, requested: &[u32]) -> Message {
        let rows = &self.source.rows;
        let mut reply = Message::new::<u8>(requested.len() * (FACTS + rows.row_bytes()));
        let (facts, bytes) = reply.as_mut_slice::<u8>().split_at_mut(requested.len() * FACTS);
        let facts = bytemuck::cast_slice_mut::<u8, [u32; 2]>(facts);
        facts.iter_mut().zip(requested).for_each(|(facts, &row)| *facts = rows.facts(row).into());
        rows.copy(requested, bytes);
        reply
    }

    /// Completes samples, whose vertices `remote` were fetched as `rows`, by ids, degrees and sums of weights. Returns for each
    /// sample the places of its input rows: owned ones, then counted on those of `rows`.
    pub(super) fn describe(
        &mut self,
        samples: &mut [Sample],
        remote: &[u32],
        rows: &FetchedRows,
    ) -> Vec<Vec<u32>> {
        remote.iter().zip(0..).for_each(|(&number, at)| self.places[number as usize] = at);
        let (source, own, places) = (self.source, self.source.graph.rank(), &self.places);
        let (numbers, first) = (&source.graph.numbers, source.rows.count() as u32);
        let of_sample = |sample: &mut Sample| {
            sample.describe(|number| match numbers.owns(own, number) {
                true => source.rows.facts(numbers.row(own, number)),
                false => rows.facts[places[number as usize] as usize],
            });
            if source.graph.neighbors.has_weights() {
                let size = source.rows.row_bytes();
                let sum = |number: u32| match numbers.owns(own, number) {
                    true => source.rows.in_weight(numbers.row(own, number)),
                    false => {
                        let at = places[number as usize] as usize * size;
                        source.rows.in_weight_of(&rows.bytes[at..at + size])
                    }
                };
                sample.describe_weights(|number| sum(number).expect("rows have sums of weights"));
            }
            let place = |&number: &u32| match numbers.owns(own, number) {
                true => source.rows.place(numbers.row(own, number)),
                false => first + places[number as usize],
            };
            sample.rows().iter().map(place).collect()
        };
        samples.par_iter_mut().map(of_sample).collect()
    }
}
