//! Batches that ranks prepare together: those of one process, whatever the parts and macrobatches are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use half::f16;
use halograph_comm::{Options, Purpose, threads};
use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::partition::{Assignment, Layout};
use halograph_graph::sample::{Sample, Sampler, SamplerKind};
use halograph_kernels::keyed::Key;
use halograph_nn::model::Kind;

use super::super::BatchSource;
use super::loader::{LoadCounts, Macrobatch};
use super::*;
use crate::config::{Config, RowCache, StrategyKind};
use crate::data::{Data, Scaling};
use crate::stage::StageBlock;

const NODES: usize = 120;
const FEATURES: usize = 5;
const BATCH: u64 = 7;
const EPOCHS: u64 = 2;
/// Batches of an epoch: 60 training nodes.
const BATCHES: u64 = 9;
const ALL: u64 = u64::MAX;

/// A random graph with a hub, self-loops and isolated vertices; every other vertex is trained on.
fn dataset(is_half: bool) -> Dataset {
    let (key, linked) = (Key::new(3, "edges"), NODES as u64 - 4);
    let end = |i: u64| key.below(i, linked) as u32;
    let random = (0..3 * linked).map(|i| (end(2 * i), end(2 * i + 1)));
    let edges: Vec<(u32, u32)> = random.chain((1..linked as u32).step_by(2).map(|v| (0, v))).collect();
    let options = EdgeOptions { directed: false, keep_self_loops: true };
    let graph = GraphArrays::from_edges(NODES, &edges, options).unwrap();
    let numbers = (0..(NODES * FEATURES) as u64).map(|i| key.approx_normal(i));
    let features = match is_half {
        true => FeatureArray::f16(FEATURES, numbers.map(f16::from_f32).collect()),
        false => FeatureArray::f32(FEATURES, numbers.collect()),
    };
    let labels = Labels::Single((0..NODES as i64).map(|v| v % 3).collect());
    let split = (0..NODES).map(|v| [1, 3][v % 2]).collect();
    Dataset::from_arrays(DatasetArrays::new("test", graph, features, labels, split)).unwrap()
}

fn config(kind: Kind, sampler: SamplerKind, fanout: &[i64]) -> Config {
    let mut config = Config::new(kind);
    (config.model.layers, config.model.input_dropout) = (fanout.len(), 0.0);
    (config.train.strategy, config.train.epochs) = (StrategyKind::Minibatch, EPOCHS);
    (config.train.sampler, config.train.fanout) = (sampler, fanout.to_vec());
    config.train.batch_size = BATCH;
    config
}

/// A random part of each vertex; the last of several ranks owns none if `leaves_one_empty`.
fn assignment(ranks: usize, leaves_one_empty: bool) -> Assignment {
    let used = if leaves_one_empty && ranks > 1 { ranks - 1 } else { ranks };
    let key = Key::new(ranks as u64, "parts");
    Assignment::new(ranks as u32, (0..NODES as u64).map(|v| key.below(v, used as u64) as u32).collect())
        .unwrap()
}

/// Drawn neighbours of each destination, as dataset ids in the order in which they were drawn.
type Lists = BTreeMap<u32, Vec<u32>>;

fn lists(sample: &Sample, hop: usize) -> Lists {
    let block = sample.block(hop);
    let pattern = block.pattern();
    let id = |row: &u32| block.id(*row as usize);
    let list = |r: usize| (block.id(r), pattern.columns[pattern.row(r)].iter().map(id).collect());
    (0..pattern.rows()).map(list).collect()
}

/// What a batch reads of a vertex.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    degree: u32,
    /// Empty if the model reads the aggregate alone.
    features: Vec<f32>,
    aggregate: Option<Vec<f32>>,
}

/// A batch of one process, of a rank, or of all ranks together.
#[derive(Debug, Clone, Default, PartialEq)]
struct Batch {
    seeds: BTreeSet<u32>,
    hops: Vec<Lists>,
    rows: BTreeMap<u32, Row>,
}

