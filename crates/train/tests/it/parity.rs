//! Parity with PyTorch and PyG: values, gradients and ten steps of Adam, by the strategy `single` and the optimiser that
//! train, against fixtures of `scripts/parity.py`.
//!
//! The fixtures are in double precision: in `f64` we must agree to rounding, in `f32` to single precision.

use std::path::Path;

use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_kernels::optim::Adam;
use halograph_nn::metrics::Targets;
use halograph_nn::model::{Kind, Model, NormKind, Spec};
use halograph_nn::optimizer::{Method, Optimizer};
use halograph_nn::state::{State, Tensor};
use halograph_nn::{Matrix, Project};
use halograph_train::data::{Rows, View};
use halograph_train::evaluation;
use halograph_train::strategy::single::Plan;

const NODES: usize = 20;
const INPUTS: usize = 6;
const CLASSES: usize = 3;

/// A model of the fixtures' sizes: PyG's defaults, nothing dropped.
fn spec(kind: Kind) -> Spec {
    let norm = if kind.uses("norm") { NormKind::None } else { Spec::new(kind).norm };
    Spec { hidden: 8, heads: 2, dropout: 0.0, norm, ..Spec::new(kind) }
}

/// What one fixture holds.
struct Fixture {
    name: String,
    state: State,
}

impl Fixture {
    fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/parity/{name}.safetensors"));
        let bytes = std::fs::read(&path).expect("scripts/parity.py writes it");
        Fixture { name: name.into(), state: State::from_bytes(name, &bytes).unwrap() }
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.state.0.get(name).unwrap_or_else(|| panic!("{}: no {name}", self.name))
    }

    fn reals<T: Real>(&self, name: &str) -> Vec<T> {
        self.tensor(name).to_real().unwrap_or_else(|| panic!("{}: {name} is not of reals", self.name))
    }

    fn whole(&self, name: &str) -> Vec<u32> {
        self.reals::<f64>(name).into_iter().map(|x| x as u32).collect()
    }

    fn block(&self) -> Block<'static> {
        let adjacency = self.whole("data.adjacency");
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for row in adjacency.chunks_exact(NODES) {
            indices.extend((0..NODES as u32).filter(|&u| row[u as usize] == 1));
            indptr.push(indices.len() as u64);
        }
        let degrees = Block::whole(CsrView { indptr: &indptr, indices: &indices }).degrees().to_vec();
        let edges = (0..NODES * NODES).filter(|&at| adjacency[at] == 1);
        let name = "data.edge_weights";
        let weights = self.state.0.contains_key(name).then(|| self.reals::<f32>(name));
        let weights = weights.map(|all| edges.map(|at| all[at]).collect::<Vec<f32>>());
        let block = Block::new(indptr, indices, 0..NODES, degrees, None);
        match weights {
            Some(weights) => block.weighted(weights),
            None => block,
        }
    }

    /// The rows of the loss, with their labels.
    fn rows(&self) -> Rows {
        let (rows, labels) = (self.whole("data.rows"), self.whole("data.labels"));
        if labels.len() == NODES {
            let targets: Vec<u32> = rows.iter().map(|&r| labels[r as usize]).collect();
            return Rows::new(rows, Targets::Single(&targets));
        }
        let of_row = |&r: &u32| labels[r as usize * CLASSES..][..CLASSES].iter().map(|&y| y as u8);
        let targets: Vec<u8> = rows.iter().flat_map(of_row).collect();
        Rows::new(rows, Targets::Multi(&targets))
    }

    #[track_caller]
    fn assert_close<T: Real>(&self, what: &str, got: &[T], tolerance: f64) {
        let want = self.reals::<f64>(what);
        assert_eq!(got.len(), want.len(), "{}: {what}", self.name);
        let apart = got.iter().zip(&want).map(|(g, w)| (g.wide() - w).abs());
        // A NaN is larger than any number here.
        let largest = apart.fold(0.0, |a: f64, b| if b <= a { a } else { b });
        assert!(largest <= tolerance, "{}: {what} differs by up to {largest:e}", self.name);
    }

    #[track_caller]
    fn assert_state<T: Real>(&self, prefix: &str, got: &State, tolerance: f64) {
        let want = self.state.part(prefix);
        assert_eq!(got.0.keys().collect::<Vec<_>>(), want.0.keys().collect::<Vec<_>>(), "{}", self.name);
        for (name, tensor) in &got.0 {
            let path = format!("{prefix}{name}");
            assert_eq!(tensor.shape, self.tensor(&path).shape, "{}: shape of {path}", self.name);
            match tensor.to_real::<T>() {
                Some(values) => self.assert_close(&path, &values, tolerance),
                None => assert_eq!(tensor.to_count(), self.tensor(&path).to_count(), "{}: {path}", self.name),
            }
        }
    }
}

