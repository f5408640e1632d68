//! What `split` sends and computes: to the byte what the blocks of one process and the owners of vertices imply.

use std::collections::BTreeSet;

use halograph_comm::Purpose;
use halograph_graph::partition::Assignment;
use halograph_nn::Project;
use halograph_nn::model::{ActivationKind, NormKind, StageMessages};

use super::*;
use crate::config::RowEncoding;
use crate::event::{Event, Observer};
use crate::launch::{self, Extras, Leader};
use crate::run::{DataRef, Header, MemoryRun};
use crate::summary::Summary;

const RANKS: usize = 3;
/// Wider than one word of a bitmap.
const HIDDEN: usize = 72;
const CLASSES: usize = 3;

struct NoObserver;

impl Observer for NoObserver {
    fn on(&mut self, _: &Event) {}
}

fn train(data: &Dataset, config: &Config, assignment: &Assignment) -> Summary {
    let header = Header { data: DataRef::new(data).unwrap(), config: config.clone() };
    let mut run = MemoryRun::new(header);
    let leader = Leader { world: None, run: &mut run, from: None, observer: &mut NoObserver };
    let extras = Extras { assignment: Some(assignment), ..Extras::default() };
    launch::train(data.into(), leader, extras).unwrap()
}

/// Bytes by purpose that all ranks send in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes {
    sampling: u64,
    features: u64,
    gradients: u64,
}

fn sent(summary: &Summary) -> Bytes {
    let [sampling, features, gradients] = [Purpose::Sampling, Purpose::Features, Purpose::Gradients]
        .map(|purpose| summary.bytes_by_tag[purpose.name()]);
    Bytes { sampling, features, gradients }
}

/// Remote rows that ranks read in one hop, as (reader, vertex).
fn remote(lists: &Lists, owners: &[u32]) -> BTreeSet<(u32, u32)> {
    let pairs = lists.iter().flat_map(|(v, sources)| sources.iter().map(|&u| (owners[*v as usize], u)));
    pairs.filter(|&(reader, u)| owners[u as usize] != reader).collect()
}

/// One hop of all batches of an epoch.
struct HopRows {
    messages: StageMessages,
    /// Remote rows of each batch, summed over batches and ranks.
    remote: u64,
}

/// What an epoch reads of other ranks.
struct Expected {
    /// Hops whose rows are exchanged, the seeds' first.
    exchanged: Vec<HopRows>,
    /// Input rows that are fetched: distinct ones of a macrobatch and reader.
    fetched: u64,
    row_bytes: u64,
    batches: u64,
}

impl Expected {
    fn new(config: &Config, batches: &[Batch], owners: &[u32], fetches: bool) -> Self {
        let stages = config.model.messages(FEATURES, CLASSES);
        let of_hops = stages.iter().rev().filter(|messages| messages.width > 0);
        let hops = config.sampled_fanouts().len();
        let exchanged = hops - fetches as usize;
        let hop_rows = |(hop, &messages): (usize, &StageMessages)| {
            let remote = batches.iter().map(|batch| remote(&batch.hops[hop], owners).len() as u64).sum();
            HopRows { messages, remote }
        };
        let macrobatch = config.train.macrobatch.unwrap() as usize;
        let of_macrobatch = |batches: &[Batch]| {
            let rows: BTreeSet<_> =
                batches.iter().flat_map(|batch| remote(&batch.hops[hops - 1], owners)).collect();
            rows.len() as u64
        };
        Expected {
            exchanged: of_hops.enumerate().take(exchanged).map(hop_rows).collect(),
            fetched: if fetches { batches.chunks(macrobatch).map(of_macrobatch).sum() } else { 0 },
            row_bytes: 4 * FEATURES as u64,
            batches: batches.len() as u64,
        }
    }

    /// Bytes of requests and replies for input rows.
    fn fetching(&self) -> u64 {
        self.fetched * (4 + 8 + self.row_bytes)
    }

    /// Returns the bytes of an epoch that sends all numbers.
    fn dense(&self) -> Bytes {
        let sum = |of: &dyn Fn(&HopRows) -> u64| self.exchanged.iter().map(of).sum::<u64>();
        let row = |hop: &HopRows| 4 * hop.messages.width as u64 * hop.remote;
        // For each pair of ranks, hop and batch a count.
        let counts = RANKS * (RANKS - 1) * self.exchanged.len();
        Bytes {
            sampling: 4 * (counts as u64 * self.batches + sum(&|hop| hop.remote)),
            features: self.fetching() + sum(&row),
            gradients: sum(&|hop| if hop.messages.has_gradient { row(hop) } else { 0 }),
        }
    }
}

/// One epoch, in macrobatches that do not divide it.
fn split(kind: Kind) -> Config {
    let mut config = with_strategy(StrategyKind::Split, &config(kind, SamplerKind::Neighbor, &[3, 2, 2]));
    (config.model.hidden, config.model.dropout) = (HIDDEN, 0.3);
    (config.train.epochs, config.train.ranks, config.train.threads) = (1, RANKS, 1);
    (config.train.macrobatch, config.train.row_cache) = (Some(4), RowCache::None);
    config
}

