//! Whole models: every gradient against central differences, through norms, dropout and both losses.

mod common;

use std::sync::Arc;

use common::{backward, evaluate, forward};
use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::keyed::Key;
use halograph_kernels::loss::{bce_with_logits, cross_entropy};
use halograph_nn::Matrix;
use halograph_nn::model::{ActivationKind, Kind, Model, NormKind, Spec};

const INPUTS: usize = 5;
const CLASSES: usize = 3;
/// Rows of the loss: neither all nor in order, the isolated vertex among them.
const ROWS: [u32; 4] = [6, 0, 3, 4];

/// In-neighbours: undirected but for a self-loop at 3; 6 has no edges.
const INDPTR: [u64; 8] = [0, 3, 5, 8, 11, 13, 15, 15];
const INDICES: [u32; 15] = [1, 2, 4, 0, 2, 0, 1, 3, 2, 3, 5, 0, 5, 3, 4];

fn block() -> Block<'static> {
    Block::whole(CsrView { indptr: &INDPTR, indices: &INDICES })
}

fn noise(seed: u64, len: usize) -> Vec<f64> {
    let key = Key::new(seed, "test noise");
    (0..len as u64).map(|i| 2.0 * key.unit(i) - 1.0).collect()
}

fn features() -> Arc<Matrix<f64>> {
    let nodes = block().sources();
    Arc::new(Matrix::new(nodes, INPUTS, noise(0, nodes * INPUTS)))
}

#[derive(Clone, Copy)]
enum Loss {
    CrossEntropy,
    Binary,
}

impl Loss {
    fn of(self, logits: &Matrix<f64>) -> (f64, Matrix<f64>) {
        let mut grad = Matrix::zeros(logits.rows(), CLASSES);
        let (z, g, count) = (logits.data(), grad.data_mut(), ROWS.len() as u64);
        let loss = match self {
            Loss::CrossEntropy => cross_entropy(z, CLASSES, &ROWS, &[1, 0, 2, 1], count, g),
            Loss::Binary => {
                let targets = [1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1];
                bce_with_logits(z, CLASSES, &ROWS, &targets, count * CLASSES as u64, g)
            }
        };
        (loss, grad)
    }
}

/// Small, with everything that can be dropped dropped.
fn spec(kind: Kind) -> Spec {
    let norm = if kind == Kind::Resgcn { NormKind::Layer } else { NormKind::None };
    Spec {
        hidden: 4,
        heads: 2,
        dropout: 0.3,
        input_dropout: 0.2,
        attention_dropout: 0.25,
        norm,
        ..Spec::new(kind)
    }
}

/// A model whose biases and norms are not at their initial zeros and ones.
fn model(spec: &Spec) -> Model<f64> {
    spec.check().expect("a sound model");
    let mut model = Model::new(spec, INPUTS, CLASSES, 3);
    for (i, p) in model.params_mut().enumerate() {
        let noise = noise(100 + i as u64, p.value.len());
        p.value.iter_mut().zip(noise).for_each(|(v, n)| *v += 0.5 * n);
    }
    model
}

fn key() -> Option<Key> {
    Some(Key::new(7, "dropout").with(1))
}

/// Checks the gradient of every parameter against central differences of the loss.
#[track_caller]
fn check(spec: &Spec, loss: Loss) {
    const STEP: f64 = 2e-6;
    let (block, features) = (block(), features());
    let mut model = model(spec);
    let (logits, trace) = forward(&mut model, &block, features.clone(), key());
    backward(&mut model, &block, trace, loss.of(&logits).1);
    let places: Vec<(String, Vec<f64>)> = model.params().map(|p| (p.name.clone(), p.grad.clone())).collect();
    assert!(places.iter().any(|(_, grad)| grad.iter().any(|g| g.abs() > 1e-3)), "something is learnt");

    for (p, (name, grad)) in places.iter().enumerate() {
        for (i, got) in grad.iter().enumerate() {
            let mut at = |step: f64| {
                model.params_mut().nth(p).expect("as many as there are names").value[i] += step;
                loss.of(&forward(&mut model, &block, features.clone(), key()).0).0
            };
            let (above, below) = (at(STEP), at(-2.0 * STEP));
            at(STEP);
            let want = (above - below) / (2.0 * STEP);
            assert!((got - want).abs() <= 1e-7, "{spec:?}\n{name}[{i}]: {got} where {want} was expected");
        }
    }
}

fn check_both_losses(spec: Spec) {
    check(&spec, Loss::CrossEntropy);
    check(&spec, Loss::Binary);
}

#[test]
fn gradients_of_every_kind_agree_with_differences() {
    Kind::ALL.into_iter().for_each(|kind| check_both_losses(spec(kind)));
}

#[test]
fn gradients_agree_through_norms() {
    for kind in [Kind::Sage, Kind::Gcn, Kind::Gat, Kind::Gcnii] {
        for norm in [NormKind::Layer, NormKind::Batch] {
            check_both_losses(Spec { norm, ..spec(kind) });
        }
    }
}

#[test]
fn gradients_agree_through_dense_ends() {
    for kind in [Kind::Sage, Kind::Gcn, Kind::Gat] {
        check_both_losses(Spec { linear_layers: 1, ..spec(kind) });
    }
    check_both_losses(Spec { linear_layers: 2, norm: NormKind::Batch, ..spec(Kind::Sage) });
}

#[test]
fn gradients_agree_through_the_other_non_linearity() {
    for kind in Kind::ALL {
        let usual = spec(kind);
        let activation = match usual.activation {
            ActivationKind::Relu => ActivationKind::Elu,
            ActivationKind::Elu => ActivationKind::Relu,
        };
        check_both_losses(Spec { activation, ..usual });
    }
}

#[test]
fn gradients_agree_when_a_vertex_counts_in_its_own_mean() {
    for kind in [Kind::Sage, Kind::Resgcn] {
        check_both_losses(Spec { self_in_mean: true, ..spec(kind) });
    }
}

#[test]
fn one_layer_is_a_model() {
    Kind::ALL.into_iter().for_each(|kind| check_both_losses(Spec { layers: 1, ..spec(kind) }));
}

#[test]
fn masks_are_those_of_the_key_and_evaluation_has_none() {
    for kind in Kind::ALL {
        let mut model = model(&spec(kind));
        let mut logits = |key| forward(&mut model, &block(), features(), key).0;
        let (dropped, plain) = (logits(key()), logits(None));
        assert_eq!(dropped, logits(key()), "the same key, the same masks");
        assert_ne!(dropped, logits(key().map(|key| key.with(1))), "another key, other masks");
        assert_ne!(dropped, plain);
        assert_eq!(evaluate(&model, &block(), features()), plain, "{}", kind.name());
    }
}
