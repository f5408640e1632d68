//! Batches that ranks prepare together: those of one process, whatever the parts and macrobatches are.

mod bytes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use half::f16;
use halograph_comm::{Options, Purpose, threads};
use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::partition::{Assignment, Layout};
use halograph_graph::sample::{Neighbors, Sample, SampleSpec, Sampler, SamplerKind};
use halograph_kernels::keyed::Key;
use halograph_kernels::sparse::Pattern;
use halograph_nn::model::Kind;

use super::super::Seeds;
use super::loader::{LoadCounts, Macrobatch};
use super::*;
use crate::boundary::Exchange;
use crate::config::{Config, RowCache, StrategyKind};
use crate::data::{Data, Scaling};
use crate::stage::StageBlock;
use crate::strategy::minibatch::DataParallelRelay;
use crate::strategy::split::SplitRelay;

const NODES: usize = 120;
const FEATURES: usize = 5;
const BATCH: u64 = 7;
const EPOCHS: u64 = 2;
/// Batches of an epoch: 60 training nodes.
const BATCHES: u64 = 9;
const ALL: u64 = u64::MAX;
const STRATEGIES: [StrategyKind; 2] = [StrategyKind::Minibatch, StrategyKind::Split];

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

/// For `minibatch`.
fn config(kind: Kind, sampler: SamplerKind, fanout: &[i64]) -> Config {
    let mut config = Config::new(kind);
    (config.model.layers, config.model.input_dropout) = (fanout.len(), 0.0);
    (config.train.strategy, config.train.epochs) = (StrategyKind::Minibatch, EPOCHS);
    (config.train.sampler, config.train.fanout) = (sampler, fanout.to_vec());
    config.train.batch_size = BATCH;
    config
}

fn with_strategy(strategy: StrategyKind, config: &Config) -> Config {
    let mut config = config.clone();
    config.train.strategy = strategy;
    config
}

fn relay<'g>(config: &Config, graph: &'g RankGraph<'g>) -> Box<dyn Relay + 'g> {
    match config.train.strategy {
        StrategyKind::Split => Box::new(SplitRelay::new(config, graph)),
        _ => Box::new(DataParallelRelay::new(graph)),
    }
}

/// A random part of each vertex; the last of several ranks owns none if `leaves_one_empty`.
fn assignment(ranks: usize, leaves_one_empty: bool) -> Assignment {
    let used = if leaves_one_empty && ranks > 1 { ranks - 1 } else { ranks };
    let key = Key::new(ranks as u64, "parts");
    Assignment::new(ranks as u32, (0..NODES as u64).map(|v| key.below(v, used as u64) as u32).collect())
        .unwrap()
}

/// Drawn neighbours of each destination, as dataset ids in the order in which they were drawn; those in the halo are last.
type Lists = BTreeMap<u32, Vec<u32>>;

