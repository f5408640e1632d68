//! Versions of rows: one is started every epoch; which one is read is another question.
//!
//! ```text
//! epoch      1   2   3   4   5   6
//! started    1   2   3   4   5   6
//! read       1   1   2   3   4   6     an age of 1; the first epoch and the last are fresh
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

/// Something that was started in one epoch and may be taken in a later one.
pub trait Journey {
    /// What arrives.
    type Cargo: Cargo;

    /// Waits for it; gives also how long it travelled while something was computed.
    fn end(self) -> Result<(Self::Cargo, Duration)>;
}

/// Rows that have come from other ranks. A clone costs nothing.
pub trait Cargo: Clone {
    /// In what numbers.
    type Number: Real;

    /// As many zeros.
    fn blank(&self) -> Self;
    /// Moves every number by a share of the way to that of `new`.
    fn blend(&mut self, new: &Self, share: Self::Number);
    /// How far it is from what it should be.
    fn deviation(&self, from: &Self) -> Deviation;
    /// How far nothing at all is from it.
    fn size(&self) -> Deviation;
    /// All its numbers, to be saved.
    fn to_matrix(&self) -> Arc<Matrix<Self::Number>>;
}

/// How far numbers are from what they should be: sums of squares, of differences and of what should be.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviation {
    /// Of differences.
    pub difference: f64,
    /// Of what should be.
    pub whole: f64,
}

impl Deviation {
    pub(super) fn of<T: Real>(found: &[T], right: &[T]) -> Self {
        let pair = |(a, b): (&T, &T)| Deviation {
            difference: (a.wide() - b.wide()).powi(2),
            whole: b.wide().powi(2),
        };
        let chunks = found.par_chunks(CHUNK).zip(right.par_chunks(CHUNK));
        total(chunks.map(|(found, right)| found.iter().zip(right).map(pair).sum()).collect())
    }

    pub(super) fn whole<T: Real>(right: &[T]) -> Self {
        let square = |b: &T| Deviation { difference: b.wide().powi(2), whole: b.wide().powi(2) };
        total(right.par_chunks(CHUNK).map(|right| right.iter().map(square).sum()).collect())
    }
}

/// Numbers that are summed at once; what chunks give is added in their order, so that threads change no bit.
const CHUNK: usize = 1 << 14;

fn total(chunks: Vec<Deviation>) -> Deviation {
    chunks.into_iter().sum()
}

impl Sum for Deviation {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Deviation::default(), |a, b| Deviation {
            difference: a.difference + b.difference,
            whole: a.whole + b.whole,
        })
    }
}

/// An average over versions in which each counts `decay` times as much as the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing {
    /// What is left of a version when the next one comes.
    pub decay: f64,
    /// Whether the weights of the versions there are add up to 1. If not, the average begins near zero.
    pub corrected: bool,
}

impl Smoothing {
    /// What part of the way to the version of this number, counted from 1, the average goes.
    fn share(self, number: u64) -> f64 {
        let all = if self.corrected { 1.0 - self.decay.powf(number as f64) } else { 1.0 };
        (1.0 - self.decay) / all
    }
}

/// A version: under way, or here.
enum Version<J: Journey> {
    Travelling(J),
    Here(J::Cargo),
}

impl<J: Journey> Version<J> {
    fn arrive(self) -> Result<(J::Cargo, Duration)> {
        match self {
            Version::Here(cargo) => Ok((cargo, Duration::ZERO)),
            Version::Travelling(journey) => journey.end(),
        }
    }
}

/// The versions of what one layer reads of other ranks, in one direction.
pub struct Line<J: Journey> {
    smoothing: Option<Smoothing>,
    /// Those that are to be read in later epochs, by the epochs they are of.
    versions: VecDeque<(u64, Version<J>)>,
    /// What is read of epochs before: the version that is old enough, or the average up to it.
    old: Option<J::Cargo>,
    /// How many versions are in the average.
    averaged: u64,
    hidden: Duration,
}

impl<J: Journey> Line<J> {
    /// Nothing is under way.
    pub fn new(smoothing: Option<Smoothing>) -> Self {
        Line { smoothing, versions: VecDeque::new(), old: None, averaged: 0, hidden: Duration::ZERO }
    }