fn batch(sample: &Sample, seeds: usize, input: &ModelInput<f32>) -> Batch {
    let features = input.features.full();
    let is_read = input.aggregate.as_ref().is_none_or(|aggregate| !Arc::ptr_eq(aggregate, &features));
    let degrees = |at: usize| match sample.hops() {
        0 => 0,
        hops => sample.block(hops - 1).degrees()[at],
    };
    let row = |at: usize| Row {
        degree: degrees(at),
        features: if is_read { features.run(at..at + 1).to_vec() } else { Vec::new() },
        aggregate: input.aggregate.as_ref().map(|all| all.run(at..at + 1).to_vec()),
    };
    let ids = sample.ids();
    Batch {
        seeds: ids[..seeds].iter().copied().collect(),
        hops: (0..sample.hops()).map(|hop| lists(sample, hop)).collect(),
        rows: ids.iter().enumerate().map(|(at, &id)| (id, row(at))).collect(),
    }
}

/// All batches of one process.
fn batches_of_one_process(data: &Dataset, config: &Config) -> Vec<Batch> {
    let data: Data<f32> = Data::load(data, config.data.inductive, Scaling::None, None).unwrap();
    let model = Model::new(&config.model, FEATURES, 3, 0);
    data.train.prepare(&model, &StageBlock::local(data.train.block.clone()), None).unwrap();
    let source = BatchSource::new(config, &data);
    assert_eq!(source.seeds.batches(), BATCHES);
    let mut sampler = Sampler::new(&source.neighbors, &source.spec);
    let mut all = Vec::new();
    for epoch in 1..=EPOCHS {
        let shuffled = source.seeds.shuffled(epoch);
        for step in 0..BATCHES {
            let (seeds, rows) = source.seeds.batch(&shuffled, step);
            let mut sample = Sample::default();
            sampler.sample(source.seeds.sample_key(epoch, step), &rows, &mut sample);
            let input = data.train.input_of(&model, sample.rows(), source.caches_aggregate).unwrap();
            all.push(batch(&sample, seeds.len(), &input));
        }
    }
    all
}

/// What a rank prepares.
#[derive(Default)]
struct Prepared {
    batches: Vec<Batch>,
    macrobatches: Vec<LoadCounts>,
    /// Distinct remote vertices of each macrobatch.
    remote: Vec<BTreeSet<u32>>,
    row_bytes: usize,
    sent_features: u64,
}

/// How ranks prepare batches.
#[derive(Debug, Clone, Copy)]
struct Preparing {
    macrobatch: u64,
    cache: RowCache,
    kept_rows: usize,
    coming: usize,
}

/// Without a cache.
fn in_macrobatches_of(macrobatch: u64) -> Preparing {
    Preparing { macrobatch, cache: RowCache::None, kept_rows: 0, coming: 0 }
}

/// Prepares all batches on ranks; returns what each rank prepared.
fn prepared(data: &Dataset, config: &Config, assignment: &Assignment, how: Preparing) -> Vec<Prepared> {
    let layout = Layout::of(data, assignment).unwrap();
    let ranks = assignment.parts() as usize;
    let all = threads::run(ranks, &Options::default(), |comm| -> Result<Prepared> {
        let shard = layout.cut(comm.rank() as u32)?;
        let link = RankLink::new(comm, true);
        let data: ShardData<f32> = ShardData::load(&shard, &link, config.data.inductive, Scaling::None, 0)?;
        let model = Model::new(&config.model, FEATURES, 3, 0);
        data.prepare(&link, &model)?;
        let graph = data.sampled_graph();
        let source = RankSource::new(config, &model, &data, &graph, &link)?;
        let row_bytes = source.rows.row_bytes();
        let kept = KeptRows::new(how.cache, source.graph.numbers.nodes(), how.kept_rows, row_bytes);
        let fetcher = Fetcher::new(&source, kept);
        let macrobatch = how.macrobatch.min(BATCHES);
        let plan = MacrobatchPlan { macrobatch, coming: how.coming, kept_rows: how.kept_rows };
        let mut preparation = Preparation::new(&source, Relay::new(&source.graph), fetcher, plan);
        let before = comm.sent();
        let mut found = Prepared { row_bytes, ..Prepared::default() };
        while let Some(Macrobatch { batches, rows, counts, .. }) = preparation.prepare()? {
            let mut remote = BTreeSet::new();
            for RankBatch { seeds, sample, inputs } in &batches {
                assert_eq!(
                    seeds.of_all_ranks,
                    BATCH.min(60 - (found.batches.len() as u64 % BATCHES) * BATCH)
                );
                let input = source.rows.gather(inputs, &rows.bytes);
                found.batches.push(batch(sample, seeds.rows.len(), &input));
                let is_remote = |id: &&u32| assignment.of()[**id as usize] as usize != comm.rank();
                remote.extend(sample.ids().iter().filter(is_remote));
            }
            found.macrobatches.push(counts);
            found.remote.push(remote);
        }
        found.sent_features = comm.sent().since(&before).bytes(Purpose::Features);
        // The others may still wait for messages of this rank.
        comm.barrier(crate::tags::Control::ResumeReady.tag())?;
        Ok(found)
    });
    all.into_iter().map(|rank| rank.unwrap()).collect()
}

