//! Batches that ranks sample together.

use std::sync::{Mutex, PoisonError};

use halograph_comm::{Message, Purpose, Tag};
use halograph_graph::error::Error as InputError;
use halograph_graph::sample::Sample;
use halograph_kernels::keyed::Key;

use crate::error::{Error, Result};

/// Samples batches together with the other ranks.
pub trait Relay: Send + Sync {
    /// Samples `batches`. Rows of the samples are numbers of vertices, without ids and degrees. Collective; blocks. Returns
    /// the samples and the number of all-to-alls.
    fn sample(&self, batches: &Batches) -> Result<(Vec<Sample>, u64)>;

    /// Returns whether samples have rows of other ranks, which are fetched.
    fn reads_remote_inputs(&self) -> bool;
}

/// Consecutive batches of an epoch, as this rank takes part in them.
#[derive(Debug, Clone)]
pub struct Batches {
    /// The epoch.
    pub epoch: u64,
    /// First step.
    pub first: u64,
    /// One per step.
    pub batches: Vec<BatchSeeds>,
}

/// The seeds of one batch.
#[derive(Debug, Clone)]
pub struct BatchSeeds {
    /// Stream of the batch.
    pub key: Key,
    /// Positions of the seeds of this rank among its training rows, ascending.
    pub positions: Vec<u32>,
    /// Their rows in the shard.
    pub rows: Vec<u32>,
    /// Number of seeds of all ranks.
    pub of_all_ranks: u64,
    /// Sum of the class weights of all of these, if the loss is divided by it.
    pub weight: Option<f64>,
}

impl Batches {
    /// Returns the tag of an exchange for these batches.
    pub fn tag(&self, purpose: Purpose) -> Tag {
        Tag::new(purpose).epoch(self.epoch as u32).step(self.first as u32)
    }
}

/// Returns a message to each rank with lists of rows: for each batch their count, then the rows. `rows[batch][rank]`: rows
/// that are sent to a rank.
pub fn rows_by_batch(rows: &[Vec<Vec<u32>>], ranks: usize) -> Vec<Message> {
    let of_rank = |rank: usize| {
        let lists = rows.iter().map(|batch| &batch[rank]);
        let encoded = lists.flat_map(|rows| std::iter::once(count(rows.len())).chain(rows.iter().copied()));
        Message::of(&encoded.collect::<Vec<u32>>())
    };
    (0..ranks).map(of_rank).collect()
}

/// Returns the lists of a message from rank `from`, such as one of [`rows_by_batch`]: one for each of `batches`. Refuses a
/// message that does not have these lists alone.
pub fn lists_by_batch(message: &Message, batches: usize, from: usize) -> Result<Vec<&[u32]>> {
    let mut rest = message.as_slice::<u32>()?;
    let mut next = || {
        let (&count, after) = rest.split_first()?;
        let (list, after) = after.split_at_checked(count as usize)?;
        rest = after;
        Some(list)
    };
    let lists: Option<Vec<&[u32]>> = (0..batches).map(|_| next()).collect();
    lists
        .filter(|_| rest.is_empty())
        .ok_or_else(|| wrong_lists(from, format!("no lists of {batches} batches")))
}

/// Returns the rows of a message of [`rows_by_batch`] from rank `from`, as [`lists_by_batch`]. Refuses rows that are not
/// among the first `owned` ones.
pub fn owned_rows_by_batch(
    message: &Message,
    batches: usize,
    from: usize,
    owned: usize,
) -> Result<Vec<&[u32]>> {
    let lists = lists_by_batch(message, batches, from)?;
    check_owned(lists.iter().copied().flatten(), from, owned)?;
    Ok(lists)
}

/// Refuses rows of a message from rank `from` that are not among the first `owned` ones.
pub(super) fn check_owned<'r>(
    rows: impl IntoIterator<Item = &'r u32>,
    from: usize,
    owned: usize,
) -> Result<()> {
    match rows.into_iter().find(|&&row| row as usize >= owned) {
        Some(row) => Err(wrong_lists(from, format!("row {row}, of {owned} that this rank owns"))),
        None => Ok(()),
    }
}

fn wrong_lists(from: usize, problem: String) -> Error {
    let error = InputError::input(format!("the sampling message of rank {from}"), problem);
    error.help("start every rank with the same program, settings and data").into()
}

/// Encodes a number of rows or neighbours.
pub fn count(number: usize) -> u32 {
    u32::try_from(number).expect("lists of a batch have fewer than 2^32 entries")
}

/// Working memory of sampling threads: as many workers as threads that sample at the same time.
pub struct Workers<W> {
    spare: Mutex<Vec<W>>,
}

impl<W> Default for Workers<W> {
    fn default() -> Self {
        Workers { spare: Mutex::default() }
    }
}

impl<W> Workers<W> {
    /// Runs `work` with a spare worker, or a new one.
    pub fn with<R>(&self, new: impl FnOnce() -> W, work: impl FnOnce(&mut W) -> R) -> R {
        let lock = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut worker = spare.unwrap_or_else(new);
        let result = work(&mut worker);
        lock().push(worker);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        let rows = [vec![vec![], vec![3, 1]], vec![vec![], vec![]], vec![vec![], vec![0]]];
        let messages = rows_by_batch(&rows, 2);
        assert_eq!(lists_by_batch(&messages[0], 3, 0).unwrap(), [&[] as &[u32]; 3]);
        assert_eq!(owned_rows_by_batch(&messages[1], 3, 1, 4).unwrap(), [&[3, 1][..], &[], &[0]]);
        assert_eq!(lists_by_batch(&rows_by_batch(&[], 1)[0], 0, 0).unwrap(), [] as [&[u32]; 0]);
    }

    #[test]
    fn other_lists_than_expected_are_refused_by_rank() {
        let refused = |numbers: &[u32], batches: usize| {
            let error = owned_rows_by_batch(&Message::of(numbers), batches, 7, 4).unwrap_err().to_string();
            assert!(error.contains("rank 7"), "{error}");
            error
        };
        // No list, too few, one that is cut off, and more than expected.
        for (numbers, batches) in [(&[][..], 1), (&[1, 0], 2), (&[2, 0], 1), (&[1, 0, 0], 1), (&[0], 0)] {
            assert!(refused(numbers, batches).contains(&format!("no lists of {batches} batches")));
        }
        assert!(refused(&[2, 3, 4], 1).contains("row 4, of 4 that this rank owns"));
        assert!(lists_by_batch(&Message::of(&[1u8, 0, 0]), 1, 7).is_err(), "bytes that are no numbers");
    }
}
