//! Versions of remote rows: one is started per epoch, an earlier one may be read.
//!
//! ```text
//! epoch      1   2   3   4   5   6
//! started    1   2   3   4   5   6
//! read       1   1   2   3   4   6     staleness 1; the first and the last epoch read fresh rows
//! ```

use std::collections::VecDeque;
use std::iter::Sum;
use std::sync::Arc;
use std::time::Duration;

use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_kernels::Real;
use halograph_nn::Matrix;
use halograph_nn::state::{State, Tensor};
use rayon::prelude::*;

use crate::error::Result;

/// Remote rows that were requested and may not have arrived yet.
pub trait Transfer {
    /// The rows that arrive.
    type Rows: RemoteRows;

    /// Blocks until all rows have arrived; returns them and the transfer time that overlapped with computation.
    fn finish(self) -> Result<(Self::Rows, Duration)>;
}

/// Rows received from other ranks. A clone shares their memory.
pub trait RemoteRows: Clone {
    /// Their floating-point type.
    type Number: Real;

    /// Returns zeros of the same shape.
    fn zeros_like(&self) -> Self;
    /// Moves every number by `share` of the way to that of `new`.
    fn blend(&mut self, new: &Self, share: Self::Number);
    /// Returns the error of reading these rows instead of the fresh ones.
    fn deviation(&self, fresh: &Self) -> Deviation;
    /// Returns the error of reading zeros instead of these rows.
    fn squared_norm(&self) -> Deviation;
    /// Returns all numbers as one matrix, for a checkpoint.
    fn to_matrix(&self) -> Arc<Matrix<Self::Number>>;
}

/// Squared error of rows that were read, and squared norm of those that should have been.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviation {
    /// Sum of squared differences.
    pub difference: f64,
    /// Sum of squares of the fresh rows.
    pub whole: f64,
}

/// Numbers summed by one task. Partial sums are added in order, so that the number of threads changes no bit.
const CHUNK: usize = 1 << 14;

impl Deviation {
    pub(super) fn between<T: Real>(read: &[T], fresh: &[T]) -> Self {
        let pair = |(a, b): (&T, &T)| Deviation {
            difference: (a.wide() - b.wide()).powi(2),
            whole: b.wide().powi(2),
        };
        let chunks = read.par_chunks(CHUNK).zip(fresh.par_chunks(CHUNK));
        let sums: Vec<Deviation> =
            chunks.map(|(read, fresh)| read.iter().zip(fresh).map(pair).sum()).collect();
        sums.into_iter().sum()
    }

    pub(super) fn of_zeros<T: Real>(fresh: &[T]) -> Self {
        let square = |b: &T| Deviation { difference: b.wide().powi(2), whole: b.wide().powi(2) };
        let chunks = fresh.par_chunks(CHUNK);
        let sums: Vec<Deviation> = chunks.map(|fresh| fresh.iter().map(square).sum()).collect();
        sums.into_iter().sum()
    }
}

impl Sum for Deviation {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Deviation::default(), |a, b| Deviation {
            difference: a.difference + b.difference,
            whole: a.whole + b.whole,
        })
    }
}

/// An exponential moving average (EMA) over versions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ema {
    /// The decay γ.
    pub decay: f64,
    /// Whether the average is bias-corrected; if not, it starts near zero.
    pub corrected: bool,
}

impl Ema {
    /// Returns the weight of version `number`, counted from 1, when it is added.
    fn weight(self, number: u64) -> f64 {
        let correction = if self.corrected { 1.0 - self.decay.powf(number as f64) } else { 1.0 };
        (1.0 - self.decay) / correction
    }
}

/// A version that is in flight or has arrived.
enum Version<X: Transfer> {
    InFlight(X),
    Arrived(X::Rows),
}

impl<X: Transfer> Version<X> {
    fn finish(self) -> Result<(X::Rows, Duration)> {
        match self {
            Version::Arrived(rows) => Ok((rows, Duration::ZERO)),
            Version::InFlight(transfer) => transfer.finish(),
        }
    }
}

/// The versions of the remote rows of one stage, in one direction.
pub struct VersionQueue<X: Transfer> {
    ema: Option<Ema>,
    /// Versions that later epochs read, each with its epoch.
    versions: VecDeque<(u64, Version<X>)>,
    /// The rows that a stale epoch reads: the newest version that is old enough, or the EMA up to it.
    stale: Option<X::Rows>,
    /// Number of versions in the EMA.
    averaged: u64,
    hidden: Duration,
}

impl<X: Transfer> VersionQueue<X> {
    /// Creates an empty queue.
    pub fn new(ema: Option<Ema>) -> Self {
        VersionQueue { ema, versions: VecDeque::new(), stale: None, averaged: 0, hidden: Duration::ZERO }
    }

