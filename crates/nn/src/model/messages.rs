//! The messages and the number of parameters of a model, derived from its sizes. No weight is allocated.

use super::{Model, Spec, Stage};
use crate::layer::Layer;
use crate::param::Param;

/// The message of one stage per boundary row, in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageMessages {
    /// Numbers in a message. 0: the stage reads no edges.
    pub width: usize,
    /// Whether messages are features that never change: they are sent once, not in every step.
    pub is_static: bool,
    /// Whether gradients of messages are sent back: not if nothing below the aggregation has a parameter.
    pub has_gradient: bool,
    /// Whether messages are the output of a ReLU and perhaps a dropout: see [`Model::sends_relu_output`].
    pub is_relu_output: bool,
}

/// The size of one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSize {
    /// Columns of the output.
    pub outputs: usize,
    /// Numbers of the weight matrices.
    pub weights: usize,
    /// Numbers of all parameters.
    pub parameters: usize,
    /// Whether later stages read the output as the initial representation.
    pub is_initial: bool,
}

impl Spec {
    /// Returns the size of each stage of such a model, from rows of `inputs` features to rows of `outputs` logits.
    pub fn stage_sizes(&self, inputs: usize, outputs: usize) -> Vec<StageSize> {
        let numbers = |p: &Param<f32>| p.shape.iter().product::<usize>();
        let size = |stage: &Stage<f32>| StageSize {
            outputs: Layer::output_width(&stage.layer),
            weights: stage.params().into_iter().filter(|p| p.shape.len() == 2).map(numbers).sum(),
            parameters: stage.params().into_iter().map(numbers).sum(),
            is_initial: stage.is_initial,
        };
        Model::outline(self, inputs, outputs).stages.iter().map(size).collect()
    }

    /// Returns the message of each stage of such a model, from rows of `inputs` features to rows of `outputs` logits.
    pub fn messages(&self, inputs: usize, outputs: usize) -> Vec<StageMessages> {
        sent(&Model::<f32>::outline(self, inputs, outputs))
    }

    /// Returns whether the first layer of such a model aggregates features that no step changes.
    pub fn has_static_input(&self) -> bool {
        // Does not depend on the number of features and classes.
        self.messages(1, 1)[0].is_static
    }

    /// Returns the number of trained parameters of such a model.
    pub fn parameters(&self, inputs: usize, outputs: usize) -> u128 {
        let size = |shape: &[usize]| shape.iter().map(|&n| n as u128).product::<u128>();
        Model::<f32>::outline(self, inputs, outputs).params().map(|p| size(&p.shape)).sum()
    }
}

