//! Epochs and scores of a rank together with the others.

use halograph_comm::{Message, Purpose, Tag};
use halograph_graph::dataset::Metric;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::metrics::{counts, score, share};
use halograph_nn::state::State;
use halograph_nn::{Matrix, Model};
use rayon::prelude::*;

use super::Fault;
use super::meter::Meter;
use crate::boundary::Deviation;
use crate::data::Rows;
use crate::data::part::Part;
use crate::error::Result;
use crate::event::{Scores, Staleness};
use crate::loss::loss;
use crate::strategy::engine::Engine;
use crate::strategy::partition::{self, Plan, Rank};
use crate::strategy::pipelined::Boundary;

/// A rank that computes its rows together with the others.
pub(super) struct Together<'p, T: Real> {
    pub part: &'p Part<'p, T>,
    pub plan: Plan<'p, T>,
    pub boundary: Boundary<T>,
    pub rank: Rank,
    pub metric: Metric,
    pub meter: Meter,
    pub fault: Option<Fault>,
}

impl<T: Real> Engine<T> for Together<'_, T> {
    fn epoch(&mut self, model: &mut Model<T>, number: u64, key: Key) -> Result<f64> {
        let Together { part, plan, boundary, rank, meter, fault, .. } = self;
        fault.map_or(Ok(()), |fault| fault.strike(&rank.comm, number))?;
        let epoch =
            partition::Epoch { rank, rows: &part.rows[0], count: part.counts[0], key, number: number as u32 };
        meter.measure(|| partition::epoch(model, plan, boundary, &epoch))
    }

    fn scores(&mut self, model: &Model<T>, number: u64) -> Result<Option<Scores>> {
        scores(self.part, &self.rank, self.metric, model, number)
    }

    fn agree(&mut self, flags: u8) -> Result<u8> {
        let tag = Tag::new(Purpose::Control).slot(6);
        let all = self.rank.comm.all_gather(tag, Message::of(&[flags]))?;
        all.iter().try_fold(0, |so_far, message| Ok(so_far | message.expect::<u8>(1)?[0]))
    }

    fn staleness(&mut self) -> Result<Option<Staleness>> {
        let found = self.boundary.deviations();
        if found.iter().flatten().all(Option::is_none) {
            return Ok(None);
        }
        let mut sums: Vec<f64> =
            found.iter().flatten().flatten().flat_map(|found| [found.difference, found.whole]).collect();
        self.rank.comm.all_reduce(Tag::new(Purpose::Control).slot(10), &mut sums)?;
        let mut pairs = sums.chunks_exact(2);
        let mut of = |found: Option<Deviation>| {
            let pair = found.and_then(|_| pairs.next())?;
            (pair[1] > 0.0).then(|| (pair[0] / pair[1]).sqrt())
        };
        let (features, gradients) = found.into_iter().map(|[f, g]| (of(f), of(g))).unzip();
        Ok(Some(Staleness { features, gradients }))
    }

    fn save(&mut self) -> Result<State> {
        self.boundary.save()
    }

    fn load(&mut self, place: &str, state: &State) -> Result<()> {
        Ok(self.boundary.load(place, state, &self.plan)?)
    }
}

/// Scores of `model` over the rows of all ranks; nothing if its outputs are not finite.
pub(super) fn scores<T: Real>(
    part: &Part<T>,
    rank: &Rank,
    metric: Metric,
    model: &Model<T>,
    number: u64,
) -> Result<Option<Scores>> {
    let (mut found, mut val_loss, mut finite) = ([None; 3], None, true);
    let tag = Tag::new(Purpose::Evaluation).epoch(number as u32);
    part.each_view(rank, model, |graph, view, shared, scored| {
        let logits = partition::evaluate(model, view, shared, rank, tag.slot(graph as u8))?.logits;
        finite &= logits.data().par_iter().all(|x| x.is_finite());
        for &which in scored {
            let (rows, count) = (&part.rows[which], part.counts[which]);
            found[which] = score_of(rank, metric, &logits, rows, count, tag.slot(8 + which as u8))?;
            if which == 1 && count > 0 {
                val_loss = Some(loss(&logits, rows, count).0);
            }
        }
        Ok(())
    })?;
    let mut total = [val_loss.unwrap_or(0.0), !finite as u8 as f64];
    rank.comm.all_reduce(tag.slot(12), &mut total)?;
    let [train, val, test] = found;
    let val_loss = val_loss.map(|_| total[0]);
    Ok((total[1] == 0.0).then_some(Scores { train, val, test, val_loss }))
}

/// The score of `rows` of all ranks, `count` together.
fn score_of<T: Real>(
    rank: &Rank,
    metric: Metric,
    logits: &Matrix<T>,
    rows: &Rows,
    count: u64,
    tag: Tag,
) -> Result<Option<f64>> {
    if count == 0 {
        return Ok(None);
    }
    if let Some((part, whole)) = counts(metric, logits, &rows.rows, rows.targets()) {
        // Whole numbers: exact far beyond any graph.
        let mut sums = [part as f64, whole as f64];
        rank.comm.all_reduce(tag, &mut sums)?;
        return Ok(Some(share((sums[0] as u64, sums[1] as u64))));
    }
    let (logits, rows) = rows.gathered(logits, &rank.comm, tag)?;
    Ok(score(metric, &logits, &rows.rows, rows.targets()))
}