    /// Adds the version of `epoch`. Epochs must be consecutive.
    pub fn start(&mut self, epoch: u64, transfer: X) {
        self.versions.push_back((epoch, Version::InFlight(transfer)));
    }

    /// Blocks until the newest version has arrived and returns it without averaging. With `keep`, later epochs may also
    /// read it.
    pub fn fresh(&mut self, keep: bool) -> Result<X::Rows> {
        let (epoch, newest) = self.versions.pop_back().expect("a version was started before it is read");
        let (rows, hidden) = newest.finish()?;
        self.hidden += hidden;
        if keep {
            self.versions.push_back((epoch, Version::Arrived(rows.clone())));
            self.settle(epoch)?;
        }
        Ok(rows)
    }

    /// Returns the version started `staleness` epochs before `epoch`, or the one read last if that is newer; `None` in
    /// the very first epoch. Blocks until it is here. `staleness` is at least 1.
    pub fn stale(&mut self, epoch: u64, staleness: u64) -> Result<Option<X::Rows>> {
        let version = |epoch: u64| epoch.saturating_sub(staleness).max(1).min(epoch - 1);
        self.settle(version(epoch))?;
        let is_last_use = self.versions.front().is_some_and(|(of, _)| *of <= version(epoch + 1));
        // Frees rows that are not read again.
        Ok(if is_last_use && self.ema.is_none() { self.stale.take() } else { self.stale.clone() })
    }

    /// Returns the error of `read` against the newest version. Blocks until that is here.
    pub fn deviation(&mut self, read: Option<&X::Rows>) -> Result<Deviation> {
        let (epoch, newest) = self.versions.pop_back().expect("a version was started before it is read");
        let (newest, _) = newest.finish()?;
        let deviation = read.map_or_else(|| newest.squared_norm(), |read| read.deviation(&newest));
        self.versions.push_back((epoch, Version::Arrived(newest)));
        Ok(deviation)
    }

    /// Returns the transfer time of fresh versions that overlapped with computation, since the last call.
    pub fn take_hidden(&mut self) -> Duration {
        std::mem::take(&mut self.hidden)
    }

    /// Makes all versions up to that of `epoch` part of what stale epochs read.
    fn settle(&mut self, epoch: u64) -> Result<()> {
        while self.versions.front().is_some_and(|(of, _)| *of <= epoch) {
            let (_, version) = self.versions.pop_front().expect("there is one");
            let (rows, _) = version.finish()?;
            self.averaged += 1;
            self.stale = Some(match self.ema {
                None => rows,
                Some(ema) => {
                    let mut average = self.stale.take().unwrap_or_else(|| rows.zeros_like());
                    average.blend(&rows, Real::of(ema.weight(self.averaged)));
                    average
                }
            });
        }
        Ok(())
    }

    /// Adds everything that later epochs read to `state`, under names starting with `name`. Blocks until it is here.
    pub fn save(&mut self, name: &str, state: &mut State) -> Result<()> {
        let mut put = |key: String, rows: &X::Rows| {
            let matrix = rows.to_matrix();
            state.0.insert(key, Tensor::real(&[matrix.rows(), matrix.cols()], matrix.data()));
        };
        if let Some(stale) = &self.stale {
            put(format!("{name}.old"), stale);
        }
        for _ in 0..self.versions.len() {
            let (epoch, version) = self.versions.pop_front().expect("as many as there are");
            let (rows, _) = version.finish()?;
            put(format!("{name}.epoch.{epoch}"), &rows);
            self.versions.push_back((epoch, Version::Arrived(rows)));
        }
        state.0.insert(format!("{name}.averaged"), Tensor::count(self.averaged));
        Ok(())
    }