/// Configurations; whether input rows are fetched; and which hops send the output of a ReLU, the seeds' first.
fn cases() -> Vec<(Config, bool, [bool; 3])> {
    let mut wide = split(Kind::Sage);
    wide.model.project = Project::Last;
    let mut labor = wide.clone();
    (labor.train.sampler, labor.model.norm) = (SamplerKind::Labor, NormKind::Batch);
    labor.data.inductive = true;
    let mut projected = split(Kind::Sage);
    projected.model.project = Project::First;
    let mut smooth = split(Kind::Sage);
    smooth.model.activation = ActivationKind::Elu;
    let mut cached = split(Kind::Gin);
    cached.train.cache_input_aggregate = true;
    vec![
        // The last layer multiplies by its weights first: its rows are logits of three classes.
        (split(Kind::Sage), true, [false, true, false]),
        (split(Kind::Gcn), true, [false, true, false]),
        (wide, true, [true, true, false]),
        (labor, true, [true, true, false]),
        (projected, true, [false, false, false]),
        (smooth, true, [false, false, false]),
        (split(Kind::Gin), true, [false, true, false]),
        (cached, false, [false, true, false]),
        (split(Kind::Gat), true, [false, false, false]),
        // Their first stage reads no edges: the deepest hop is exchanged, too.
        (split(Kind::Gcnii), false, [true, true, true]),
        // No ReLU is before the first layer that reads edges.
        (split(Kind::Resgcn), false, [true, true, false]),
    ]
}

#[test]
fn a_split_epoch_computes_each_row_once_and_sends_what_the_blocks_imply() {
    let data = dataset(false);
    for (leaves_one_empty, seeded) in [(false, 1), (true, 2)] {
        let assignment = assignment(RANKS, leaves_one_empty);
        for (mut config, fetches, rectified) in cases() {
            config.train.seed = seeded;
            let what = format!("{:?}, project {:?}", config.model.kind, config.model.project);
            let batches = batches_of_one_process(&data, &config);
            let expected = Expected::new(&config, &batches, assignment.of(), fetches);
            let [dense, nonzero] = [RowEncoding::Dense, RowEncoding::Nonzero].map(|encoding| {
                config.train.row_encoding = encoding;
                train(&data, &config, &assignment)
            });
            assert_eq!(dense.loss_history, nonzero.loss_history, "{what}");
            assert_eq!(sent(&dense), expected.dense(), "{what}");

            // Of rows behind a ReLU: a bitmap and the numbers that are not zero. Their gradients need no bitmap.
            let [all, found] = [expected.dense(), sent(&nonzero)];
            assert_eq!(found.sampling, all.sampling, "{what}");
            let rectified = expected.exchanged.iter().zip(rectified).filter(|(_, rectified)| *rectified);
            let (mut bitmaps, mut full) = (0, 0);
            for (hop, _) in rectified {
                assert!(hop.messages.has_gradient, "{what}");
                bitmaps += 8 * hop.messages.width.div_ceil(64) as u64 * hop.remote;
                full += 4 * hop.messages.width as u64 * hop.remote;
            }
            let nonzeros = found.features - (all.features - full) - bitmaps;
            assert_eq!(found.gradients, all.gradients - full + nonzeros, "{what}");
            assert_eq!(full == 0, nonzeros == 0, "{what}");
            assert!(nonzeros < full / 4 * 3 || full == 0, "{what}: {nonzeros} of {full} bytes are not zero");
            if full == 0 {
                assert_eq!(found, all, "{what}");
            }

            let (counts, fetched) = (dense.batches.unwrap(), dense.fetches.unwrap());
            let sum = |of: &dyn Fn(&Batch) -> usize| batches.iter().map(of).sum::<usize>() as u64;
            let edges = |batch: &Batch| batch.hops.iter().flat_map(Lists::values).map(Vec::len).sum();
            let computed = |batch: &Batch| batch.hops.iter().map(Lists::len).sum();
            assert_eq!(counts.sampled_edges, sum(&edges), "{what}");
            assert_eq!(counts.computed_nodes, sum(&computed), "{what}");
            assert_eq!(fetched.remote_rows, expected.fetched, "{what}");
            assert_eq!(fetched.fetched_rows, expected.fetched, "{what}");
            let relays = expected.exchanged.len() as u64 + if fetches { 2 } else { 0 };
            assert_eq!(fetched.relays, relays * BATCHES.div_ceil(4), "{what}");
        }
    }
}

#[test]
fn without_macrobatches_owners_load_the_input_nodes_of_one_process() {
    let data = dataset(false);
    for kind in [Kind::Sage, Kind::Gat] {
        for ranks in 2..=4 {
            let mut config = split(kind);
            (config.train.macrobatch, config.train.ranks, config.train.epochs) = (Some(1), ranks, 2);
            let batches = batches_of_one_process(&data, &config);
            let rows: usize = batches.iter().map(|batch| batch.rows.len()).sum();
            for strategy in STRATEGIES {
                let found = train(&data, &with_strategy(strategy, &config), &assignment(ranks, false));
                assert_eq!(found.fetches.unwrap().loaded_rows, rows as u64, "{strategy:?}, {kind:?}");
            }
        }
    }
}