/// Joins the batches of all ranks: what two ranks have of a vertex must be the same.
#[track_caller]
fn joined(ranks: &[Prepared], what: &str) -> Vec<Batch> {
    let mut all = vec![Batch::default(); ranks[0].batches.len()];
    for rank in ranks {
        assert_eq!(rank.batches.len(), all.len(), "{what}");
        for (whole, part) in all.iter_mut().zip(&rank.batches) {
            for &seed in &part.seeds {
                assert!(whole.seeds.insert(seed), "{what}: seed {seed} on two ranks");
            }
            whole.hops.resize(part.hops.len(), Lists::new());
            for (whole, part) in whole.hops.iter_mut().zip(&part.hops) {
                merge(whole, part, what);
            }
            merge(&mut whole.rows, &part.rows, what);
        }
    }
    all
}

#[track_caller]
fn merge<V: Clone + PartialEq + std::fmt::Debug>(
    whole: &mut BTreeMap<u32, V>,
    part: &BTreeMap<u32, V>,
    what: &str,
) {
    for (id, value) in part {
        let known = whole.entry(*id).or_insert_with(|| value.clone());
        assert_eq!(known, value, "{what}: vertex {id} differs between ranks");
    }
}

/// Rounds aggregates, which owners sum in another order.
#[track_caller]
fn assert_same_batches(mut got: Vec<Batch>, mut want: Vec<Batch>, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter_mut().zip(&mut want) {
        assert_eq!(got.rows.keys().collect::<Vec<_>>(), want.rows.keys().collect::<Vec<_>>(), "{what}");
        for (got, want) in got.rows.values_mut().zip(want.rows.values_mut()) {
            if let (Some(got), Some(want)) = (got.aggregate.take(), want.aggregate.take()) {
                assert!(
                    got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-5),
                    "{what}: {got:?} and {want:?}"
                );
            }
        }
    }
    assert!(got == want, "{what}: other batches");
}

#[test]
fn ranks_prepare_the_batches_of_one_process() {
    for (kind, sampler, fanout, is_half, inductive, caches) in [
        (Kind::Sage, SamplerKind::Neighbor, [4, 3, 2], false, false, false),
        (Kind::Sage, SamplerKind::Labor, [4, 3, 2], false, true, false),
        (Kind::Sage, SamplerKind::Labor, [-1, 2, -1], true, false, false),
        (Kind::Sage, SamplerKind::Neighbor, [3, -1, 3], true, false, true),
        (Kind::Sage, SamplerKind::Neighbor, [3, 2, -1], false, true, true),
        // Reads the aggregate alone.
        (Kind::Gcn, SamplerKind::Labor, [3, 4, 2], false, false, true),
    ] {
        let data = dataset(is_half);
        let mut config = config(kind, sampler, &fanout);
        (config.data.inductive, config.train.cache_input_aggregate) = (inductive, caches);
        let want = batches_of_one_process(&data, &config);
        for ranks in 1..=4 {
            for (i, macrobatch) in [1, 2, 5, ALL].into_iter().enumerate() {
                let what =
                    format!("{kind:?}, {sampler:?}, {fanout:?}, {ranks} ranks, macrobatches of {macrobatch}");
                let parts = assignment(ranks, i % 2 == 1);
                let found = prepared(&data, &config, &parts, in_macrobatches_of(macrobatch));
                assert_same_batches(joined(&found, &what), want.clone(), &what);
            }
        }
    }
}

