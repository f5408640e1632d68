//! Ranks that own some of the stages: rows and gradients handed over between them give what one rank computes.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind, Spec};
use halograph_nn::{Matrix, Model};

use super::*;
use crate::boundary::Fresh;

const INDPTR: [u64; 7] = [0, 2, 5, 7, 10, 12, 12];
const INDICES: [u32; 12] = [1, 3, 0, 2, 3, 1, 4, 0, 1, 4, 2, 3];
const NODES: usize = 6;

fn noise(rows: usize, columns: usize) -> Matrix<f64> {
    let key = Key::new(3, "noise");
    Matrix::new(rows, columns, (0..(rows * columns) as u64).map(|i| key.unit(i) - 0.5).collect())
}

fn gradients(models: &[Model<f64>]) -> Vec<f64> {
    models.iter().flat_map(|model| model.params()).flat_map(|p| p.grad.clone()).collect()
}

/// Forward and backward with stages `cuts[i]..cuts[i + 1]` owned by rank i; returns logits and all gradients.
fn run(spec: &Spec, cuts: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let key = Some(Key::new(1, "dropout"));
    let block = StageBlock::local(Arc::new(Block::whole(CsrView { indptr: &INDPTR, indices: &INDICES })));
    let restricted = |cut: &[usize]| Model::new(spec, 5, 3, 7).restricted_to(cut[0]..cut[1]);
    let mut models: Vec<Model<f64>> = cuts.windows(2).map(restricted).collect();
    let mut halo = Fresh;
    let mut runner = StageRunner::new(key, None, None, &mut halo);
    let features = ModelInput { features: noise(NODES, 5).into(), aggregate: None };
    let mut rows = runner.input(&models[0], features);
    let mut tapes = Vec::new();
    for model in &mut models {
        rows = Activations::received(rows.input, rows.initial);
        let mut tape = Tape::default();
        for index in model.indices() {
            runner.forward(model, index, &block, &mut rows, &mut tape).unwrap();
        }
        tapes.push(tape);
    }
    let logits = rows.output.data().to_vec();
    let mut grads = Gradients::of_loss(noise(NODES, 3));
    for (model, tape) in models.iter_mut().zip(&mut tapes).rev() {
        for index in model.indices().rev() {
            let goes_on = runner.backward(model, index, &block, tape, &mut grads).unwrap();
            assert_eq!(goes_on, index > 0, "stage {index} of {:?}", spec.kind);
        }
    }
    (logits, gradients(&models))
}

#[test]
fn stages_of_several_owners_compute_what_one_owner_does() {
    for kind in Kind::ALL {
        for norm in [NormKind::None, NormKind::Layer, NormKind::Batch] {
            let norm = if kind == Kind::Resgcn { NormKind::Layer } else { norm };
            let spec =
                Spec { hidden: 4, heads: 2, dropout: 0.4, input_dropout: 0.2, norm, ..Spec::new(kind) };
            let depth = Model::<f64>::new(&spec, 5, 3, 7).depth();
            let whole = run(&spec, &[0, depth]);
            for cut in 1..depth {
                assert_eq!(run(&spec, &[0, cut, depth]), whole, "{kind:?} {norm:?} cut at {cut}");
            }
            assert_eq!(run(&spec, &(0..=depth).collect::<Vec<_>>()), whole, "{kind:?}: an owner per stage");
        }
    }
}