fn gradients<T: Real>(model: &Model<T>) -> State {
    State(model.params().map(|p| (p.name.clone(), Tensor::real(&p.shape, &p.grad))).collect())
}

/// Follows one fixture from its initial state to the end of its steps.
#[track_caller]
fn follow<T: Real>(fixture: &Fixture, spec: &Spec, tolerance: f64) {
    spec.check().unwrap();
    let mut model = Model::<T>::new(spec, INPUTS, CLASSES, 0);
    model.load(&fixture.name, &fixture.state.part("initial.")).unwrap();
    let features = Matrix::new(NODES, INPUTS, fixture.reals("data.features"));
    let (view, rows) = (View::new(fixture.block(), features), fixture.rows());
    let weights = fixture.state.0.contains_key("data.weights").then(|| fixture.reals::<f64>("data.weights"));
    let plan = Plan::new(&model, &view, &rows).unwrap().with_class_weights(weights.as_deref());
    let logits = |model: &Model<T>| evaluation::outputs(model, &view).unwrap().logits;
    fixture.assert_close("logits", logits(&model).data(), tolerance);

    let weight_decay = if fixture.name.ends_with("no_decay") { 0.0 } else { 5e-4 };
    let mut optimizer = Optimizer::new(Method::Adam, &model, |_| weight_decay);
    let mut losses = Vec::new();
    for step in 0..fixture.reals::<f64>("losses").len() as u64 {
        losses.push(plan.step(&mut model, &rows, Key::new(step, "nothing is dropped")).unwrap());
        if step == 0 {
            // Gradients of messages that nobody needs are not computed; those of parameters all are.
            fixture.assert_state::<T>("gradient.", &gradients(&model), tolerance);
        }
        optimizer.step(&mut model, 0.01);
    }
    // Where a gradient is nearly 0, Adam's first steps turn its rounding into a step of full length.
    let tolerance = 3.0 * tolerance;
    fixture.assert_close("losses", &losses, tolerance);
    fixture.assert_state::<T>("final.", &model.state(), tolerance);
    fixture.assert_close("final_logits", logits(&model).data(), tolerance);
}

/// Follows the steps of an optimiser in single precision, from a parameter of zeros.
#[track_caller]
fn follow_optimizer(name: &str, decoupled: bool) {
    let fixture = Fixture::open("optimizer_f32");
    let (grads, want) = (fixture.reals::<f32>("gradients"), fixture.reals::<f64>(name));
    let size = fixture.tensor(name).shape[1];
    let [mut p, mut first, mut second] = [(); 3].map(|()| vec![0.0f32; size]);
    let adam = Adam { lr: 0.01, weight_decay: 5e-4, decoupled, ..Adam::default() };
    for (step, (grad, want)) in (1..).zip(grads.chunks_exact(size).zip(want.chunks_exact(size))) {
        adam.step(step, &mut p, grad, &mut first, &mut second);
        for (i, (p, want)) in p.iter().zip(want).enumerate() {
            // Relative to the longest way there can be: steps of length `lr` in one direction.
            let apart = (*p as f64 - want).abs() / (0.01 * step as f64);
            assert!(apart < 1e-6, "{name}, step {step}: parameter {i} differs by {apart:e}");
        }
    }
}