    /// Adds the version of `epoch`. Epochs must follow one another.
    pub fn start(&mut self, epoch: u64, journey: J) {
        self.versions.push_back((epoch, Version::Travelling(journey)));
    }

    /// The newest version, when it is here; no average. With `keep`, later epochs may read it too.
    pub fn fresh(&mut self, keep: bool) -> Result<J::Cargo> {
        let (epoch, newest) = self.versions.pop_back().expect("a version was started before it is read");
        let (cargo, hidden) = newest.arrive()?;
        self.hidden += hidden;
        if keep {
            self.versions.push_back((epoch, Version::Here(cargo.clone())));
            self.settle(epoch)?;
        }
        Ok(cargo)
    }

    /// What was started `age` epochs before `epoch`, or what was read last, if that is newer; nothing in the very first
    /// epoch. `age` is at least 1.
    pub fn stale(&mut self, epoch: u64, age: u64) -> Result<Option<J::Cargo>> {
        let version = |epoch: u64| epoch.saturating_sub(age).max(1).min(epoch - 1);
        self.settle(version(epoch))?;
        let is_last = self.versions.front().is_some_and(|(of, _)| *of <= version(epoch + 1));
        // What nobody will read again need not be kept.
        Ok(if is_last && self.smoothing.is_none() { self.old.take() } else { self.old.clone() })
    }

    /// How far `read` is from the newest version, for which it waits.
    pub fn deviation(&mut self, read: Option<&J::Cargo>) -> Result<Deviation> {
        let (epoch, newest) = self.versions.pop_back().expect("a version was started before it is read");
        let (newest, _) = newest.arrive()?;
        let deviation = read.map_or_else(|| newest.size(), |read| read.deviation(&newest));
        self.versions.push_back((epoch, Version::Here(newest)));
        Ok(deviation)
    }

    /// How long fresh versions travelled while something was computed, since this was asked before.
    pub fn take_hidden(&mut self) -> Duration {
        std::mem::take(&mut self.hidden)
    }

    /// Lets all versions up to that of `epoch` become what is read.
    fn settle(&mut self, epoch: u64) -> Result<()> {
        while self.versions.front().is_some_and(|(of, _)| *of <= epoch) {
            let (_, version) = self.versions.pop_front().expect("there is one");
            let (cargo, _) = version.arrive()?;
            self.averaged += 1;
            self.old = Some(match self.smoothing {
                None => cargo,
                Some(smoothing) => {
                    let mut average = self.old.take().unwrap_or_else(|| cargo.blank());
                    average.blend(&cargo, Real::of(smoothing.share(self.averaged)));
                    average
                }
            });
        }
        Ok(())
    }

    /// Waits for all versions and puts all that later epochs will read into `state`, under names that begin with `name`.
    pub fn save(&mut self, name: &str, state: &mut State) -> Result<()> {
        let mut put = |key: String, cargo: &J::Cargo| {
            let matrix = cargo.to_matrix();
            state.0.insert(key, Tensor::real(&[matrix.rows(), matrix.cols()], matrix.data()));
        };
        if let Some(old) = &self.old {
            put(format!("{name}.old"), old);
        }
        for _ in 0..self.versions.len() {
            let (epoch, version) = self.versions.pop_front().expect("as many as there are");
            let (cargo, _) = version.arrive()?;
            put(format!("{name}.epoch.{epoch}"), &cargo);
            self.versions.push_back((epoch, Version::Here(cargo)));
        }
        state.0.insert(format!("{name}.averaged"), Tensor::count(self.averaged));
        Ok(())
    }

