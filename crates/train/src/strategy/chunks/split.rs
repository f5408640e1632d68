//! Which stages of a model each stage group computes: the split whose largest group costs least.

use std::ops::Range;

use halograph_graph::dataset::Manifest;
use halograph_nn::model::{Spec, StageMessages, StageSize};

/// Floating-point operations that take as long as moving one byte.
const FLOPS_PER_BYTE: f64 = 5.0;
/// Passes over the output of a stage, forward and backward together.
const ROW_PASSES: f64 = 8.0;

/// Bytes of a number.
const NUMBER: f64 = 4.0;

/// Returns the modelled cost of a step of each stage of a model on a dataset, in bytes moved: products, aggregation, and
/// passes over rows.
pub fn stage_costs(spec: &Spec, dataset: &Manifest) -> Vec<f64> {
    let (nodes, edges) = (dataset.nodes as f64, dataset.edges as f64);
    let (inputs, outputs) = (dataset.features as usize, dataset.classes as usize);
    let messages = spec.messages(inputs, outputs);
    let stages = spec.stage_sizes(inputs, outputs).into_iter().zip(messages).enumerate();
    let cost = |(index, (size, messages)): (usize, (StageSize, StageMessages))| {
        // Forward and gradient of the weight; the gradient of the input is not needed in the first stage.
        let products = if index == 0 { 2.0 } else { 3.0 };
        let product = match dataset.feature_values.filter(|_| index == 0) {
            // A stored value reads a row of each weight.
            Some(values) => values as f64 * (size.weights / inputs.max(1)) as f64 * NUMBER,
            None => 2.0 * nodes * size.weights as f64 / FLOPS_PER_BYTE,
        };
        let dense = products * product;
        let directions =
            if messages.is_static { 0.0 } else { 1.0 + f64::from(u8::from(messages.has_gradient)) };
        let sparse = directions * edges * messages.width as f64 * NUMBER;
        dense + sparse + ROW_PASSES * nodes * size.outputs as f64 * NUMBER
    };
    stages.map(cost).collect()
}

/// Splits stages into `groups` runs of at least one stage; the largest sum of costs of a run is the least possible.
///
/// # Panics
/// If there are fewer stages than groups.
pub fn split(costs: &[f64], groups: usize) -> Vec<Range<usize>> {
    assert!((1..=costs.len()).contains(&groups), "{groups} groups of {} stages", costs.len());
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(costs.iter().scan(0.0, |sum, cost| {
            *sum += cost;
            Some(*sum)
        }))
        .collect();
    // best[end]: the least largest sum of the stages before `end`, in so many groups; from[g][end]: start of the last one.
    let mut best = sums.clone();
    let mut from = vec![vec![0; costs.len() + 1]];
    for group in 1..groups {
        let cheapest = |end: usize| {
            let largest = |start: usize| best[start].max(sums[end] - sums[start]);
            // `best` rises with the start and the last sum falls: the optimum is where they cross.
            let at = first_not(group..end, |start| best[start] < sums[end] - sums[start]);
            let near = [at.saturating_sub(1).max(group), at.min(end - 1)];
            let start = if largest(near[0]) <= largest(near[1]) { near[0] } else { near[1] };
            (largest(start), start)
        };
        let of = |end| if end > group { cheapest(end) } else { (f64::INFINITY, 0) };
        let (next, starts) = (0..=costs.len()).map(of).unzip();
        best = next;
        from.push(starts);
    }
    let (mut runs, mut end) = (Vec::new(), costs.len());
    for starts in from.iter().rev() {
        runs.push(starts[end]..end);
        end = starts[end];
    }
    runs.reverse();
    runs
}

/// Returns the first number of `range` for which `holds` does not hold, or its end; `holds` must not hold again after it.
fn first_not(mut range: Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    while !range.is_empty() {
        let middle = range.start + range.len() / 2;
        range = if holds(middle) { middle + 1..range.end } else { range.start..middle };
    }
    range.start
}

#[cfg(test)]
mod tests {
    use super::*;
    use halograph_kernels::keyed::Key;

    fn largest(costs: &[f64], runs: &[Range<usize>]) -> f64 {
        runs.iter().map(|run| costs[run.clone()].iter().sum::<f64>()).fold(0.0, f64::max)
    }

    /// The least largest sum, by trying every split.
    fn least(costs: &[f64], groups: usize) -> f64 {
        if groups == 1 {
            return costs.iter().sum();
        }
        let rest = |first: usize| least(&costs[first..], groups - 1);
        let tries =
            (1..=costs.len() + 1 - groups).map(|first| costs[..first].iter().sum::<f64>().max(rest(first)));
        tries.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_split_has_a_smaller_largest_group() {
        let key = Key::new(1, "costs");
        for case in 0..200 {
            let stages = 1 + key.below(2 * case, 9) as usize;
            let costs: Vec<f64> = (0..stages as u64).map(|i| key.with(case).below(i, 20) as f64).collect();
            for groups in 1..=stages {
                let runs = split(&costs, groups);
                assert_eq!(runs.len(), groups);
                assert!(runs.iter().all(|run| !run.is_empty()), "{runs:?}");
                assert_eq!((runs[0].start, runs[groups - 1].end), (0, stages));
                assert!(runs.windows(2).all(|pair| pair[0].end == pair[1].start), "{runs:?}");
                assert_eq!(largest(&costs, &runs), least(&costs, groups), "{costs:?} in {groups}: {runs:?}");
            }
        }
    }
}
