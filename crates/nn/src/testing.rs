//! What the tests of layers share: a small graph, finite differences, and two owners that exchange messages.

use halograph_graph::block::{Block, Halo, InWeight};
use halograph_graph::csr::CsrView;
use halograph_graph::sample::{Fanout, Neighbors, Sample, SampleSpec, Sampler, SamplerKind};
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;

use crate::layer::{Layer, Pass};
use crate::matrix::Matrix;

/// Columns of [`input`].
pub const INPUTS: usize = 3;

/// In-neighbours of each vertex: directed, with a self-loop at 3; 5 has no edges at all, 6 no incoming ones.
pub fn test_graph() -> Vec<Vec<u32>> {
    vec![vec![1, 2, 4], vec![0], vec![0, 1, 3, 6], vec![2, 3, 7], vec![0, 7], vec![], vec![], vec![3, 6]]
}

fn compressed(graph: &[Vec<u32>]) -> (Vec<u64>, Vec<u32>) {
    let mut indptr = vec![0];
    graph.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
    (indptr, graph.concat())
}

/// Weights of the edges of the test graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeWeights {
    /// The graph has none.
    None,
    /// All are 1.
    Ones,
    /// All are different, that of the only edge into vertex 1 is 0.
    Different,
}

impl EdgeWeights {
    fn of(self, v: u32, u: u32) -> f32 {
        let key = Key::new(7, "weights").with(v.into());
        match self {
            EdgeWeights::Different if v == 1 => 0.0,
            EdgeWeights::Different => 0.25 + 3.0 * key.unit(u.into()) as f32,
            EdgeWeights::None | EdgeWeights::Ones => 1.0,
        }
    }

    /// Returns the sums of in-weights of these vertices.
    fn sums(self, vertices: impl Iterator<Item = u32>) -> Vec<InWeight> {
        let graph = test_graph();
        let sum = |v: u32| InWeight::of(v, graph[v as usize].iter().map(|&u| (u, self.of(v, u))));
        vertices.map(sum).collect()
    }

    /// Weighs the edges of a block; rows are vertices of the test graph.
    fn weigh(self, block: Block<'static>) -> Block<'static> {
        if self == EdgeWeights::None {
            return block;
        }
        let (pattern, first) = (block.pattern(), block.destinations().start);
        let row = |r: usize| pattern.columns[pattern.row(r)].iter().map(move |&u| (r, u));
        let weight = |(r, u): (usize, u32)| self.of(block.id(first + r), block.id(u as usize));
        let edges: Vec<f32> = (0..pattern.rows()).flat_map(row).map(weight).collect();
        let sums = self.sums((0..block.sources()).map(|row| block.id(row)));
        block.with_weights(edges, sums)
    }
}

/// The test graph as one block.
fn whole(weights: EdgeWeights) -> Block<'static> {
    let (indptr, indices) = compressed(&test_graph());
    let degrees = Block::whole(CsrView { indptr: &indptr, indices: &indices }).degrees().to_vec();
    let nodes = degrees.len();
    weights.weigh(Block::new(indptr, indices, 0..nodes, degrees, None))
}

/// The edges into `rows` of the test graph alone.
fn chunk(rows: std::ops::Range<usize>, weights: EdgeWeights) -> Block<'static> {
    let (indptr, indices) = compressed(&test_graph()[rows.clone()]);
    weights.weigh(Block::new(indptr, indices, rows, whole(weights).degrees().to_vec(), None))
}

/// Some edges into these rows of the test graph, at most one from another row to each.
fn sample(seeds: &[u32], weights: EdgeWeights) -> Sample {
    let whole = whole(weights);
    let neighbors = Neighbors::of(&whole);
    let spec = SampleSpec { kind: SamplerKind::Neighbor, fanouts: vec![Fanout::AtMost(1)] };
    let mut sample = Sample::default();
    Sampler::new(&neighbors, &spec).sample(Key::new(8, "test"), seeds, &mut sample);
    sample
}

fn noise<T: Real>(seed: u64, rows: usize, cols: usize) -> Matrix<T> {
    let key = Key::new(seed, "test noise");
    Matrix::new(rows, cols, (0..(rows * cols) as u64).map(|i| T::of(2.0 * key.unit(i) - 1.0)).collect())
}

/// Features of the test graph's vertices, another set for every `seed`.
pub fn input<T: Real>(seed: u64) -> Matrix<T> {
    noise(seed, test_graph().len(), INPUTS)
}

/// Gives every parameter values unlike its initial ones, biases included.
pub fn scramble<T: Real, L: Layer<T>>(layer: &mut L) {
    for (i, p) in layer.params_mut().into_iter().enumerate() {
        p.value = noise(100 + i as u64, p.value.len(), 1).data().to_vec();
    }
}