#[test]
fn a_macrobatch_takes_two_exchanges_per_hop_and_fetches_each_row_once() {
    let data = dataset(false);
    for (kind, caches, row_bytes) in [(Kind::Sage, false, 4), (Kind::Sage, true, 8), (Kind::Gcn, true, 4)]
        .map(|(k, c, b)| (k, c, b * FEATURES))
    {
        let mut config = config(kind, SamplerKind::Neighbor, &[4, 3, 2]);
        config.train.cache_input_aggregate = caches;
        let hops = config.sampled_fanouts().len() as u64;
        let mut fetched_before = u64::MAX;
        for macrobatch in [1, 2, 5, ALL] {
            let found = prepared(&data, &config, &assignment(3, false), in_macrobatches_of(macrobatch));
            let per_epoch = BATCHES.div_ceil(macrobatch);
            let fetched =
                |rank: &Prepared| rank.macrobatches.iter().map(|m| m.fetched.fetched_rows).sum::<u64>();
            for rank in &found {
                assert_eq!(rank.macrobatches.len() as u64, EPOCHS * per_epoch);
                let relays: u64 = rank.macrobatches.iter().map(|m| m.relays).sum();
                assert_eq!(relays, EPOCHS * per_epoch * 2 * hops);
                for (counts, remote) in rank.macrobatches.iter().zip(&rank.remote) {
                    assert_eq!(counts.fetched.remote_rows, remote.len() as u64);
                    assert_eq!(counts.fetched.fetched_rows, remote.len() as u64);
                }
            }
            let all: u64 = found.iter().map(fetched).sum();
            // A request is the number of a row; the reply is its id, its degree and the row.
            let bytes: u64 = found.iter().map(|rank| rank.sent_features).sum();
            assert_eq!(bytes, all * (4 + 8 + row_bytes as u64), "{kind:?}, macrobatches of {macrobatch}");
            assert!(found.iter().all(|rank| rank.row_bytes == row_bytes));
            assert!(
                all < fetched_before,
                "{all} rows with macrobatches of {macrobatch}, {fetched_before} before"
            );
            fetched_before = all;
        }
    }
}

#[test]
fn kept_rows_are_not_fetched_again_and_change_no_batch() {
    let data = dataset(false);
    let config = config(Kind::Sage, SamplerKind::Neighbor, &[3, 2]);
    let parts = assignment(3, false);
    let want = batches_of_one_process(&data, &config);
    for macrobatch in [1, 3] {
        let plain = in_macrobatches_of(macrobatch);
        let fetched = |cache: RowCache, kept_rows: usize, coming: usize| {
            let how = Preparing { cache, kept_rows, coming, ..plain };
            let found = prepared(&data, &config, &parts, how);
            assert_same_batches(joined(&found, &format!("{how:?}")), want.clone(), &format!("{how:?}"));
            let counts =
                |rank: &Prepared| rank.macrobatches.iter().map(|m| m.fetched.fetched_rows).sum::<u64>();
            found.iter().map(counts).sum::<u64>()
        };
        let none = fetched(RowCache::None, 0, 0);
        let [lru, degree, future] = [(RowCache::Lru, 0), (RowCache::Degree, 0), (RowCache::Future, 3)]
            .map(|(cache, coming)| fetched(cache, 20, coming));
        assert!(lru < none && degree < none, "{lru} and {degree} of {none}");
        assert!(future < lru && future < degree, "{future} where other policies fetch {lru} and {degree}");
        // Room for all: every row is fetched once, by each rank that needs it.
        let once = fetched(RowCache::Lru, NODES, 0);
        assert!(once <= 2 * NODES as u64 && once < future, "{once}");
        assert_eq!(fetched(RowCache::Future, NODES, 2), once);
    }
}
