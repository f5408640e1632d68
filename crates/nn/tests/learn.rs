//! Layers, loss and optimiser together: two layers separate two communities.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::Real;
use halograph_kernels::activation::Activation;
use halograph_kernels::keyed::Key;
use halograph_kernels::loss::cross_entropy;
use halograph_kernels::optim::Adam;
use halograph_nn::gat::{Gat, GatDropout, Heads};
use halograph_nn::gcn::Gcn;
use halograph_nn::sage::Sage;
use halograph_nn::{Layer, Matrix, Pass, Project, Scope};

const NODES: usize = 60;
const FEATURES: usize = 4;
const HIDDEN: usize = 8;
const EPOCHS: u64 = 60;

/// Two rings of alternating vertices, each with chords.
fn rings() -> (Vec<u64>, Vec<u32>) {
    let neighbours = |v: usize| [2, 4, 6, NODES - 2, NODES - 4, NODES - 6].map(|d| ((v + d) % NODES) as u32);
    ((0..=NODES as u64).map(|v| 6 * v).collect(), (0..NODES).flat_map(neighbours).collect())
}

/// A hint of the class under noise as strong as itself.
fn features<T: Real>() -> Matrix<T> {
    let key = Key::new(1, "features");
    let value = |i: usize| 0.5 * (i / FEATURES % 2) as f64 + key.bell(i as u64) as f64;
    Matrix::new(NODES, FEATURES, (0..NODES * FEATURES).map(|i| T::of(value(i))).collect())
}

fn step<T: Real, L: Layer<T>>(layer: &mut L, moments: &mut [[Vec<T>; 2]], epoch: u64) {
    let adam = Adam { lr: 0.02, ..Adam::default() };
    for (p, [first, second]) in layer.params_mut().into_iter().zip(moments) {
        adam.step(epoch, &mut p.value, &p.grad, first, second);
        p.grad.fill(T::zero());
    }
}

fn moments<T: Real, L: Layer<T>>(layer: &L) -> Vec<[Vec<T>; 2]> {
    layer.params().iter().map(|p| [vec![T::zero(); p.value.len()], vec![T::zero(); p.value.len()]]).collect()
}

/// Trains on every third vertex; returns the loss of each epoch and the accuracy on all others.
fn train<T: Real, L: Layer<T>>(mut layers: [L; 2]) -> (Vec<f64>, f64) {
    let (indptr, indices) = rings();
    let block = Block::whole(CsrView { indptr: &indptr, indices: &indices });
    let features = Arc::new(features::<T>());
    let rows: Vec<u32> = (0..NODES as u32).step_by(3).collect();
    let targets: Vec<u32> = rows.iter().map(|r| r % 2).collect();
    let mut moments = layers.each_ref().map(moments);
    let forward = |layers: &[L; 2], passes: &[Pass<T>; 2], caches: &mut [L::Cache; 2]| {
        let mut outputs = vec![features.clone()];
        for l in 0..2 {
            let messages = layers[l].prepare(outputs[l].clone(), &passes[l], &mut caches[l]);
            let sums = layers[l].aggregate(&block, messages, &passes[l], &mut caches[l]);
            let mut out = layers[l].finish(&block, sums, &passes[l], &mut caches[l]);
            [Activation::Relu, Activation::Identity][l].forward(out.data_mut());
            outputs.push(Arc::new(out));
        }
        outputs
    };
    let losses = (1..=EPOCHS)
        .map(|epoch| {
            let key = Key::new(3, "dropout").with(epoch);
            let passes = [0, 1].map(|l| Pass {
                key: Some(key.with(l)),
                input_gradient: l > 0,
                ..Pass::<T>::evaluation()
            });
            let mut caches = [L::Cache::default(), L::Cache::default()];
            let outputs = forward(&layers, &passes, &mut caches);
            let mut grad = Matrix::zeros(NODES, 2);
            let count = rows.len() as u64;
            let loss = cross_entropy(outputs[2].data(), 2, &rows, &targets, count, grad.data_mut());
            for l in [1, 0] {
                let (layer, pass, cache) = (&mut layers[l], &passes[l], &mut caches[l]);
                let sums = layer.finish_backward(&block, grad, pass, cache).aggregated;
                let messages = layer.aggregate_backward(&block, sums, pass, cache);
                grad = layer.prepare_backward(messages, pass, cache).unwrap_or_default();
                if l > 0 {
                    Activation::Relu.backward(outputs[l].data(), grad.data_mut());
                }
                step(layer, &mut moments[l], epoch);
            }
            loss
        })
        .collect();
    let evaluation = [Pass::evaluation(), Pass::evaluation()];
    let logits = forward(&layers, &evaluation, &mut [L::Cache::default(), L::Cache::default()]);
    let right = |&v: &usize| (logits[2].run(v..v + 1)[1] > logits[2].run(v..v + 1)[0]) == (v % 2 == 1);
    let others = || (0..NODES).filter(|v| v % 3 > 0);
    (losses, others().filter(right).count() as f64 / others().count() as f64)
}

fn assert_learns<T: Real, L: Layer<T>>(make: impl Fn(&Scope, usize, usize) -> L) {
    let layers = || {
        let convs = Scope::new(5).child("convs");
        [make(&convs.child(0), FEATURES, HIDDEN), make(&convs.child(1), HIDDEN, 2)]
    };
    let (losses, accuracy) = train::<T, L>(layers());
    let last = losses[losses.len() - 1];
    assert!(last < 0.5 * losses[0], "the loss fell from {} to {last} only", losses[0]);
    assert!(accuracy > 0.9, "accuracy {accuracy}");
    assert_eq!(losses, train::<T, L>(layers()).0, "the same seed gives the same bits");
}

#[test]
fn two_layers_learn_and_repeat_their_bits() {
    assert_learns::<f32, _>(|scope, inputs, outputs| Gcn::new(scope, inputs, outputs, Project::Auto, 0.2));
    assert_learns::<f32, _>(|scope, inputs, outputs| Sage::new(scope, inputs, outputs, Project::Auto, 0.2));
    assert_learns::<f64, _>(|scope, inputs, outputs| {
        Gat::new(scope, inputs, 2, outputs, Heads::Mean, GatDropout { input: 0.2, attention: 0.2 })
    });
}
