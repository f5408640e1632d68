//! Properties of `boundary::VersionQueue`, against a model that keeps every version.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use halograph_kernels::keyed::Key;
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix};
use halograph_train::Result;
use halograph_train::boundary::{
    Deviation, Ema, Exchange, RemoteRows, ReturnedGradients, Transfer, VersionQueue,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

const COLUMNS: usize = 3;

/// A version that arrives when somebody waits for it.
struct InFlight<R> {
    epoch: u64,
    rows: R,
    /// Epochs of all versions that were waited for.
    arrived: Rc<RefCell<Vec<u64>>>,
}

impl<R: RemoteRows> Transfer for InFlight<R> {
    type Rows = R;

    fn finish(self) -> Result<(R, Duration)> {
        self.arrived.borrow_mut().push(self.epoch);
        Ok((self.rows, Duration::ZERO))
    }
}

/// What happens in one epoch.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    is_fresh: bool,
    /// Whether stale rows are compared with fresh ones.
    measures: bool,
    saves: bool,
    /// Whether a new queue continues from what was saved.
    resumes: bool,
}

#[derive(Debug, Clone)]
struct Case {
    staleness: u64,
    ema: Option<Ema>,
    rows: usize,
    epochs: Vec<Epoch>,
    seed: u64,
}

/// Warm-up, stale epochs, cool-down, and more stale epochs: those of a resumed run.
fn cases() -> impl Strategy<Value = Case> {
    let lengths = (0usize..5, 0usize..14, 0usize..3, 0usize..6);
    let epochs = lengths.prop_flat_map(|(warmup, stale, cooldown, more)| {
        let is_fresh = [(warmup, true), (stale, false), (cooldown, true), (more, false)];
        let is_fresh: Vec<bool> =
            is_fresh.into_iter().flat_map(|(count, is)| std::iter::repeat_n(is, count)).collect();
        let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.25), any::<bool>());
        let epoch = |(is_fresh, (measures, saves, resumes))| Epoch { is_fresh, measures, saves, resumes };
        let count = is_fresh.len();
        (Just(is_fresh), vec(flags, count))
            .prop_map(move |(is_fresh, flags)| is_fresh.into_iter().zip(flags).map(epoch).collect::<Vec<_>>())
    });
    let decay = prop_oneof![Just(0.0), Just(0.95), 0.0..0.99f64];
    let ema = prop::option::of((decay, any::<bool>()));
    let ema = ema.prop_map(|ema| ema.map(|(decay, corrected)| Ema { decay, corrected }));
    let parts = (1u64..=4, ema, 0usize..4, epochs, any::<u64>());
    parts.prop_map(|(staleness, ema, rows, epochs, seed)| Case { staleness, ema, rows, epochs, seed })
}

/// Every version that there ever was.
struct Model<'c> {
    case: &'c Case,
    /// The newest version that stale epochs read.
    newest_read: u64,
    /// Epochs of the versions that somebody has waited for.
    arrived: BTreeSet<u64>,
}

impl Model<'_> {
    fn version(&self, epoch: u64) -> Matrix<f64> {
        let key = Key::new(self.case.seed, "version").with(epoch);
        let numbers = (0..(self.case.rows * COLUMNS) as u64).map(|i| key.unit(i) - 0.5).collect();
        Matrix::new(self.case.rows, COLUMNS, numbers)
    }

    fn read_up_to(&mut self, epoch: u64) {
        self.newest_read = self.newest_read.max(epoch);
        self.arrived.extend(1..=self.newest_read);
    }

    /// What a stale epoch reads: the newest version, or the EMA by its closed formula.
    fn stale(&mut self, epoch: u64) -> Option<Matrix<f64>> {
        if epoch > 1 {
            self.read_up_to(epoch.saturating_sub(self.case.staleness).max(1));
        }
        let newest = self.newest_read;
        let Some(Ema { decay, corrected }) = self.case.ema else {
            return (newest > 0).then(|| self.version(newest));
        };
        let weight = |version: u64| decay.powi((newest - version) as i32);
        let whole = if corrected { (1..=newest).map(weight).sum() } else { 1.0 / (1.0 - decay) };
        let mut average = Matrix::zeros(self.case.rows, COLUMNS);
        for version in 1..=newest {
            average.add_at(0, weight(version) / whole, &self.version(version));
        }
        (newest > 0).then_some(average)
    }
}

