//! Evaluation: exact outputs and scores of a model, over every row, whatever strategy trained it.

use halograph_graph::dataset::Metric;
use halograph_kernels::Real;
use halograph_nn::metrics::{counts, ratio, score};
use halograph_nn::{Input, Matrix, Model};
use rayon::prelude::*;

use crate::boundary::{Fresh, Peers, RankLink};
use crate::data::{Data, Rows, Scored, ShardData, View};
use crate::error::{Error, Result};
use crate::event::Scores;
use crate::loss::loss;
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

/// Scores `model` on all parts of `data`; `None` if its outputs are not finite.
pub(crate) fn scores<T: Real>(model: &Model<T>, data: &Data<T>, keep: Keep) -> Result<Option<Scores>> {
    let metric = data.dataset().manifest.metric;
    let mut found = [None; 3];
    let (mut val_loss, mut finite) = (None, true);
    data.each_view(|view, parts| {
        if keep == Keep::InputAggregate {
            view.prepare(model, &StageBlock::local(view.block.clone()), None)?;
        }
        let logits = outputs(model, view)?.logits;
        finite &= is_finite(&logits);
        for &part in parts {
            let rows = &data.parts[part];
            found[part] = score(metric, &logits, &rows.rows, rows.targets());
            if part == 1 && !rows.rows.is_empty() {
                val_loss = Some(loss(&logits, rows, rows.count()).0);
            }
        }
        Ok::<_, Error>(())
    })?;
    let [train, val, test] = found;
    Ok(finite.then_some(Scores { train, val, test, val_loss }))
}

/// Scores `model` over the rows of all ranks; `None` if its outputs are not finite. Collective; blocks.
pub(crate) fn scores_on_ranks<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    link: &RankLink,
    epoch: u64,
) -> Result<Option<Scores>> {
    scores_of(model, data, link, epoch, |scored| {
        let peers = Peers::forward_only(link, Evaluation::Rows.tag(epoch, scored.graph));
        Ok(Some(outputs_on_ranks(model, scored.view, scored.block, peers)?.logits))
    })
}

/// Scores what `outputs` returns for each graph over the rows of all ranks; `None` if it is not finite, or if these ranks do
/// not compute the outputs of the model. Collective; blocks.
pub(crate) fn scores_of<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    link: &RankLink,
    epoch: u64,
    outputs: impl Fn(&Scored<T>) -> Result<Option<Matrix<T>>>,
) -> Result<Option<Scores>> {
    let (mut found, mut val_loss, mut finite) = ([None; 3], None, true);
    data.each_scored(link, model, |scored| {
        let Some(logits) = outputs(&scored)? else { return Ok(()) };
        finite &= is_finite(&logits);
        for &part in scored.parts {
            found[part] = score_on_ranks(data, part, &logits, link, epoch)?;
            if part == 1 && data.counts[part] > 0 {
                val_loss = Some(loss(&logits, &data.rows[part], data.counts[part]).0);
            }
        }
        Ok(())
    })?;
    let mut total = [val_loss.unwrap_or(0.0), !finite as u8 as f64];
    link.comm.all_reduce(Evaluation::Summary.tag(epoch, 0), &mut total)?;
    let [train, val, test] = found;
    let val_loss = val_loss.map(|_| total[0]);
    Ok((total[1] == 0.0).then_some(Scores { train, val, test, val_loss }))
}

/// Scores one part of the split over the rows of all ranks. Collective; blocks.
fn score_on_ranks<T: Real>(
    data: &ShardData<T>,
    part: usize,
    logits: &Matrix<T>,
    link: &RankLink,
    epoch: u64,
) -> Result<Option<f64>> {
    let (metric, rows): (Metric, &Rows) = (data.metric(), &data.rows[part]);
    if data.counts[part] == 0 {
        return Ok(None);
    }
    let tag = Evaluation::Score.tag(epoch, part as u8);
    if let Some((hits, all)) = counts(metric, logits, &rows.rows, rows.targets()) {
        // Whole numbers: exact far beyond the size of any graph.
        let mut sums = [hits as f64, all as f64];
        link.comm.all_reduce(tag, &mut sums)?;
        return Ok(Some(ratio((sums[0] as u64, sums[1] as u64))));
    }
    let (logits, rows) = rows.gathered(logits, &link.comm, tag)?;
    Ok(score(metric, &logits, &rows.rows, rows.targets()))
}

fn is_finite<T: Real>(logits: &Matrix<T>) -> bool {
    logits.data().par_iter().all(|x| x.is_finite())
}
