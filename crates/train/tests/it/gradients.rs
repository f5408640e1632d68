//! Whole models: every gradient against central differences, through norms, dropout and both losses.

use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::keyed::Key;
use halograph_nn::metrics::Targets;
use halograph_nn::model::{ActivationKind, Kind, Model, NormKind, Spec};
use halograph_nn::optimizer::{Method, Optimizer};
use halograph_nn::{Matrix, Param, Project};
use halograph_train::data::{Rows, View};
use halograph_train::evaluation;
use halograph_train::strategy::single::Plan;

const INPUTS: usize = 5;
const CLASSES: usize = 3;
/// Rows of the loss: not all, the isolated vertex among them.
const ROWS: [u32; 4] = [0, 3, 4, 6];

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

fn view() -> View<'static, f64> {
    let block = block();
    let nodes = block.sources();
    View::new(block, Matrix::new(nodes, INPUTS, noise(0, nodes * INPUTS)))
}

#[derive(Clone, Copy)]
enum Loss {
    CrossEntropy,
    Binary,
}

impl Loss {
    fn rows(self) -> Rows {
        match self {
            Loss::CrossEntropy => Rows::new(ROWS.to_vec(), Targets::Single(&[1, 0, 2, 1])),
            Loss::Binary => Rows::new(ROWS.to_vec(), Targets::Multi(&[1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1])),
        }
    }
}