fn assert_close(found: &Matrix<f64>, expected: &Matrix<f64>, tolerance: f64, what: &str) {
    assert_eq!(found.data().len(), expected.data().len(), "{what}");
    for (a, b) in found.data().iter().zip(expected.data()) {
        assert!((a - b).abs() <= tolerance, "{what}: {a} is not {b}");
    }
}

fn squares(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum()
}

/// Runs all epochs of a case; `make` turns a matrix into rows.
fn check<R: RemoteRows<Number = f64>>(case: &Case, make: impl Fn(&Matrix<f64>) -> R) {
    let mut model = Model { case, newest_read: 0, arrived: BTreeSet::new() };
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let mut queue: VersionQueue<InFlight<R>> = VersionQueue::new(case.ema);
    // Without an average, rows are read as they were sent.
    let tolerance = if case.ema.is_some() { 1e-12 } else { 0.0 };
    for (epoch, of) in (1..).zip(&case.epochs) {
        let newest = model.version(epoch);
        queue.start(epoch, InFlight { epoch, rows: make(&newest), arrived: arrived.clone() });
        let what = format!("epoch {epoch}");
        if of.is_fresh {
            let read = queue.fresh(true).unwrap();
            model.read_up_to(epoch);
            assert_close(&read.to_matrix(), &newest, 0.0, &what);
        } else {
            let read = queue.stale(epoch, case.staleness).unwrap();
            let expected = model.stale(epoch);
            assert_eq!(read.is_some(), expected.is_some(), "{what}");
            if let (Some(read), Some(expected)) = (&read, &expected) {
                assert_close(&read.to_matrix(), expected, tolerance, &what);
            }
            if of.measures {
                let found = queue.deviation(read.as_ref()).unwrap();
                let expected = expected.unwrap_or_else(|| Matrix::zeros(case.rows, COLUMNS));
                let pairs = expected.data().iter().zip(newest.data());
                let whole = squares(newest.data().iter().copied());
                let difference = squares(pairs.map(|(a, b)| a - b));
                let Deviation { difference: found_difference, whole: found_whole } = found;
                assert!((found_difference - difference).abs() < 1e-12, "{what}: {found:?}");
                assert!((found_whole - whole).abs() < 1e-12, "{what}: {found:?}");
                model.arrived.insert(epoch);
            }
        }
        if of.saves {
            let mut state = State::default();
            queue.save("1.features", &mut state).unwrap();
            model.arrived.extend(1..=epoch);
            if of.resumes {
                let state = State::from_bytes("checkpoint", &state.to_bytes()).unwrap();
                queue = VersionQueue::new(case.ema);
                queue.load("checkpoint", "1.features", &state, |saved| Ok(make(&saved))).unwrap();
            }
        }
        // Nobody waits for rows before they are read, or twice.
        let mut waited = arrived.borrow().clone();
        waited.sort_unstable();
        assert!(waited.iter().eq(&model.arrived), "{what}: {waited:?} instead of {:?}", model.arrived);
    }
}

proptest! {
    #![proptest_config(properties(400))]

    #[test]
    fn halo_rows_are_as_old_as_the_schedule_says(case in cases()) {
        check(&case, |rows| Input::from(rows.clone()));
    }

    #[test]
    fn returned_gradients_are_as_old_as_the_schedule_says(case in cases()) {
        // Two of four ranks return rows.
        let (first, others) = (case.rows.min(1), case.rows - case.rows.min(1));
        let send_rows = vec![vec![], vec![0; first], (0..others as u32).collect(), vec![]];
        let exchange = Exchange::new(send_rows, vec![0; 4]);
        check(&case, |rows| -> ReturnedGradients<f64> { exchange.restore_gradients(rows) });
    }
}