    /// Takes what was saved; `read` makes what arrives of its numbers.
    pub fn load(
        &mut self,
        place: &str,
        name: &str,
        state: &State,
        read: impl Fn(Matrix<<J::Cargo as Cargo>::Number>) -> InputResult<J::Cargo>,
    ) -> InputResult<()> {
        let saved = state.part(&format!("{name}."));
        self.averaged = saved.count(place, "averaged")?;
        let cargo = |key: &str, tensor: &Tensor| {
            let [rows, columns] = tensor.shape[..] else {
                return Err(InputError::input(place, format!("{name}.{key} does not have two axes"))
                    .help("another program wrote this checkpoint; start a new run"));
            };
            read(Matrix::new(rows, columns, saved.real(place, key, &[rows, columns])?))
        };
        let mut versions = Vec::new();
        for (key, tensor) in &saved.0 {
            if key == "old" {
                self.old = Some(cargo(key, tensor)?);
            } else if let Some(epoch) = key.strip_prefix("epoch.").and_then(|epoch| epoch.parse().ok()) {
                versions.push((epoch, Version::Here(cargo(key, tensor)?)));
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

    impl Cargo for One {
        type Number = f64;

        fn blank(&self) -> Self {
            One(0.0)
        }
        fn blend(&mut self, new: &Self, share: f64) {
            self.0 += share * (new.0 - self.0);
        }
        fn deviation(&self, from: &Self) -> Deviation {
            Deviation::of(&[self.0], &[from.0])
        }
        fn size(&self) -> Deviation {
            Deviation::whole(&[self.0])
        }
        fn to_matrix(&self) -> Arc<Matrix<f64>> {
            Arc::new(Matrix::new(1, 1, vec![self.0]))
        }
    }

    impl Journey for One {
        type Cargo = One;

        fn end(self) -> Result<(One, Duration)> {
            Ok((self, Duration::ZERO))
        }
    }

    /// What each epoch reads of versions that are their epochs' numbers.
    fn read(line: &mut Line<One>, ages: &[u64]) -> Vec<Option<f64>> {
        let one = |(i, &age): (usize, &u64)| {
            let epoch = i as u64 + 1;
            line.start(epoch, One(epoch as f64));
            let read = if age == 0 { Some(line.fresh(true)) } else { line.stale(epoch, age).transpose() };
            read.map(|read| read.unwrap().0)
        };
        ages.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_version_is_as_old_as_it_is_said_to_be() {
        let numbers = |all: &[u64]| all.iter().map(|&x| (x > 0).then_some(x as f64)).collect::<Vec<_>>();
        for (ages, versions) in [
            (&[1, 1, 1, 1][..], &[0, 1, 2, 3][..]),
            (&[0, 1, 1, 1, 0, 0], &[1, 1, 2, 3, 5, 6]),
            (&[0, 3, 3, 3, 3, 3], &[1, 1, 1, 1, 2, 3]),
            (&[3, 3, 3, 3, 3], &[0, 1, 1, 1, 2]),
            // A fresh epoch leaves nothing older behind it.
            (&[0, 0, 2, 2, 0, 2], &[1, 2, 2, 2, 5, 5]),
        ] {
            assert_eq!(read(&mut Line::new(None), ages), numbers(versions), "{ages:?}");
        }
    }

    #[test]
    fn an_average_of_a_constant_is_known() {
        let (decay, c) = (0.95, 3.0);
        for corrected in [false, true] {
            let mut line: Line<One> = Line::new(Some(Smoothing { decay, corrected }));
            for epoch in 1..200u64 {
                line.start(epoch, One(c));
                let read = line.stale(epoch, 1).unwrap();
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
        let smoothing = Smoothing { decay: 0.5, corrected: true };
        for (smoothing, cut) in [None, Some(smoothing)].into_iter().flat_map(|s| (1..7).map(move |c| (s, c)))
        {
            let ages = [0, 2, 2, 2, 2, 2, 2];
            let expected = read(&mut Line::new(smoothing), &ages);
            let mut first = Line::new(smoothing);
            let mut found = read(&mut first, &ages[..cut]);
            let mut state = State::default();
            first.save("3.features", &mut state).unwrap();
            let mut second: Line<One> = Line::new(smoothing);
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
        let mut line: Line<One> = Line::new(None);
        line.start(1, One(2.0));
        assert_eq!(line.deviation(None).unwrap(), Deviation { difference: 4.0, whole: 4.0 });
        line.start(2, One(5.0));
        let read = line.stale(2, 1).unwrap();
        assert_eq!(line.deviation(read.as_ref()).unwrap(), Deviation { difference: 9.0, whole: 25.0 });
    }
}
