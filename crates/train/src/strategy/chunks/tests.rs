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

/// One layer on `stages` groups of `ways` ranks.
fn config(kind: Kind, (stages, ways): (usize, usize), chunks: usize) -> Config {
    let mut config = Config::new(kind);
    (config.model.layers, config.model.hidden, config.model.heads) = (1, 4, 2);
    config.model.dropout = 0.0;
    (config.train.strategy, config.train.ranks) = (StrategyKind::Hybrid, stages * ways);
    (config.layers.stages, config.layers.chunks) = (Some(stages as u64), Some(chunks as u64));
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

/// Runs `work` on every rank of `config` with the stages of the rank; returns what it returns, by rank.
fn on_ranks<R: Send>(
    data: &Dataset,
    config: &Config,
    work: impl Fn(&mut Chunked<f64>, &mut Model<f64>) -> Result<R> + Sync,
) -> Vec<R> {
    let ways = config.parts();
    let parts = (0..NODES).map(|v| (v * ways / NODES) as u32).collect();
    let assignment = Assignment::new(ways as u32, parts).unwrap();
    let layout = Layout::of(data, &assignment).unwrap();
    let found = threads::run(config.train.ranks, &Options::default(), |comm| -> Result<R> {
        let shard = layout.cut(config.part_of(comm.rank()))?;
        let world = RankLink::new(comm, true);
        let grid = Grid::new(&world, config.stage_groups())?;
        let model = Model::<f64>::new(&config.model, FEATURES, 3, 1);
        let data = load(&shard, &grid, config, Scaling::None, model.hops())?;
        let stages = plan(&model, &config.model, &data, grid.stages);
        let mut model = model.restricted_to(stages.groups[grid.stage].clone());
        data.prepare(&grid.link, &model)?;
        let meter = StepMeter::new(None);
        let links = Links { world: &world, grid: &grid };
        let mut chunked = Chunked::new(config, &model, &data, links, &stages, &meter)?;
        work(&mut chunked, &mut model)
    });
    found.into_iter().map(Result::unwrap).collect()
}

/// The gradient of all weights, with history as it is: the mean over all orders of chunks.
fn mean_gradient(data: &Dataset, config: &Config) -> Vec<f64> {
    let found = on_ranks(data, config, |chunked, model| {
        chunked.initialise_history(model)?;
        let orders = orders(chunked.chunks());
        let mut mean = vec![0.0; model.params().map(|p| p.grad.len()).sum()];
        for (at, order) in orders.iter().enumerate() {
            let step = Step { epoch: 1 + at as u64, step: 0, key: Key::new(1, "dropout") };
            let order = StepOrder::of(order.clone(), chunked.chunks());
            chunked.run_step(model, &step, &order, &Requests::default)?;
            let grads = model.params_mut().flat_map(|p| p.grad.iter_mut());
            mean.iter_mut().zip(grads).for_each(|(mean, grad)| {
                *mean += *grad / orders.len() as f64;
                *grad = 0.0;
            });
        }
        Ok(mean)
    });
    let groups = found.chunks(config.parts());
    let is_equal = |group: &[Vec<f64>]| group.iter().all(|gradient| gradient == &group[0]);
    assert!(groups.clone().all(is_equal), "all ways have the same gradient");
    groups.flat_map(|group| group[0].clone()).collect()
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
        let whole = mean_gradient(&data, &config(kind, (1, 1), 1));
        assert!(whole.iter().any(|x| x.abs() > 1e-3));
        let stages = config(kind, (1, 1), 1).model.stage_sizes(FEATURES, 3).len();
        let splits = [
            ((1, 1), 2),
            ((1, 1), 3),
            ((1, 1), 4),
            ((1, 2), 1),
            ((1, 2), 2),
            ((1, 2), 3),
            ((1, 3), 2),
            ((2, 1), 3),
            ((2, 2), 3),
        ];
        for (ranks, slots) in splits.into_iter().filter(|((groups, _), _)| *groups <= stages) {
            let mut config = config(kind, ranks, ranks.1 * slots);
            let what = format!("{kind:?}, {ranks:?} groups and ways, {slots} chunks each");
            for weights in [GradientWeighting::Doubled, GradientWeighting::Position] {
                config.layers.gradient_weights = weights;
                let apart = distance(&mean_gradient(&data, &config), &whole);
                assert!(apart < 1e-9, "{what}, {weights:?}: {apart}");
            }
            config.layers.gradient_weights = GradientWeighting::Unscaled;
            let apart = distance(&mean_gradient(&data, &config), &whole);
            assert!(slots == 1 || apart > 1e-3, "{what}: {apart}");
        }
    }
}

#[test]
fn groups_of_stages_have_the_gradient_of_one_group() {
    let data = dataset();
    for kind in Kind::ALL {
        let deep = |ranks, chunks| {
            let mut config = config(kind, ranks, chunks);
            config.model.layers = 4;
            config
        };
        let whole = mean_gradient(&data, &deep((1, 1), 3));
        // The first of five groups of gcnii is its initial stage alone.
        let most = deep((1, 1), 3).model.stage_sizes(FEATURES, 3).len();
        for stages in [2, 4, 5].into_iter().filter(|&stages| stages <= most) {
            let apart = distance(&mean_gradient(&data, &deep((stages, 1), 3)), &whole);
            assert!(apart < 1e-12, "{kind:?} in {stages} groups: {apart}");
        }
    }
}

#[test]
fn a_checkpoint_of_other_chunks_is_refused() {
    let data = dataset();
    for split in [(2, 1), (2, 2)] {
        let config = config(Kind::Gcnii, split, 4 * split.1);
        let problems = on_ranks(&data, &config, |chunked, model| {
            chunked.initialise_history(model)?;
            let mut state = chunked.save()?;
            chunked.load("checkpoint", &state)?;
            let digest = Tensor::count(state.count("checkpoint", CHUNKS)? ^ 1);
            state.0.insert(CHUNKS.into(), digest);
            Ok(chunked.load("checkpoint", &state).unwrap_err().to_string())
        });
        for problem in problems {
            assert!(problem.starts_with("checkpoint: rows of other chunks of the graph"), "{problem}");
            assert!(problem.contains("help: METIS cuts the same chunks only"), "{problem}");
        }
    }
}

#[test]
fn digests_of_chunks_depend_on_every_row() {
    let data = dataset();
    let digests = |chunks| {
        let config = config(Kind::Gcnii, (1, 1), chunks);
        on_ranks(&data, &config, |chunked, _| Ok(chunked.data.chunks().digest()))[0]
    };
    assert_eq!(digests(4), digests(4));
    assert_ne!(digests(4), digests(5));
}
