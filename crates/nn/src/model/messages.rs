//! What the stages of a model send per boundary row: known from its sizes, without building it.

use super::{Kind, Spec};
use crate::layer::Project;

/// What one stage sends per boundary row in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageMessages {
    /// Numbers in a message; 0: the stage reads no edges.
    pub width: usize,
    /// Whether messages are features that never change: they travel once, not in every step.
    pub is_static: bool,
    /// Whether gradients of messages travel back: not if nothing below the aggregation has a parameter.
    pub has_gradient: bool,
}

impl StageMessages {
    const NONE: Self = StageMessages { width: 0, is_static: false, has_gradient: false };
}

impl Spec {
    /// Returns what each stage of such a model sends, from rows of `inputs` features to rows of `outputs` logits.
    pub fn messages(&self, inputs: usize, outputs: usize) -> Vec<StageMessages> {
        let hidden = StageMessages { width: self.hidden, is_static: false, has_gradient: true };
        match self.kind {
            Kind::Gcnii | Kind::Resgcn => {
                let ends = [StageMessages::NONE];
                ends.into_iter().chain(vec![hidden; self.layers]).chain(ends).collect()
            }
            _ => (0..self.layers).map(|index| self.stacked_messages(index, inputs, outputs)).collect(),
        }
    }

    fn stacked_messages(&self, index: usize, inputs: usize, outputs: usize) -> StageMessages {
        let is_last = index + 1 == self.layers;
        if index >= self.layers - self.linear_layers {
            return StageMessages::NONE;
        }
        let inputs = if index == 0 { inputs } else { self.hidden };
        let outputs = if is_last { outputs } else { self.hidden };
        if self.kind == Kind::Gat {
            let heads = self.heads_of(is_last);
            let width = if is_last { heads * outputs } else { outputs } + heads;
            return StageMessages { width, is_static: false, has_gradient: true };
        }
        let is_first = self.projects(index).is_first(inputs, outputs);
        StageMessages {
            width: if is_first { outputs } else { inputs },
            is_static: index == 0 && !is_first && self.input_dropout == 0.0,
            has_gradient: index > 0 || is_first,
        }
    }

    /// Returns the number of attention heads of a layer.
    pub(super) fn heads_of(&self, is_last: bool) -> usize {
        if is_last && self.output_heads > 0 { self.output_heads } else { self.heads }
    }

    /// Returns on which side of its aggregation a stage projects. An aggregate of features that are never dropped is the
    /// same in every step: computing it once is best, however wide.
    pub(super) fn projects(&self, index: usize) -> Project {
        let is_static = index == 0 && self.input_dropout == 0.0;
        if is_static && self.project == Project::Auto { Project::Last } else { self.project }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Model, Stage};
    use super::*;
    use crate::layer::Layer;

    fn sent((index, stage): (usize, &Stage<f32>)) -> StageMessages {
        if !stage.reads_edges() {
            return StageMessages::NONE;
        }
        StageMessages {
            width: Layer::message_width(&stage.layer),
            is_static: index == 0 && stage.has_static_aggregate(),
            has_gradient: index > 0 || !Layer::aggregates_input(&stage.layer),
        }
    }

    #[test]
    fn sizes_alone_tell_what_a_model_sends() {
        for kind in Kind::ALL {
            for project in [Project::Auto, Project::First, Project::Last] {
                for (layers, linear_layers, output_heads) in [(1, 0, 0), (3, 0, 0), (3, 0, 5), (4, 2, 2)] {
                    for (inputs, input_dropout) in [(3, 0.0), (40, 0.0), (40, 0.2)] {
                        let deep = matches!(kind, Kind::Gcnii | Kind::Resgcn);
                        let linear_layers = if deep { 0 } else { linear_layers };
                        let spec = Spec { hidden: 8, heads: 2, layers, project, ..Spec::new(kind) };
                        let spec = Spec { linear_layers, output_heads, input_dropout, ..spec };
                        spec.check().unwrap();
                        let model = Model::<f32>::new(&spec, inputs, 7, 1);
                        let built: Vec<_> = model.stages.iter().enumerate().map(sent).collect();
                        assert_eq!(spec.messages(inputs, 7), built, "{spec:?}");
                    }
                }
            }
        }
    }
}