/// A training pass with fixed masks.
fn training<T: Real>(initial: &Matrix<T>) -> Pass<'_, T> {
    Pass { key: Some(Key::new(9, "test")), ids: None, initial: Some(initial), input_gradient: true }
}

fn forward<T: Real, L: Layer<T>>(
    layer: &L,
    block: &Block,
    x: &Matrix<T>,
    pass: &Pass<T>,
) -> (Matrix<T>, L::Cache) {
    let mut cache = L::Cache::default();
    let messages = layer.prepare(x.clone().into(), pass, &mut cache);
    assert_eq!((messages.rows(), messages.cols()), (x.rows(), layer.message_width()));
    let aggregated = layer.aggregate(block, messages, pass, &mut cache);
    (layer.finish(block, aggregated, pass, &mut cache), cache)
}

/// The output for the whole test graph, nothing dropped.
pub fn evaluate<T: Real, L: Layer<T>>(layer: &L, x: &Matrix<T>) -> Matrix<T> {
    let initial = input(1);
    let pass = Pass { key: None, ids: None, initial: Some(&initial), input_gradient: true };
    forward(layer, &whole(EdgeWeights::None), x, &pass).0
}

/// A forward and a backward: output, gradients of input and initial rows, and of every parameter.
#[derive(Debug)]
pub struct Outcome {
    output: Vec<f64>,
    input: Vec<f64>,
    initial: Vec<f64>,
    params: Vec<Vec<f64>>,
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.wide()).collect()
}

/// The loss is the sum of the output under fixed random weights, so its gradient is these weights.
fn loss_weights<T: Real>(rows: usize, cols: usize) -> Matrix<T> {
    noise(50, rows, cols)
}

fn run<T: Real, L: Layer<T>>(layer: &mut L, block: &Block, x: &Matrix<T>, pass: &Pass<T>) -> Outcome {
    let (output, mut cache) = forward(layer, block, x, pass);
    layer.params_mut().into_iter().for_each(|p| p.grad.fill(T::zero()));
    let grad = loss_weights(output.rows(), output.cols());
    let finished = layer.finish_backward(block, grad, pass, &mut cache);
    let aggregated = finished.aggregated.expect("the pass wants it");
    let initial = initial_grad(finished.initial, &aggregated);
    let grad = layer.aggregate_backward(block, aggregated, pass, &mut cache);
    assert_eq!((grad.rows(), grad.cols()), (block.sources(), layer.message_width()));
    let input = layer.prepare_backward(grad, pass, &mut cache).expect("the pass wants it");
    Outcome {
        output: wide(output.data()),
        input: wide(input.data()),
        initial: initial.map_or(vec![], |g| wide(g.data())),
        params: layer.params().iter().map(|p| wide(&p.grad)).collect(),
    }
}

/// The gradient of the initial rows, of which `share` of the aggregate's is.
fn initial_grad<T: Real>(share: Option<T>, aggregated: &Matrix<T>) -> Option<Matrix<T>> {
    share.map(|share| {
        let mut grad = Matrix::zeros(aggregated.rows(), aggregated.cols());
        grad.add_at(0, share, aggregated);
        grad
    })
}

/// Runs `layer`, with scrambled parameters and dropout, over the whole test graph.
pub fn outcome<T: Real, L: Layer<T>>(layer: L) -> Outcome {
    outcome_with(layer, EdgeWeights::None)
}

/// As [`outcome`], with weights of the edges.
pub fn outcome_with<T: Real, L: Layer<T>>(mut layer: L, weights: EdgeWeights) -> Outcome {
    scramble(&mut layer);
    run(&mut layer, &whole(weights), &input(0), &training(&input(1)))
}

#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "element {i}: {g} where {w} was expected");
    }
}

#[track_caller]
pub fn assert_same(got: &Outcome, want: &Outcome, tolerance: f64) {
    assert_close(&got.output, &want.output, tolerance);
    assert_close(&got.input, &want.input, tolerance);
    assert_close(&got.initial, &want.initial, tolerance);
    got.params.iter().zip(&want.params).for_each(|(g, w)| assert_close(g, w, tolerance));
}

/// Checks a layer in every way that all layers have in common. `single` is the same layer in single precision.
#[track_caller]
pub fn check_layer<D: Layer<f64> + Clone, S: Layer<f32> + Clone>(layer: D, single: S) {
    for weights in [EdgeWeights::None, EdgeWeights::Different] {
        check_gradients(layer.clone(), weights);
        check_owners(layer.clone(), weights);
        let [single, double] = [outcome_with(single.clone(), weights), outcome_with(layer.clone(), weights)];
        assert_same(&single, &double, 1e-5);
    }
    assert_same(&outcome_with(layer.clone(), EdgeWeights::Ones), &outcome(layer.clone()), 0.0);
    assert_same(&outcome_with(single.clone(), EdgeWeights::Ones), &outcome(single.clone()), 0.0);
    check_as_first(layer);
}