#[test]
fn adam_in_single_precision_is_pytorchs() {
    follow_optimizer("adam", false);
    follow_optimizer("adamw", true);
}

/// In both precisions, and with the weight on either side of the aggregation.
#[track_caller]
fn check(name: &str, spec: Spec) {
    let fixture = Fixture::open(name);
    for project in [Project::First, Project::Last] {
        let spec = Spec { project, ..spec.clone() };
        follow::<f64>(&fixture, &spec, 1e-9);
        follow::<f32>(&fixture, &spec, 1e-4);
    }
}

#[test]
fn gcn_is_pygs() {
    check("gcn", spec(Kind::Gcn));
    check("gcn_multi_label", spec(Kind::Gcn));
    check("gcn_directed", spec(Kind::Gcn));
}

#[test]
fn class_weights_are_pytorchs() {
    check("gcn_class_weights", spec(Kind::Gcn));
    check("gcn_multi_label_class_weights", spec(Kind::Gcn));
}

#[test]
fn sage_is_pygs() {
    check("sage", spec(Kind::Sage));
}

#[test]
fn gat_is_pygs() {
    check("gat", spec(Kind::Gat));
    check("gat_directed", spec(Kind::Gat));
}

#[test]
fn norms_are_pygs() {
    check("sage_layer_norm", Spec { norm: NormKind::Layer, ..spec(Kind::Sage) });
    check("sage_batch_norm", Spec { norm: NormKind::Batch, ..spec(Kind::Sage) });
}

#[test]
fn a_dense_end_is_pytorchs() {
    check("sage_dense_end", Spec { linear_layers: 1, norm: NormKind::Layer, ..spec(Kind::Sage) });
}

#[test]
fn gin_is_pygs() {
    let [fixed, trained] = [false, true].map(|train_eps| Spec { train_eps, ..spec(Kind::Gin) });
    check("gin", fixed.clone());
    check("gin_layer_norm", Spec { norm: NormKind::Layer, ..fixed.clone() });
    check("gin_batch_norm", Spec { norm: NormKind::Batch, ..fixed.clone() });
    check("gin_train_eps", trained.clone());
    check("gin_directed", trained.clone());
    check("gin_train_eps_batch_norm", Spec { norm: NormKind::Batch, ..trained });
}

#[test]
fn biases_ahead_of_a_batch_norm_need_no_gradient() {
    // Without weight decay, PyTorch's steps along their gradients are rounding errors; ours are zero. In single precision
    // PyTorch's steps would be visible.
    let (fixture, spec) = (Fixture::open("gin_batch_norm_no_decay"), spec(Kind::Gin));
    follow::<f64>(&fixture, &Spec { norm: NormKind::Batch, ..spec }, 1e-9);
}

#[test]
fn gcnii_is_pygs() {
    check("gcnii", spec(Kind::Gcnii));
}

#[test]
fn resgcn_is_pygs() {
    check("resgcn", spec(Kind::Resgcn));
}

#[test]
fn gcn_and_gcnii_with_edge_weights_are_pygs() {
    check("gcn_directed_weighted", spec(Kind::Gcn));
    check("gcn_undirected_weighted", spec(Kind::Gcn));
    check("gcnii_directed_weighted", spec(Kind::Gcnii));
}

#[test]
fn weighted_means_and_sums_are_those_of_message_passing() {
    check("sage_directed_weighted", spec(Kind::Sage));
    check("resgcn_directed_weighted", spec(Kind::Resgcn));
    check("gin_directed_weighted", Spec { train_eps: true, ..spec(Kind::Gin) });
}
