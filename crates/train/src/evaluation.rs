//! Evaluation: exact outputs and scores of a model, over every row, whatever strategy trained it.

use halograph_comm::Tag;
use halograph_graph::dataset::{Metric, Task};
use halograph_kernels::Real;
use halograph_nn::metrics::class_counts::ClassCounts;
use halograph_nn::metrics::{counts, score};
use halograph_nn::{Input, Matrix, Model};
use rayon::prelude::*;

use crate::boundary::{Fresh, Peers, RankLink};
use crate::class_report::ClassReport;
use crate::data::{Data, Rows, Scored, ShardData, View};
use crate::error::{Error, Result};
use crate::event::Scores;
use crate::loss::loss;
use crate::objective::Objective;
use crate::stage::{Outputs, StageBlock, StageRunner};
use crate::tags::Evaluation;

/// Evaluates `model` on all rows of a view that this process holds whole, layer by layer: besides the features, the input and
/// the output of one layer are in memory.
pub fn outputs<T: Real>(model: &Model<T>, view: &View<T>) -> Result<Outputs<T>> {
    let block = StageBlock::local(view.block.clone());
    let mut halo = Fresh;
    StageRunner::new(None, view.block.ids(), None, &mut halo).evaluate_model(model, &block, view.input())
}

/// Returns the output of stage number `count` of `model`, counted from 1, on all rows of a view that this process holds whole.
pub(crate) fn stage_output<T: Real>(model: &Model<T>, view: &View<T>, count: usize) -> Result<Input<T>> {
    let block = StageBlock::local(view.block.clone());
    let mut halo = Fresh;
    StageRunner::new(None, view.block.ids(), None, &mut halo).evaluate_prefix(
        model,
        &block,
        view.input(),
        count,
    )
}

/// Returns the output of stage number `count` of `model`, counted from 1, on the rows of a prepared view that this rank owns.
/// Collective; blocks.
pub(crate) fn stage_output_on_ranks<T: Real>(
    model: &Model<T>,
    view: &View<T>,
    block: &StageBlock,
    peers: Peers,
    count: usize,
) -> Result<Input<T>> {
    let mut halo = Fresh;
    let mut runner = StageRunner::new(None, view.block.ids(), Some(peers), &mut halo);
    runner.evaluate_prefix(model, block, view.input(), count)
}

/// Evaluates `model` on the rows of a prepared view that this rank owns. Collective; blocks.
pub(crate) fn outputs_on_ranks<T: Real>(
    model: &Model<T>,
    view: &View<T>,
    block: &StageBlock,
    peers: Peers,
) -> Result<Outputs<T>> {
    let mut halo = Fresh;
    let mut runner = StageRunner::new(None, view.block.ids(), Some(peers), &mut halo);
    runner.evaluate_model(model, block, view.input())
}

/// Whether an evaluation keeps what the next one needs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The first stage's aggregate of the features.
    InputAggregate,
    /// Nothing.
    Nothing,
}

/// How much an evaluation finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The scores of the run's metric.
    Scores,
    /// Also the scores of single classes.
    Classes,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// Scores by the metric of the run.
    pub scores: Scores,
    /// Scores of single classes, if asked for.
    pub classes: Option<ClassReport>,
}

/// Scores `model` on all parts of `data`; `None` if its outputs are not finite.
pub(crate) fn scores<T: Real>(
    model: &Model<T>,
    data: &Data<T>,
    keep: Keep,
    detail: Detail,
) -> Result<Option<Evaluated>> {
    let objective = &data.objective;
    let mut found = Found::new(objective, detail);
    let mut finite = true;
    data.each_view(|view, parts| {
        if keep == Keep::InputAggregate {
            view.prepare(model, &StageBlock::local(view.block.clone()), None)?;
        }
        let logits = outputs(model, view)?.logits;
        finite &= is_finite(&logits);
        for &part in parts {
            let rows = &data.parts[part];
            found.scores[part] = score(objective.metric, &logits, &rows.rows, rows.targets());
            if let Some(counts) = &mut found.counts {
                counts[part] = ClassCounts::of(&logits, &rows.rows, rows.targets(), true);
            }
            if part == 1 && !rows.rows.is_empty() {
                found.val_loss =
                    Some(loss(&logits, rows, objective.weights(), rows.divisor(objective.weights())).0);
            }
        }
        Ok::<_, Error>(())
    })?;
    Ok(finite.then(|| found.evaluated(objective)))
}

