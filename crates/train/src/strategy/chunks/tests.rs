//! Gradients of chunks in every order.

use halograph_comm::{Options, threads};
use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::partition::{Assignment, Layout};
use halograph_kernels::keyed::Key;
use halograph_nn::model::Kind;

use super::*;
use crate::config::{GradientWeighting, StrategyKind};
use crate::data::Scaling;

const NODES: usize = 40;
const FEATURES: usize = 5;

fn dataset() -> Dataset {
    let key = Key::new(5, "edges");
    let end = |i: u64| key.below(i, NODES as u64) as u32;
    let edges: Vec<(u32, u32)> = (0..120).map(|i| (end(2 * i), end(2 * i + 1))).collect();
    let graph = GraphArrays::from_edges(NODES, &edges, EdgeOptions::default()).unwrap();
    let numbers = (0..(NODES * FEATURES) as u64).map(|i| key.with(1).approx_normal(i));
    let features = FeatureArray::f32(FEATURES, numbers.collect());
    let labels = Labels::Single((0..NODES as i64).map(|v| v % 3).collect());
    let split = (0..NODES).map(|v| [1, 1, 3][v % 3]).collect();
    Dataset::from_arrays(DatasetArrays::new("test", graph, features, labels, split)).unwrap()
}

fn config(kind: Kind, ways: usize, chunks: usize) -> Config {
    let mut config = Config::new(kind);
    (config.model.layers, config.model.hidden, config.model.heads) = (1, 4, 2);
    config.model.dropout = 0.0;
    (config.train.strategy, config.train.ranks) = (StrategyKind::Hybrid, ways);
    (config.layers.stages, config.layers.chunks) = (Some(1), Some(chunks as u64));
    config
}

/// All orders of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: &Vec<usize>, at: usize| {
        let mut longer = order.clone();
        longer.insert(at, count - 1);
        longer
    };
    orders(count - 1)
        .iter()
        .flat_map(|order| (0..count).map(|at| insert(order, at)).collect::<Vec<_>>())
        .collect()
}

/// The gradient of all weights, with history as it is: the mean over all orders of chunks.
fn mean_gradient(data: &Dataset, config: &Config) -> Vec<f64> {
    let ways = config.parts();
    let parts = (0..NODES).map(|v| (v * ways / NODES) as u32).collect();
    let assignment = Assignment::new(ways as u32, parts).unwrap();
    let layout = Layout::of(data, &assignment).unwrap();
    let found = threads::run(ways, &Options::default(), |comm| -> Result<Vec<f64>> {
        let shard = layout.cut(comm.rank() as u32)?;
        let world = RankLink::new(comm, true);
        let grid = Grid::new(&world, 1)?;
        let mut model = Model::<f64>::new(&config.model, FEATURES, 3, 1);
        let data = load(&shard, &grid, config, Scaling::None, model.hops())?;
        let stages = plan(&model, &config.model, &data, 1);
        data.prepare(&grid.link, &model)?;
        let meter = StepMeter::new(None);
        let links = Links { world: &world, grid: &grid };
        let mut chunked = Chunked::new(config, &model, &data, links, &stages, &meter)?;
        chunked.initialise_history(&mut model)?;
        let orders = orders(chunked.chunks());
        let mut mean = vec![0.0; model.params().map(|p| p.grad.len()).sum()];
        for (at, order) in orders.iter().enumerate() {
            let step = Step { epoch: 1 + at as u64, step: 0, key: Key::new(1, "dropout") };
            let order = StepOrder::of(order.clone(), chunked.chunks());
            chunked.run_step(&mut model, &step, &order, &Requests::default)?;
            let grads = model.params_mut().flat_map(|p| p.grad.iter_mut());
            mean.iter_mut().zip(grads).for_each(|(mean, grad)| {
                *mean += *grad / orders.len() as f64;
                *grad = 0.0;
            });
        }
        Ok(mean)
    });
    let found: Vec<Vec<f64>> = found.into_iter().map(Result::unwrap).collect();
    assert!(found.iter().all(|gradient| gradient == &found[0]), "all ways have the same gradient");
    found[0].clone()
}

fn distance(one: &[f64], other: &[f64]) -> f64 {
    let square: f64 = one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum();
    (square / other.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

#[test]
fn scaled_gradients_are_unbiased_through_one_aggregation() {
    let data = dataset();
    // Models with weights below their only aggregation.
    for kind in [Kind::Gcnii, Kind::Resgcn, Kind::Gat] {
        let whole = mean_gradient(&data, &config(kind, 1, 1));
        assert!(whole.iter().any(|x| x.abs() > 1e-3));
        for (ways, slots) in [(1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (3, 2)] {
            let mut config = config(kind, ways, ways * slots);
            for weights in [GradientWeighting::Doubled, GradientWeighting::Position] {
                config.layers.gradient_weights = weights;
                let apart = distance(&mean_gradient(&data, &config), &whole);
                assert!(apart < 1e-9, "{kind:?}, {weights:?}, {ways} ways of {slots} chunks: {apart}");
            }
            config.layers.gradient_weights = GradientWeighting::Unscaled;
            let apart = distance(&mean_gradient(&data, &config), &whole);
            assert!(slots == 1 || apart > 1e-3, "{kind:?}, {ways} ways of {slots} chunks: {apart}");
        }
    }
}
