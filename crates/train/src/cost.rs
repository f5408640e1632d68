//! The cost model of communication: bytes that a step sends, from halo rows or exchanged rows × message widths.
//!
//! The partition report, the memory prediction and the byte tests all use it.

use halograph_graph::partition::{PartitionReport, SplitCost};
use halograph_nn::model::StageMessages;
use serde::Serialize;

/// Bytes of one number on the wire.
#[derive(Debug, Clone, Copy)]
pub struct NumberBytes {
    /// A feature that is sent once, in the type in which it is stored.
    pub features: u64,
    /// Any other number.
    pub activations: u64,
}

impl NumberBytes {
    /// Single precision throughout.
    pub const F32: Self = NumberBytes { features: 4, activations: 4 };
}

/// Bytes that one halo row of a stage costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowBytes {
    /// Sent to its reader in every step.
    pub features: u64,
    /// Sent back to its owner in every step.
    pub gradients: u64,
    /// Sent to its reader once, before the first step.
    pub setup: u64,
}

impl RowBytes {
    /// Returns the bytes of one halo row of each stage.
    pub fn of_stages(messages: &[StageMessages], numbers: NumberBytes) -> Vec<RowBytes> {
        let stage = |messages: &StageMessages| {
            let width = messages.width as u64;
            // Features with dropout are sent in the working precision.
            let forward = width * if messages.is_static { numbers.features } else { numbers.activations };
            RowBytes {
                features: if messages.is_static { 0 } else { forward },
                gradients: if messages.has_gradient { width * numbers.activations } else { 0 },
                setup: if messages.is_static { forward } else { 0 },
            }
        };
        messages.iter().map(stage).collect()
    }
}

/// Bytes that all ranks together send in one step of a full-graph strategy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepBytes {
    /// Boundary rows.
    pub features: u64,
    /// Gradients of halo rows.
    pub gradients: u64,
    /// Sums of weight gradients.
    pub weights: u64,
}

impl StepBytes {
    /// Returns the bytes of a step. `halo_rows`: halo rows of each stage, of all ranks together.
    pub fn new(rows: &[RowBytes], halo_rows: &[u64], parameter_bytes: u64, ranks: u64) -> Self {
        let sum = |of: fn(&RowBytes) -> u64| rows.iter().zip(halo_rows).map(|(row, n)| of(row) * n).sum();
        StepBytes {
            features: sum(|row| row.features),
            gradients: sum(|row| row.gradients),
            weights: all_reduce_bytes(parameter_bytes, ranks),
        }
    }
}

/// The boundary between two groups of consecutive stages on different ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// Rows that the stage before the boundary computes, of all ranks.
    pub rows: u64,
    /// Numbers sent per row: the width of that stage, and that of the initial stage if that is another one before it.
    pub width: u64,
}

/// Returns the bytes of activations that all ranks together send over boundaries between stages in one step; gradients are as
/// many. `number`: bytes of a number.
pub fn boundary_bytes(boundaries: &[Boundary], number: u64) -> u64 {
    boundaries.iter().map(|boundary| boundary.rows * boundary.width * number).sum()
}

/// Bytes that all ranks together send to sum a vector of `bytes` over `ranks` ranks.
pub fn all_reduce_bytes(bytes: u64, ranks: u64) -> u64 {
    2 * ranks.saturating_sub(1) * bytes
}

/// Boundary bytes of training on a partition, if every row of every stage is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionTraffic {
    /// Sent once, before the first epoch.
    pub setup_bytes: u64,
    /// Sent in each epoch: boundary rows forward, and their gradients back.
    pub bytes_per_epoch: u64,
    /// The same for each pair of parts, in the order of [`PartitionReport::pairs`].
    pub pair_bytes_per_epoch: Vec<u64>,
}