fn sent(model: &Model<f32>) -> Vec<StageMessages> {
    let stage = |(index, stage): (usize, &Stage<f32>)| {
        let width = Layer::message_width(&stage.layer);
        StageMessages {
            width,
            is_static: index == 0 && stage.has_static_aggregate(),
            has_gradient: width > 0 && (index > 0 || !Layer::aggregates_input(&stage.layer)),
            is_relu_output: model.sends_relu_output(index),
        }
    };
    model.stages.iter().enumerate().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ActivationKind, Kind};
    use super::*;
    use crate::layer::Project;

    #[test]
    fn an_outline_has_the_messages_and_parameters_of_the_model() {
        for kind in Kind::ALL {
            for project in [Project::Auto, Project::First, Project::Last] {
                for (layers, linear_layers, output_heads) in [(1, 0, 0), (3, 0, 0), (3, 0, 5), (4, 2, 2)] {
                    for (inputs, input_dropout) in [(3, 0.0), (40, 0.0), (40, 0.2)] {
                        let linear_layers = if kind.uses("linear_layers") { linear_layers } else { 0 };
                        let spec = Spec { hidden: 8, heads: 2, layers, project, ..Spec::new(kind) };
                        let spec = Spec { linear_layers, output_heads, input_dropout, ..spec };
                        spec.check().unwrap();
                        let model = Model::<f32>::new(&spec, inputs, 7, 1);
                        assert_eq!(spec.messages(inputs, 7), sent(&model), "{spec:?}");
                        let parameters = model.params().map(|p| p.value.len() as u128).sum::<u128>();
                        assert_eq!(spec.parameters(inputs, 7), parameters, "{spec:?}");
                        assert_eq!(spec.hops(), model.hops(), "{spec:?}");
                        let sizes = spec.stage_sizes(inputs, 7);
                        assert_eq!(
                            sizes.iter().map(|size| size.parameters as u128).sum::<u128>(),
                            parameters
                        );
                        assert_eq!(sizes[sizes.len() - 1].outputs, 7, "{spec:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn messages_are_as_wide_as_the_narrower_side() {
        let message = |width, is_static, has_gradient| StageMessages {
            width,
            is_static,
            has_gradient,
            is_relu_output: false,
        };
        let spec = Spec { hidden: 8, heads: 2, ..Spec::new(Kind::Sage) };
        let hidden = StageMessages { is_relu_output: true, ..message(8, false, true) };
        let last = [hidden, message(7, false, true)];
        // Features that are never dropped are aggregated once, however wide they are.
        assert_eq!(spec.messages(40, 7), [&[message(40, true, false)], &last[..]].concat());
        let sparse = Spec { sparse_input: true, ..spec.clone() };
        assert_eq!(sparse.messages(40, 7), [&[message(8, false, true)], &last[..]].concat());
        assert!(spec.has_static_input() && !sparse.has_static_input());
        let dropped = Spec { input_dropout: 0.2, ..spec.clone() };
        assert_eq!(dropped.messages(40, 7), [&[message(8, false, true)], &last[..]].concat());
        // A GAT sends the projected row and a score of each head.
        let gat = Spec { kind: Kind::Gat, layers: 2, ..spec };
        assert_eq!(gat.messages(40, 7), [message(8 + 2, false, true), message(2 * 7 + 2, false, true)]);
    }

    #[test]
    fn rows_that_are_sent_as_a_relu_has_computed_them_are_known() {
        let sent = |spec: Spec| -> Vec<bool> {
            let stages = spec.messages(40, 7);
            stages.iter().filter(|stage| stage.width > 0).map(|stage| stage.is_relu_output).collect()
        };
        let of = |kind| Spec { hidden: 8, ..Spec::new(kind) };
        for kind in [Kind::Gcn, Kind::Sage, Kind::Gin] {
            // The input is no output of a ReLU, and the last layer multiplies by its weights first.
            assert_eq!(sent(Spec { layers: 3, ..of(kind) }), [false, true, false], "{kind:?}");
            let last = Spec { project: Project::Last, layers: 3, ..of(kind) };
            assert_eq!(sent(last), [false, true, true], "{kind:?}");
            let first = Spec { project: Project::First, layers: 3, ..of(kind) };
            assert_eq!(sent(first), [false; 3], "{kind:?}");
        }
        assert_eq!(sent(Spec { layers: 3, ..of(Kind::Gat) }), [false; 3]);
        assert_eq!(sent(Spec { layers: 3, ..of(Kind::Gcnii) }), [true; 3]);
        // Blocks send the output of their own ReLU; before the first layer there is none.
        let resgcn = Spec { layers: 3, ..of(Kind::Resgcn) };
        assert_eq!(sent(resgcn.clone()), [false, true, true]);
        assert_eq!(sent(Spec { project: Project::First, ..resgcn.clone() }), [false; 3]);
        for spec in [resgcn, of(Kind::Gcnii), of(Kind::Sage)] {
            let smooth = Spec { activation: ActivationKind::Elu, ..spec };
            assert!(!sent(smooth).contains(&true));
        }
    }

    #[test]
    fn an_outline_of_the_largest_model_takes_no_memory() {
        for kind in Kind::ALL {
            let spec = Spec { layers: 10_000, hidden: 1_000_000, ..Spec::new(kind) };
            assert!(spec.parameters(1_000_000, 1_000_000) > 1 << 53, "{}", kind.name());
        }
    }
}
