//! Exact scores: every group evaluates its stages on all rows of its way, one group after the other.

use halograph_comm::Message;
use halograph_kernels::Real;
use halograph_nn::{Matrix, Model};

use super::grid::{Grid, StageLayout};
use super::handover::{Handover, Tags};
use crate::boundary::{Fresh, Peers};
use crate::data::{Scored, ShardData};
use crate::error::Result;
use crate::evaluation::scores_of;
use crate::event::Scores;
use crate::stage::StageRunner;
use crate::tags::Evaluation;

/// Scores the model whose stages the groups have; `None` if its outputs are not finite. The same on all ranks, to the bit.
/// Collective; blocks.
pub(super) fn scores<T: Real>(
    model: &Model<T>,
    data: &ShardData<T>,
    grid: &Grid,
    layout: &StageLayout,
    epoch: u64,
) -> Result<Option<Scores>> {
    let outputs = |scored: &Scored<T>| outputs(model, scored, grid, layout, epoch);
    let found = scores_of(model, data, &grid.link, epoch, outputs)?;
    let found = grid.is_last().then(|| Message::of(&to_numbers(found)));
    let tag = Evaluation::Scores.tag(epoch, 0);
    let message = grid.column.broadcast(tag, grid.stages - 1, found)?;
    Ok(from_numbers(message.expect::<f64>(NUMBERS)?))
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
fn to_numbers(scores: Option<Scores>) -> [f64; NUMBERS] {
    let Some(Scores { train, val, test, val_loss }) = scores else { return [0.0; NUMBERS] };
    let mut numbers = [1.0; NUMBERS];
    for (pair, score) in numbers[1..].chunks_exact_mut(2).zip([train, val, test, val_loss]) {
        pair.copy_from_slice(&[score.is_some() as u8 as f64, score.unwrap_or(0.0)]);
    }
    numbers
}

fn from_numbers(numbers: &[f64]) -> Option<Scores> {
    let score = |which: usize| (numbers[1 + 2 * which] > 0.0).then_some(numbers[2 + 2 * which]);
    let [train, val, test, val_loss] = [0, 1, 2, 3].map(score);
    (numbers[0] > 0.0).then_some(Scores { train, val, test, val_loss })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_they_were_sent() {
        let scores = Scores { train: Some(0.5), val: None, test: Some(0.0), val_loss: Some(-1.5) };
        assert_eq!(from_numbers(&to_numbers(Some(scores))), Some(scores));
        assert_eq!(from_numbers(&to_numbers(None)), None);
    }
}