fn lists(sample: &Sample, hop: usize) -> Lists {
    let block = sample.block(hop);
    let pattern = block.pattern();
    let id = |row: &u32| block.id(*row as usize);
    let halo = block.halo().map(|halo| (halo.pattern(), halo.ids()));
    let remote = |r: usize| {
        let ids = |(pattern, ids): &(Pattern, &[u32])| -> Vec<u32> {
            pattern.columns[pattern.row(r)].iter().map(|&row| ids[row as usize]).collect()
        };
        halo.as_ref().map_or(Vec::new(), ids)
    };
    let list = |r: usize| {
        (block.id(r), pattern.columns[pattern.row(r)].iter().map(id).chain(remote(r)).collect::<Vec<u32>>())
    };
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

impl Batch {
    /// Sorts the lists of neighbours.
    fn sorted(mut self) -> Self {
        self.hops.iter_mut().flat_map(Lists::values_mut).for_each(|list| list.sort_unstable());
        self
    }
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
    let data: Data<f32> = Data::load(data, config.graphs(), Scaling::None, None).unwrap();
    let model = Model::new(&config.model, FEATURES, 3, 0);
    data.train.prepare(&model, &StageBlock::local(data.train.block.clone()), None).unwrap();
    let seeds_of = Seeds::new(&config.train, &data.parts[0], &data.train.block);
    assert_eq!(seeds_of.batches(), BATCHES);
    let spec = SampleSpec { kind: config.train.sampler, fanouts: config.sampled_fanouts() };
    let neighbors = Neighbors::of(&data.train.block);
    let mut sampler = Sampler::new(&neighbors, &spec);
    let mut all = Vec::new();
    for epoch in 1..=config.train.epochs {
        let shuffled = seeds_of.shuffled(epoch);
        for step in 0..BATCHES {
            let (seeds, rows) = seeds_of.batch(&shuffled, step);
            let mut sample = Sample::default();
            sampler.sample(seeds_of.sample_key(epoch, step), &rows, &mut sample);
            let caches_aggregate = config.train.cache_input_aggregate;
            let input = data.train.input_of(&model, sample.rows(), caches_aggregate).unwrap();
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
    /// Rows sent and received in each hop of each batch, if there is an exchange.
    exchanges: Vec<Vec<Option<(usize, usize)>>>,
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
        let data: ShardData<f32> = ShardData::load(&shard, &link, config.graphs(), Scaling::None, 0)?;
        let model = Model::new(&config.model, FEATURES, 3, 0);
        data.prepare(&link, &model)?;
        let graph = data.sampled_graph();
        let source = RankSource::new(config, &model, &data, &graph, &link)?;
        let row_bytes = source.rows.row_bytes();
        let kept = KeptRows::new(how.cache, source.graph.numbers.nodes(), how.kept_rows, row_bytes);
        let fetcher = Fetcher::new(&source, kept);
        let macrobatch = how.macrobatch.min(BATCHES);
        let plan = MacrobatchPlan { macrobatch, coming: how.coming, kept_rows: how.kept_rows };
        let relay = relay(config, &source.graph);
        let reads_remote_inputs = relay.reads_remote_inputs();
        let mut preparation = Preparation::new(&source, relay, fetcher, plan);
        let before = comm.sent();
        let mut found = Prepared { row_bytes, ..Prepared::default() };
        while let Some(Macrobatch { batches, rows, counts, .. }) = preparation.prepare()? {
            let mut remote = BTreeSet::new();
            for RankBatch { seeds, sample, inputs, exchanges } in &batches {
                assert_eq!(
                    seeds.of_all_ranks,
                    BATCH.min(60 - (found.batches.len() as u64 % BATCHES) * BATCH)
                );
                let input = source.rows.gather(inputs, &rows.bytes);
                found.batches.push(batch(sample, seeds.rows.len(), &input));
                let is_remote = |id: &&u32| assignment.of()[**id as usize] as usize != comm.rank();
                remote.extend(sample.ids().iter().filter(is_remote));
                let sizes = |exchange: &Option<Arc<Exchange>>| {
                    exchange.as_ref().map(|exchange| (exchange.sent_rows(), exchange.halo_rows()))
                };
                found.exchanges.push(exchanges.iter().map(sizes).collect());
            }
            assert!(reads_remote_inputs || remote.is_empty());
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

/// Joins the batches of all ranks: what two ranks have of a vertex must be the same. `is_split`: no two ranks may have the
/// neighbours of a vertex.
#[track_caller]
fn joined(ranks: &[Prepared], is_split: bool, what: &str) -> Vec<Batch> {
    let mut all = vec![Batch::default(); ranks[0].batches.len()];
    for rank in ranks {
        assert_eq!(rank.batches.len(), all.len(), "{what}");
        for (whole, part) in all.iter_mut().zip(&rank.batches) {
            for &seed in &part.seeds {
                assert!(whole.seeds.insert(seed), "{what}: seed {seed} on two ranks");
            }
            whole.hops.resize(part.hops.len(), Lists::new());
            for (hop, (whole, part)) in whole.hops.iter_mut().zip(&part.hops).enumerate() {
                let twice = part.keys().find(|id| is_split && whole.contains_key(id));
                assert!(twice.is_none(), "{what}, hop {hop}: vertex {twice:?} on two ranks");
                merge(whole, part, what);
            }
            merge(&mut whole.rows, &part.rows, what);
        }
    }
    for (batch, whole) in all.iter().enumerate() {
        for hop in 0..whole.hops.len() {
            let sizes: Vec<(usize, usize)> =
                ranks.iter().filter_map(|rank| rank.exchanges[batch][hop]).collect();
            assert!(is_split || sizes.is_empty(), "{what}");
            let (sent, received): (Vec<usize>, Vec<usize>) = sizes.into_iter().unzip();
            assert_eq!(sent.iter().sum::<usize>(), received.iter().sum::<usize>(), "{what}");
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

/// Which batches ranks prepare.
type Case = (Kind, SamplerKind, [i64; 3], bool, bool, bool);

/// All batches of ranks together are those of one process.
fn assert_batches_of_one_process(strategy: StrategyKind, cases: &[Case]) {
    let is_split = strategy == StrategyKind::Split;
    for &(kind, sampler, fanout, is_half, inductive, caches) in cases {
        let data = dataset(is_half);
        let mut config = with_strategy(strategy, &config(kind, sampler, &fanout));
        (config.data.inductive, config.train.cache_input_aggregate) = (inductive, caches);
        let sorted = |batch: Batch| if is_split { batch.sorted() } else { batch };
        let want: Vec<Batch> = batches_of_one_process(&data, &config).into_iter().map(sorted).collect();
        for ranks in 1..=4 {
            for (i, macrobatch) in [1, 2, 5, ALL].into_iter().enumerate() {
                let what =
                    format!("{kind:?}, {sampler:?}, {fanout:?}, {ranks} ranks, macrobatches of {macrobatch}");
                let parts = assignment(ranks, i % 2 == 1);
                let found = prepared(&data, &config, &parts, in_macrobatches_of(macrobatch));
                let joined = joined(&found, is_split, &what).into_iter().map(sorted).collect();
                assert_same_batches(joined, want.clone(), &what);
                assert_each_row_is_loaded_once(&found, &want, macrobatch, &what);
            }
        }
    }
}

/// Without a cache, owners read each input row once per macrobatch.
#[track_caller]
fn assert_each_row_is_loaded_once(ranks: &[Prepared], want: &[Batch], macrobatch: u64, what: &str) {
    let epochs = want.chunks(BATCHES as usize);
    let macrobatches = epochs.flat_map(|epoch| epoch.chunks(macrobatch.min(BATCHES) as usize));
    for (at, batches) in macrobatches.enumerate() {
        let rows: BTreeSet<&u32> = batches.iter().flat_map(|batch| batch.rows.keys()).collect();
        let loaded: u64 = ranks.iter().map(|rank| rank.macrobatches[at].loaded_rows).sum();
        assert_eq!(loaded, rows.len() as u64, "{what}, macrobatch {at}");
    }
}

#[test]
fn ranks_prepare_the_batches_of_one_process() {
    let cases = [
        (Kind::Sage, SamplerKind::Neighbor, [4, 3, 2], false, false, false),
        (Kind::Sage, SamplerKind::Labor, [4, 3, 2], false, true, false),
        (Kind::Sage, SamplerKind::Labor, [-1, 2, -1], true, false, false),
        (Kind::Sage, SamplerKind::Neighbor, [3, -1, 3], true, false, true),
        (Kind::Sage, SamplerKind::Neighbor, [3, 2, -1], false, true, true),
        // Reads the aggregate alone.
        (Kind::Gcn, SamplerKind::Labor, [3, 4, 2], false, false, true),
    ];
    assert_batches_of_one_process(StrategyKind::Minibatch, &cases);
    // Exchanges projected rows instead of features.
    let projected = [
        (Kind::Gat, SamplerKind::Neighbor, [4, 3, 2], false, false, false),
        (Kind::Gcnii, SamplerKind::Labor, [2, -1, 3], true, true, false),
    ];
    assert_batches_of_one_process(StrategyKind::Split, &[&cases[..], &projected].concat());
}

#[test]
fn each_row_is_fetched_once_per_macrobatch_and_exchanges_are_few() {
    let data = dataset(false);
    // Bytes of a row, and all-to-alls per macrobatch: of `minibatch` two for each hop after the first, of `split` one for each
    // hop whose rows are exchanged; two to fetch rows.
    let cases = [
        (Kind::Sage, false, 4, [4 + 2, 2 + 2]),
        (Kind::Sage, true, 8, [2 + 2, 2]),
        (Kind::Gcn, true, 4, [2 + 2, 2]),
        (Kind::Gat, false, 4, [4 + 2, 2 + 2]),
    ];
    for (kind, caches, row_bytes, relays) in cases {
        let row_bytes = row_bytes * FEATURES;
        for (strategy, relays) in STRATEGIES.into_iter().zip(relays) {
            let mut config = with_strategy(strategy, &config(kind, SamplerKind::Neighbor, &[4, 3, 2]));
            config.train.cache_input_aggregate = caches;
            let fetches = strategy == StrategyKind::Minibatch || relays == 2 + 2;
            let mut fetched_before = u64::MAX;
            for macrobatch in [1, 2, 5, ALL] {
                let found = prepared(&data, &config, &assignment(3, false), in_macrobatches_of(macrobatch));
                let per_epoch = BATCHES.div_ceil(macrobatch);
                let fetched =
                    |rank: &Prepared| rank.macrobatches.iter().map(|m| m.fetched.fetched_rows).sum::<u64>();
                for rank in &found {
                    assert_eq!(rank.macrobatches.len() as u64, EPOCHS * per_epoch);
                    assert!(rank.macrobatches.iter().all(|m| m.relays == relays), "{strategy:?}, {kind:?}");
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
                    all < fetched_before || !fetches && all == 0,
                    "{all} rows with macrobatches of {macrobatch}, {fetched_before} before"
                );
                fetched_before = all;
            }
        }
    }
}

#[test]
fn kept_rows_are_not_fetched_again_and_change_no_batch() {
    STRATEGIES.into_iter().for_each(assert_kept_rows_are_not_fetched_again);
}

fn assert_kept_rows_are_not_fetched_again(strategy: StrategyKind) {
    let (data, is_split) = (dataset(false), strategy == StrategyKind::Split);
    let config = with_strategy(strategy, &config(Kind::Sage, SamplerKind::Neighbor, &[3, 2]));
    let parts = assignment(3, false);
    let sorted = |batches: Vec<Batch>| batches.into_iter().map(Batch::sorted).collect::<Vec<_>>();
    let want = sorted(batches_of_one_process(&data, &config));
    for macrobatch in [1, 3] {
        let plain = in_macrobatches_of(macrobatch);
        let fetched = |cache: RowCache, kept_rows: usize, coming: usize| {
            let how = Preparing { cache, kept_rows, coming, ..plain };
            let what = format!("{strategy:?}, {how:?}");
            let found = prepared(&data, &config, &parts, how);
            assert_same_batches(sorted(joined(&found, is_split, &what)), want.clone(), &what);
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