/// The scores of training, validation and test rows, as far as they are known.
pub(crate) struct Found {
    pub scores: [Option<f64>; 3],
    pub val_loss: Option<f64>,
    /// Counts by class, if asked for.
    pub counts: Option<[ClassCounts; 3]>,
}

impl Found {
    pub fn new(objective: &Objective, detail: Detail) -> Self {
        let none = || ClassCounts::none(objective.classes, objective.task == Task::SingleLabel, true);
        let counts = (detail == Detail::Classes).then(|| [none(), none(), none()]);
        Found { scores: [None; 3], val_loss: None, counts }
    }

    pub fn evaluated(self, objective: &Objective) -> Evaluated {
        let Found { scores: [train, val, test], val_loss, counts } = self;
        let classes = counts.map(|counts| ClassReport::new(objective, &counts));
        Evaluated { scores: Scores { train, val, test, val_loss }, classes }
    }
}

/// Scores `model` over the rows of all ranks; `None` if its outputs are not finite. Collective; blocks.
pub(crate) fn scores_on_ranks<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    link: &RankLink,
    epoch: u64,
    detail: Detail,
) -> Result<Option<Evaluated>> {
    let found = scores_of(model, data, link, (epoch, detail), |scored| {
        let peers = Peers::forward_only(link, Evaluation::Rows.tag(epoch, scored.graph));
        Ok(Some(outputs_on_ranks(model, scored.view, scored.block, peers)?.logits))
    })?;
    Ok(found.map(|found| found.evaluated(&data.objective)))
}

/// Scores what `outputs` returns for each graph over the rows of all ranks; `None` if it is not finite. Nothing is found if
/// these ranks do not compute the outputs of the model. Collective; blocks.
pub(crate) fn scores_of<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    link: &RankLink,
    (epoch, detail): (u64, Detail),
    outputs: impl Fn(&Scored<T>) -> Result<Option<Matrix<T>>>,
) -> Result<Option<Found>> {
    let mut finite = true;
    let mut found = Found::new(&data.objective, detail);
    data.each_scored(link, model, |scored| {
        let Some(logits) = outputs(&scored)? else { return Ok(()) };
        finite &= is_finite(&logits);
        for &part in scored.parts {
            let rows = &data.rows[part];
            found.scores[part] = score_on_ranks(data, part, &logits, link, epoch)?;
            if let Some(counts) = &mut found.counts {
                counts[part] = ClassCounts::of(&logits, &rows.rows, rows.targets(), true);
                sum_over_ranks(counts[part].numbers_mut(), link, Evaluation::Score.tag(epoch, part as u8))?;
            }
            if part == 1 && data.counts[part] > 0 {
                found.val_loss = Some(loss(&logits, rows, data.objective.weights(), data.divisors[part]).0);
            }
        }
        Ok(())
    })?;
    let mut total = [found.val_loss.unwrap_or(0.0), !finite as u8 as f64];
    link.comm.all_reduce(Evaluation::Summary.tag(epoch, 0), &mut total)?;
    found.val_loss = found.val_loss.map(|_| total[0]);
    Ok((total[1] == 0.0).then_some(found))
}

/// Scores one part of the split over the rows of all ranks. Collective; blocks.
fn score_on_ranks<T: Real>(
    data: &ShardData<T>,
    part: usize,
    logits: &Matrix<T>,
    link: &RankLink,
    epoch: u64,
) -> Result<Option<f64>> {
    let (metric, rows): (Metric, &Rows) = (data.objective.metric, &data.rows[part]);
    if data.counts[part] == 0 {
        return Ok(None);
    }
    let tag = Evaluation::Score.tag(epoch, part as u8);
    if let Some(mut counts) = counts(metric, logits, &rows.rows, rows.targets()) {
        sum_over_ranks(counts.numbers_mut(), link, tag)?;
        return Ok(counts.score());
    }
    let (logits, rows) = rows.gathered(logits, &link.comm, tag)?;
    Ok(score(metric, &logits, &rows.rows, rows.targets()))
}

/// Adds the counts of all ranks. Collective; blocks.
fn sum_over_ranks(counts: &mut [u64], link: &RankLink, tag: Tag) -> Result<()> {
    // Whole numbers: exact far beyond the size of any graph.
    let mut sums: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    link.comm.all_reduce(tag, &mut sums)?;
    counts.iter_mut().zip(sums).for_each(|(count, sum)| *count = sum as u64);
    Ok(())
}

pub(crate) fn is_finite<T: Real>(logits: &Matrix<T>) -> bool {
    logits.data().par_iter().all(|x| x.is_finite())
}
