//! Exact scores: every group evaluates its stages on all rows of its way, one group after the other.

use halograph_comm::Message;
use halograph_kernels::Real;
use halograph_nn::metrics::class_counts::ClassCounts;
use halograph_nn::{Matrix, Model};

use super::grid::{Grid, StageLayout};
use super::handover::{Handover, Tags};
use crate::boundary::{Fresh, Peers};
use crate::data::{Scored, ShardData};
use crate::error::Result;
use crate::evaluation::{Detail, Evaluated, Found, scores_of};
use crate::stage::StageRunner;
use crate::tags::Evaluation;

/// Scores the model whose stages the groups have; `None` if its outputs are not finite. The same on all ranks, to the bit.
/// Collective; blocks.
pub(super) fn scores<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    grid: &Grid,
    layout: &StageLayout,
    (epoch, detail): (u64, Detail),
) -> Result<Option<Evaluated>> {
    let outputs = |scored: &Scored<T>| outputs(model, scored, grid, layout, epoch);
    let found = scores_of(model, data, &grid.link, (epoch, detail), outputs)?;
    let mut counts = Found::new(&data.objective, detail).counts;
    if let Some(counts) = &mut counts {
        let own = found.as_ref().and_then(|found| found.counts.as_ref());
        share_counts(counts, own, grid, epoch)?;
    }
    let found = grid.is_last().then(|| Message::of(&to_numbers(found)));
    let tag = Evaluation::Scores.tag(epoch, 0);
    let message = grid.column.broadcast(tag, grid.stages - 1, found)?;
    let found = from_numbers(message.expect::<f64>(NUMBERS)?);
    Ok(found.map(|found| Found { counts, ..found }.evaluated(&data.objective)))
}

/// Sets `counts` to `found`, the counts of the last group. Collective; blocks.
fn share_counts(
    counts: &mut [ClassCounts; 3],
    found: Option<&[ClassCounts; 3]>,
    grid: &Grid,
    epoch: u64,
) -> Result<()> {
    // Without finite outputs, counts of nothing: all messages have one length.
    let numbers = |counts: &[ClassCounts; 3]| {
        counts.iter().flat_map(ClassCounts::numbers).copied().collect::<Vec<u64>>()
    };
    let own = grid.is_last().then(|| Message::of(&numbers(found.unwrap_or(counts))));
    let tag = Evaluation::ClassCounts.tag(epoch, 0);
    let message = grid.column.broadcast(tag, grid.stages - 1, own)?;
    let mut numbers = message.expect::<u64>(counts.iter().map(|of| of.numbers().len()).sum())?.iter();
    counts.iter_mut().flat_map(ClassCounts::numbers_mut).zip(&mut numbers).for_each(|(to, from)| *to = *from);
    Ok(())
}

/// Evaluates the stages of this rank in a graph; returns logits in the last group. Blocks.
fn outputs<T: Real>(
    model: &Model<T>,
    scored: &Scored<T>,
    grid: &Grid,
    layout: &StageLayout,
    epoch: u64,
) -> Result<Option<Matrix<T>>> {
    let tag = |which: Evaluation| which.tag(epoch, scored.graph);
    let tags = Tags { rows: tag(Evaluation::StageRows), initial: tag(Evaluation::InitialRows) };
    let handover = Handover { grid, layout };
    let (view, block, mut halo) = (scored.view, scored.block, Fresh);
    let peers = Peers::forward_only(&grid.link, tag(Evaluation::Rows));
    let mut runner = StageRunner::new(None, view.block.ids(), Some(peers), &mut halo);
    let all = view.block.sources();
    let mut rows = match grid.is_first() {
        true => runner.input(model, view.input()),
        false => handover.receive_forward(tags, all, &runner, model)?,
    };
    runner.evaluate_stages(model, block, &mut rows)?;
    handover.send_forward(tags, all, &rows)?;
    Ok(grid.is_last().then(|| {
        rows.input = Default::default();
        std::sync::Arc::unwrap_or_clone(rows.output)
    }))
}

/// Numbers of [`to_numbers`].
const NUMBERS: usize = 9;

/// Returns scores as numbers: whether there are any, and each score after whether it is defined.
fn to_numbers(found: Option<Found>) -> [f64; NUMBERS] {
    let Some(Found { scores: [train, val, test], val_loss, .. }) = found else { return [0.0; NUMBERS] };
    let mut numbers = [1.0; NUMBERS];
    for (pair, score) in numbers[1..].chunks_exact_mut(2).zip([train, val, test, val_loss]) {
        pair.copy_from_slice(&[score.is_some() as u8 as f64, score.unwrap_or(0.0)]);
    }
    numbers
}

fn from_numbers(numbers: &[f64]) -> Option<Found> {
    let score = |which: usize| (numbers[1 + 2 * which] > 0.0).then_some(numbers[2 + 2 * which]);
    (numbers[0] > 0.0).then(|| Found { scores: [0, 1, 2].map(score), val_loss: score(3), counts: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_they_were_sent() {
        let scores = [Some(0.5), None, Some(0.0)];
        let sent = to_numbers(Some(Found { scores, val_loss: Some(-1.5), counts: None }));
        let found = from_numbers(&sent).expect("there are scores");
        assert_eq!((found.scores, found.val_loss), (scores, Some(-1.5)));
        assert!(from_numbers(&to_numbers(None)).is_none());
    }
}