/// Checks every gradient of `layer` against central differences, over the whole graph, a chunk of it and a sample.
#[track_caller]
fn check_gradients<L: Layer<f64>>(mut layer: L, weights: EdgeWeights) {
    scramble(&mut layer);
    let all: Vec<u32> = (0..test_graph().len() as u32).collect();
    // The self-loop, rows of which edges are left out, and the row without edges.
    let sample = sample(&[3, 0, 5, 2], weights);
    let sampled = sample.block(0);
    assert!((0..4).any(|r| sampled.edge_scale(r) > 1.0) && sampled.loops() == [0]);
    let (whole, chunk) = (whole(weights), chunk(2..6, weights));
    for (block, rows) in [(whole, &all[..]), (chunk, &all), (sampled, sample.rows())] {
        let first = block.destinations().start;
        let (x, initial) = (take(rows, &input(0)), take(rows, &input(1)));
        let got = run(&mut layer, &block, &x, &training(&initial));
        let loss = |layer: &L, x: &Matrix<f64>, initial: &Matrix<f64>| {
            let out = forward(layer, &block, x, &training(initial)).0;
            let weights = loss_weights::<f64>(out.rows(), out.cols());
            out.data().iter().zip(weights.data()).map(|(o, w)| o * w).sum::<f64>()
        };
        let numeric = differences(x.data().len(), |i, step| {
            let mut x = x.clone();
            x.data_mut()[i] += step;
            loss(&layer, &x, &initial)
        });
        assert_close(&got.input, &numeric, 1e-7);
        if !got.initial.is_empty() {
            let numeric = differences(got.initial.len(), |i, step| {
                let mut initial = initial.clone();
                initial.data_mut()[first * INPUTS + i] += step;
                loss(&layer, &x, &initial)
            });
            assert_close(&got.initial, &numeric, 1e-7);
        }
        for p in 0..got.params.len() {
            let numeric = differences(got.params[p].len(), |i, step| {
                layer.params_mut()[p].value[i] += step;
                let loss = loss(&layer, &x, &initial);
                layer.params_mut()[p].value[i] -= step;
                loss
            });
            assert_close(&got.params[p], &numeric, 1e-7);
        }
    }
}

/// A first layer, whose input needs no gradient, must give its parameters the same gradients by a shorter way.
#[track_caller]
fn check_as_first<L: Layer<f64>>(mut layer: L) {
    scramble(&mut layer);
    let (block, x, initial) = (whole(EdgeWeights::None), input(0), input(1));
    let want = run(&mut layer, &block, &x, &training(&initial));
    layer.params_mut().into_iter().for_each(|p| p.grad.fill(0.0));

    let pass = Pass { input_gradient: false, ..training(&initial) };
    let (output, mut cache) = forward(&layer, &block, &x, &pass);
    let grad = loss_weights(output.rows(), output.cols());
    let finished = layer.finish_backward(&block, grad, &pass, &mut cache);
    if let Some(aggregated) = finished.aggregated {
        let grad = layer.aggregate_backward(&block, aggregated, &pass, &mut cache);
        assert!(layer.prepare_backward(grad, &pass, &mut cache).is_none(), "nobody wants it");
    }
    layer.params().iter().zip(&want.params).for_each(|(p, want)| assert_close(&p.grad, want, 0.0));
}

fn differences(len: usize, mut loss: impl FnMut(usize, f64) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    (0..len).map(|i| (loss(i, STEP) - loss(i, -STEP)) / (2.0 * STEP)).collect()
}

/// Vertices of one owner, and of others what its own need.
struct Part {
    own: Vec<u32>,
    halo: Vec<u32>,
    block: Block<'static>,
}

impl Part {
    fn new(own: Vec<u32>, weights: EdgeWeights) -> Part {
        let graph = test_graph();
        let edges = || own.iter().flat_map(|&v| &graph[v as usize]);
        let mut halo: Vec<u32> = edges().copied().filter(|u| !own.contains(u)).collect();
        halo.sort();
        halo.dedup();
        let degrees = |of: &[u32]| of.iter().map(|&v| whole(weights).degrees()[v as usize]).collect();
        let edges_from = |of: &[u32]| {
            let row_of = |u: &u32| of.iter().position(|v| v == u).map(|row| row as u32);
            let row = |&v: &u32| graph[v as usize].iter().filter_map(row_of).collect();
            compressed(&own.iter().map(row).collect::<Vec<Vec<u32>>>())
        };
        let (indptr, indices) = edges_from(&own);
        let block =
            weights.weigh(Block::new(indptr, indices, 0..own.len(), degrees(&own), Some(own.clone())));
        let (indptr, indices) = edges_from(&halo);
        let mut outer = Halo::new(indptr, indices, degrees(&halo), halo.clone());
        if weights != EdgeWeights::None {
            let row = |&v: &u32| graph[v as usize].iter().filter(|u| halo.contains(u)).map(move |&u| (v, u));
            let edges = own.iter().flat_map(row).map(|(v, u)| weights.of(v, u)).collect();
            outer = outer.with_weights(edges, weights.sums(halo.iter().copied()));
        }
        let block = block.with_halo(outer);
        Part { own, halo, block }
    }