    /// Restores what [`VersionQueue::save`] saved; `read` turns a saved matrix into rows, `place` names the checkpoint.
    pub fn load(
        &mut self,
        place: &str,
        name: &str,
        state: &State,
        read: impl Fn(Matrix<<X::Rows as RemoteRows>::Number>) -> InputResult<X::Rows>,
    ) -> InputResult<()> {
        let saved = state.part(&format!("{name}."));
        self.averaged = saved.count(place, "averaged")?;
        let rows = |key: &str, tensor: &Tensor| {
            let [rows, columns] = tensor.shape[..] else {
                return Err(InputError::input(place, format!("{name}.{key} does not have two axes"))
                    .help("another program wrote this checkpoint; start a new run"));
            };
            read(Matrix::new(rows, columns, saved.real(place, key, &[rows, columns])?))
        };
        let mut versions = Vec::new();
        for (key, tensor) in &saved.0 {
            if key == "old" {
                self.stale = Some(rows(key, tensor)?);
            } else if let Some(epoch) = key.strip_prefix("epoch.").and_then(|epoch| epoch.parse().ok()) {
                versions.push((epoch, Version::Arrived(rows(key, tensor)?)));
            }
        }
        versions.sort_by_key(|(epoch, _)| *epoch);
        self.versions = versions.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that has come.
    #[derive(Debug, Clone, PartialEq)]
    struct One(f64);

    impl RemoteRows for One {
        type Number = f64;

        fn zeros_like(&self) -> Self {
            One(0.0)
        }
        fn blend(&mut self, new: &Self, share: f64) {
            self.0 += share * (new.0 - self.0);
        }
        fn deviation(&self, fresh: &Self) -> Deviation {
            Deviation::between(&[self.0], &[fresh.0])
        }
        fn squared_norm(&self) -> Deviation {
            Deviation::of_zeros(&[self.0])
        }
        fn to_matrix(&self) -> Arc<Matrix<f64>> {
            Arc::new(Matrix::new(1, 1, vec![self.0]))
        }
    }

    impl Transfer for One {
        type Rows = One;

        fn finish(self) -> Result<(One, Duration)> {
            Ok((self, Duration::ZERO))
        }
    }

    /// What each epoch reads of versions that are their epochs' numbers.
    fn read(queue: &mut VersionQueue<One>, staleness: &[u64]) -> Vec<Option<f64>> {
        let one = |(i, &age): (usize, &u64)| {
            let epoch = i as u64 + 1;
            queue.start(epoch, One(epoch as f64));
            let read = if age == 0 { Some(queue.fresh(true)) } else { queue.stale(epoch, age).transpose() };
            read.map(|read| read.unwrap().0)
        };
        staleness.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_version_is_as_old_as_it_is_said_to_be() {
        let numbers = |all: &[u64]| all.iter().map(|&x| (x > 0).then_some(x as f64)).collect::<Vec<_>>();
        for (staleness, versions) in [
            (&[1, 1, 1, 1][..], &[0, 1, 2, 3][..]),
            (&[0, 1, 1, 1, 0, 0], &[1, 1, 2, 3, 5, 6]),
            (&[0, 3, 3, 3, 3, 3], &[1, 1, 1, 1, 2, 3]),
            (&[3, 3, 3, 3, 3], &[0, 1, 1, 1, 2]),
            // A fresh epoch leaves nothing older behind it.
            (&[0, 0, 2, 2, 0, 2], &[1, 2, 2, 2, 5, 5]),
        ] {
            assert_eq!(read(&mut VersionQueue::new(None), staleness), numbers(versions), "{staleness:?}");
        }
    }

    #[test]
    fn an_average_of_a_constant_is_known() {
        let (decay, c) = (0.95, 3.0);
        for corrected in [false, true] {
            let mut queue: VersionQueue<One> = VersionQueue::new(Some(Ema { decay, corrected }));
            for epoch in 1..200u64 {
                queue.start(epoch, One(c));
                let read = queue.stale(epoch, 1).unwrap();
                let versions = epoch as i32 - 1;
                let Some(One(read)) = read.filter(|_| versions > 0) else {
                    assert_eq!(versions, 0);
                    continue;
                };
                let expected = if corrected { c } else { c * (1.0 - decay.powi(versions)) };
                assert!((read - expected).abs() < 1e-12, "{corrected} {versions}: {read} is not {expected}");
            }
        }
    }

    #[test]
    fn what_is_saved_is_read_as_if_nothing_had_been() {
        let ema = Ema { decay: 0.5, corrected: true };
        for (ema, cut) in [None, Some(ema)].into_iter().flat_map(|s| (1..7).map(move |c| (s, c))) {
            let staleness = [0, 2, 2, 2, 2, 2, 2];
            let expected = read(&mut VersionQueue::new(ema), &staleness);
            let mut first = VersionQueue::new(ema);
            let mut found = read(&mut first, &staleness[..cut]);
            let mut state = State::default();
            first.save("3.features", &mut state).unwrap();
            let mut second: VersionQueue<One> = VersionQueue::new(ema);
            second.load("here", "3.features", &state, |m| Ok(One(m.data()[0]))).unwrap();
            for epoch in cut as u64 + 1..=7 {
                second.start(epoch, One(epoch as f64));
                found.push(second.stale(epoch, 2).unwrap().map(|one| one.0));
            }
            assert_eq!(found, expected, "{cut}");
        }
    }

    #[test]
    fn a_deviation_is_from_the_newest() {
        let mut queue: VersionQueue<One> = VersionQueue::new(None);
        queue.start(1, One(2.0));
        assert_eq!(queue.deviation(None).unwrap(), Deviation { difference: 4.0, whole: 4.0 });
        queue.start(2, One(5.0));
        let read = queue.stale(2, 1).unwrap();
        assert_eq!(queue.deviation(read.as_ref()).unwrap(), Deviation { difference: 9.0, whole: 25.0 });
    }
}