impl PartitionTraffic {
    /// Returns the traffic of a model with these messages, in single precision.
    pub fn of(report: &PartitionReport, messages: &[StageMessages]) -> Self {
        let rows = RowBytes::of_stages(messages, NumberBytes::F32);
        let [setup, step] = [
            rows.iter().map(|row| row.setup).sum::<u64>(),
            rows.iter().map(|row| row.features + row.gradients).sum::<u64>(),
        ];
        PartitionTraffic {
            setup_bytes: report.halo.saturating_mul(setup),
            bytes_per_epoch: report.halo.saturating_mul(step),
            pair_bytes_per_epoch: report.pairs.iter().map(|pair| pair.rows.saturating_mul(step)).collect(),
        }
    }
}

/// Returns the bytes that each part exchanges in a step of split-parallel training: hidden rows that it reads, and gradients
/// that it returns. In single precision; `messages`: those of the stages of the model.
pub fn split_step_bytes(cost: &SplitCost, messages: &[StageMessages]) -> Vec<f64> {
    let is_graph_layer = |messages: &&StageMessages| messages.width > 0;
    let stages: Vec<StageMessages> = messages.iter().filter(is_graph_layer).cloned().collect();
    let rows = RowBytes::of_stages(&stages, NumberBytes::F32);
    let mut bytes = vec![0.0; cost.work.len()];
    // Hop 1 is the last layer.
    for (parts, row) in cost.hops.iter().zip(rows.iter().rev()) {
        let row_bytes = (row.features + row.gradients) as f64;
        bytes.iter_mut().zip(parts).for_each(|(bytes, part)| *bytes += part.remote_rows * row_bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use halograph_graph::partition::cost::PartCost;
    use halograph_nn::Project;
    use halograph_nn::model::{Kind, Spec};

    #[test]
    fn unprojected_hidden_rows_cost_what_pipegcn_says() {
        let spec = Spec { layers: 4, hidden: 16, project: Project::Last, ..Spec::new(Kind::Sage) };
        let rows = RowBytes::of_stages(&spec.messages(10, 5), NumberBytes::F32);
        let step = StepBytes::new(&rows, &[100; 4], 40, 3);
        // 4 B Σ d over the layers above the first, in each direction.
        assert_eq!((step.features, step.gradients), (4 * 100 * 3 * 16, 4 * 100 * 3 * 16));
        assert_eq!((step.weights, rows[0].setup), (2 * 2 * 40, 40));
    }

    #[test]
    fn hop_1_of_a_split_step_sends_messages_of_the_last_layer() {
        let part = |remote_rows| PartCost { destinations: 1.0, edges: 1.0, remote_rows };
        let cost = SplitCost {
            steps: 1,
            hops: vec![vec![part(1.0), part(2.0)], vec![part(10.0), part(20.0)], vec![part(0.0); 2]],
            work: vec![1.0; 2],
            work_balance: 1.0,
            step_balance: 1.0,
        };
        let spec = Spec { layers: 3, hidden: 16, ..Spec::new(Kind::Sage) };
        // The last layer projects to 5 classes before it sends; forward and backward.
        let both = |rows: f64| 2.0 * 4.0 * rows;
        let expected = [both(5.0 + 160.0), both(10.0 + 320.0)];
        assert_eq!(split_step_bytes(&cost, &spec.messages(10, 5)), expected);
    }

    #[test]
    fn features_travel_once_in_their_own_precision_or_in_every_step() {
        let half = NumberBytes { features: 2, activations: 4 };
        let rows = |input_dropout| {
            let spec = Spec { input_dropout, project: Project::Last, ..Spec::new(Kind::Gcn) };
            RowBytes::of_stages(&spec.messages(10, 5), half)
        };
        assert_eq!(rows(0.0)[0], RowBytes { features: 0, gradients: 0, setup: 20 });
        assert_eq!(rows(0.1)[0], RowBytes { features: 40, gradients: 0, setup: 0 });
        assert_eq!(rows(0.1)[1], RowBytes { features: 512, gradients: 512, setup: 0 });
    }
}