    fn take<T: Real>(&self, of: &Matrix<T>) -> Matrix<T> {
        take(&self.own, of)
    }
}

fn take<T: Real>(rows: &[u32], of: &Matrix<T>) -> Matrix<T> {
    let data = rows.iter().flat_map(|&v| of.run(v as usize..v as usize + 1)).copied().collect();
    Matrix::new(rows.len(), of.cols(), data)
}

fn put<T: Real>(rows: &[u32], part: &Matrix<T>, into: &mut Matrix<T>) {
    let cols = into.cols();
    halograph_kernels::rows::scatter_add(part.data(), cols, rows, into.data_mut());
}

/// Two owners, each computing its own rows and exchanging messages and their gradients, must follow one owner.
#[track_caller]
fn check_owners<L: Layer<f64>>(mut layer: L, weights: EdgeWeights) {
    scramble(&mut layer);
    let (x, initial) = (input(0), input(1));
    let want = run(&mut layer, &whole(weights), &x, &training(&initial));
    layer.params_mut().into_iter().for_each(|p| p.grad.fill(0.0));

    let parts = [Part::new(vec![6, 0, 3], weights), Part::new(vec![1, 2, 4, 5, 7], weights)];
    let initials = parts.each_ref().map(|part| part.take(&initial));
    let passes = [0, 1].map(|i| Pass { ids: Some(&parts[i].own), ..training(&initials[i]) });
    let mut caches = [L::Cache::default(), L::Cache::default()];
    let nodes = x.rows();

    let mut messages = Matrix::zeros(nodes, layer.message_width());
    for (i, part) in parts.iter().enumerate() {
        let sent = layer.prepare(part.take(&x).into(), &passes[i], &mut caches[i]);
        put(&part.own, &sent.full(), &mut messages);
    }
    let mut outputs: Option<Matrix<f64>> = None;
    for (i, part) in parts.iter().enumerate() {
        let [own, halo] = [&part.own, &part.halo].map(|rows| take(rows, &messages).into());
        let sums = layer.aggregate(&part.block, own, &passes[i], &mut caches[i]);
        let aggregated = layer.add_halo(&part.block, halo, sums, &passes[i], &mut caches[i]);
        let out = layer.finish(&part.block, aggregated, &passes[i], &mut caches[i]);
        put(&part.own, &out, outputs.get_or_insert_with(|| Matrix::zeros(nodes, out.cols())));
    }
    let outputs = outputs.expect("there are parts");
    assert_close(outputs.data(), &want.output, 1e-12);

    let grad = loss_weights(nodes, outputs.cols());
    let mut returned = Matrix::zeros(nodes, layer.message_width());
    let mut initial_sum = Matrix::zeros(nodes, INPUTS);
    for (i, part) in parts.iter().enumerate() {
        let finished = layer.finish_backward(&part.block, part.take(&grad), &passes[i], &mut caches[i]);
        let aggregated = finished.aggregated.expect("the pass wants it");
        let initial = initial_grad(finished.initial, &aggregated);
        initial.iter().for_each(|g| put(&part.own, g, &mut initial_sum));
        let back = layer.halo_backward(&part.block, &aggregated, &passes[i], &mut caches[i]);
        put(&part.halo, &back, &mut returned);
        let back = layer.aggregate_backward(&part.block, aggregated, &passes[i], &mut caches[i]);
        put(&part.own, &back, &mut returned);
    }
    let mut input_grad = Matrix::zeros(nodes, INPUTS);
    for (i, part) in parts.iter().enumerate() {
        let back = layer.prepare_backward(part.take(&returned), &passes[i], &mut caches[i]);
        put(&part.own, &back.expect("the pass wants it"), &mut input_grad);
    }
    assert_close(input_grad.data(), &want.input, 1e-12);
    if !want.initial.is_empty() {
        assert_close(initial_sum.data(), &want.initial, 1e-12);
    }
    layer.params().iter().zip(&want.params).for_each(|(p, want)| assert_close(&p.grad, want, 1e-12));
}