/// Small, with everything that can be dropped dropped.
fn spec(kind: Kind) -> Spec {
    let norm = if kind.uses("norm") { NormKind::None } else { Spec::new(kind).norm };
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

fn key() -> Key {
    Key::new(7, "dropout").with(1)
}

/// Checks the gradient of every parameter against central differences of the loss.
#[track_caller]
fn check(spec: &Spec, loss: Loss) {
    const STEP: f64 = 2e-6;
    let (view, rows) = (view(), loss.rows());
    let mut model = model(spec);
    let plan = Plan::new(&model, &view, &rows).unwrap();
    plan.step(&mut model, &rows, key()).unwrap();
    let places: Vec<(String, Vec<f64>)> = model.params().map(|p| (p.name.clone(), p.grad.clone())).collect();
    assert!(places.iter().any(|(_, grad)| grad.iter().any(|g| g.abs() > 1e-3)), "something is learnt");

    for (p, (name, grad)) in places.iter().enumerate() {
        for (i, got) in grad.iter().enumerate() {
            let mut at = |step: f64| {
                model.params_mut().nth(p).expect("as many as there are names").value[i] += step;
                plan.step(&mut model, &rows, key()).unwrap()
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
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("norm")) {
        for norm in [NormKind::Layer, NormKind::Batch] {
            check_both_losses(Spec { norm, ..spec(kind) });
        }
    }
}

#[test]
fn gradients_agree_through_dense_ends() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("linear_layers")) {
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
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("self_in_mean")) {
        check_both_losses(Spec { self_in_mean: true, ..spec(kind) });
    }
}

#[test]
fn gradients_agree_when_eps_is_trained() {
    for input_dropout in [0.0, 0.2] {
        for project in [Project::First, Project::Last] {
            check_both_losses(Spec { train_eps: true, input_dropout, project, ..spec(Kind::Gin) });
        }
    }
}

#[test]
fn one_layer_is_a_model() {
    Kind::ALL.into_iter().for_each(|kind| check_both_losses(Spec { layers: 1, ..spec(kind) }));
}

#[test]
fn masks_are_those_of_the_key() {
    for kind in Kind::ALL {
        let (mut model, view, rows) = (model(&spec(kind)), view(), Loss::CrossEntropy.rows());
        let plan = Plan::new(&model, &view, &rows).unwrap();
        let mut loss = |key| plan.step(&mut model, &rows, key).unwrap();
        assert_eq!(loss(key()), loss(key()), "the same key, the same masks");
        assert_ne!(loss(key()), loss(key().with(1)), "another key, other masks: {}", kind.name());
    }
}

#[test]
fn evaluation_drops_nothing() {
    for kind in Kind::ALL {
        let plain = Spec { dropout: 0.0, input_dropout: 0.0, attention_dropout: 0.0, ..spec(kind) };
        let (view, rows) = (view(), Loss::CrossEntropy.rows());
        let logits = evaluation::outputs(&model(&spec(kind)), &view).unwrap().logits;
        let mut model = model(&plain);
        let plan = Plan::new(&model, &view, &rows).unwrap();
        let trained = plan.step(&mut model, &rows, key()).unwrap();
        let evaluated = halograph_train::loss::loss(&logits, &rows, None, rows.divisor(None)).0;
        assert!((trained - evaluated).abs() < 1e-12, "{}", kind.name());
    }
}

/// The gradients, and the loss, of an epoch over `order`ed rows, of which the first ones are trained on.
fn outcome(spec: &Spec, order: &[u32], trained: usize) -> (f64, Vec<Vec<f64>>) {
    let block = Block::ordered(CsrView { indptr: &INDPTR, indices: &INDICES }, order);
    let features = noise(0, order.len() * INPUTS);
    let features = order.iter().flat_map(|&v| features[v as usize * INPUTS..][..INPUTS].to_vec()).collect();
    let view = View::new(block, Matrix::new(order.len(), INPUTS, features));
    let mut rows: Vec<u32> =
        (0..order.len() as u32).filter(|&r| order[r as usize] < trained as u32).collect();
    rows.sort_by_key(|&r| order[r as usize]);
    let classes: Vec<u32> = rows.iter().map(|&r| order[r as usize] % CLASSES as u32).collect();
    let rows = Rows::new(rows, Targets::Single(&classes));
    let mut model = model(spec);
    let plan = Plan::new(&model, &view, &rows).unwrap();
    let loss = plan.step(&mut model, &rows, key()).unwrap();
    (loss, model.params().map(|p| p.grad.clone()).collect())
}

#[test]
fn rows_that_nobody_needs_change_nothing() {
    // Trained on 0 and 1. In the first order all that they see comes first and most rows are left out; in the second
    // a trained row stands last, so that everything is computed.
    for kind in Kind::ALL {
        for norm in [NormKind::None, NormKind::Layer, NormKind::Batch] {
            for input_dropout in [0.0, 0.2] {
                let spec = Spec { norm, input_dropout, layers: 2, ..spec(kind) };
                if spec.check().is_err() {
                    continue;
                }
                let (few, all) =
                    (outcome(&spec, &[0, 1, 2, 4, 3, 5, 6], 2), outcome(&spec, &[6, 5, 3, 2, 4, 0, 1], 2));
                assert!((few.0 - all.0).abs() < 1e-12, "{}", kind.name());
                for (few, all) in few.1.iter().flatten().zip(all.1.iter().flatten()) {
                    assert!((few - all).abs() < 1e-12, "{} {norm:?}: {few} {all}", kind.name());
                }
            }
        }
    }
}

/// Takes ten steps in single precision. Returns every parameter with its value before.
fn trained(spec: &Spec, method: Method, weight_decay: f64) -> Vec<(Param<f32>, Vec<f32>)> {
    let (block, rows) = (block(), Loss::CrossEntropy.rows());
    let nodes = block.sources();
    let features = noise(0, nodes * INPUTS).into_iter().map(|x| x as f32).collect();
    let view = View::new(block, Matrix::new(nodes, INPUTS, features));
    let mut model = Model::<f32>::new(spec, INPUTS, CLASSES, 3);
    model.load("a model with biases", &self::model(spec).state()).unwrap();
    let before: Vec<Vec<f32>> = model.params().map(|p| p.value.clone()).collect();
    let plan = Plan::new(&model, &view, &rows).unwrap();
    let mut optimizer = Optimizer::new(method, &model, |_| weight_decay);
    for step in 0..10 {
        plan.step(&mut model, &rows, key().with(step)).unwrap();
        optimizer.step(&mut model, 0.1);
    }
    model.params().cloned().zip(before).collect()
}

#[test]
fn biases_ahead_of_a_batch_norm_keep_their_values() {
    let expected = |kind| match kind {
        Kind::Sage => vec!["convs.0.lin_l.bias", "convs.1.lin_l.bias"],
        Kind::Gcn | Kind::Gat => vec!["convs.0.bias", "convs.1.bias"],
        Kind::Gcnii | Kind::Resgcn => vec![],
        Kind::Gin => vec![
            "convs.0.nn.lins.0.bias",
            "convs.0.nn.lins.1.bias",
            "convs.1.nn.lins.0.bias",
            "convs.1.nn.lins.1.bias",
            "convs.2.nn.lins.0.bias",
        ],
    };
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("norm")) {
        let spec = Spec { norm: NormKind::Batch, ..spec(kind) };
        let params = trained(&spec, Method::Adam, 0.0);
        let fixed = params.iter().filter(|(p, before)| p.value == *before);
        assert_eq!(fixed.map(|(p, _)| p.name.as_str()).collect::<Vec<_>>(), expected(kind));
    }
}

#[test]
fn weight_decay_applies_to_biases_ahead_of_a_batch_norm() {
    let spec = Spec { norm: NormKind::Batch, ..spec(Kind::Gin) };
    let params = trained(&spec, Method::Sgd { momentum: 0.0 }, 0.5);
    for (p, before) in params.iter().filter(|(p, _)| p.is_inert()) {
        let shrunk = 0.95f32.powi(10);
        let apart = p.value.iter().zip(before).map(|(after, before)| (after - shrunk * before).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-6, "{}", p.name);
    }
}
