//! How many batches are prepared together, and how many rows are kept, within a number of bytes.

use halograph_comm::Message;
use halograph_graph::error::Error as InputError;
use halograph_graph::sample::Sample;

use super::relay::Relay;
use super::source::RankGraph;
use crate::config::{RowCache, TrainConfig};
use crate::error::Result;
use crate::tags::Setup;

/// Copies of the samples of a macrobatch: of the one that is computed and of the next one.
pub const SAMPLE_COPIES: u64 = 2;
/// Copies of its remote rows: the same, and messages that are received and sent.
pub const ROW_COPIES: u64 = 4;
/// Share of the memory for copies, if it determines the size of macrobatches: the rest is for rows that are kept.
const COPIES_SHARE: u64 = 2;
/// Share of the rest for samples of coming macrobatches.
const COMING_SHARE: u64 = 4;
/// Most coming macrobatches that are sampled ahead of the next one.
pub const MOST_COMING: u64 = 8;
/// Bytes of a kept row besides its contents.
const KEPT_ROW: u64 = 20;

/// How a run prepares batches. The same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MacrobatchPlan {
    /// Batches of a macrobatch.
    pub macrobatch: u64,
    /// Macrobatches sampled ahead of the next one.
    pub coming: usize,
    /// Most rows that are kept.
    pub kept_rows: usize,
}

impl MacrobatchPlan {
    /// Samples the first batch of the run to measure its size, and divides the memory of `train.batch_memory`. `row_bytes`:
    /// bytes of an input row. Collective; blocks.
    pub(super) fn new(
        train: &TrainConfig,
        graph: &RankGraph,
        relay: &dyn Relay,
        row_bytes: usize,
    ) -> Result<Self> {
        let shuffled = graph.seeds.shuffled(1);
        let mut batch = graph.batches(&shuffled, 1, 0, 1);
        // Epochs of training count from 1: these messages are of none of them.
        batch.epoch = 0;
        let (samples, _) = relay.sample(&batch)?;
        let vertices = samples.iter().flat_map(Sample::rows);
        let remote = vertices.filter(|&&number| !graph.numbers.owns(graph.rank(), number)).count();
        let sample: usize = samples.iter().map(Sample::bytes).sum();
        let own = [sample as u64, (remote * row_bytes) as u64];
        let (mut sample, mut rows) = (0, 0);
        for message in graph.comm.all_gather(Setup::BatchBytes.tag(), Message::of(&own))? {
            let &[of_sample, of_rows] = message.expect::<u64>(2)? else { unreachable!("there are two") };
            (sample, rows) = (of_sample.max(sample), of_rows.max(rows));
        }
        let size = BatchSize { sample: sample.max(1), rows };
        // Rows that are not fetched need not be kept, nor known in advance.
        let row_cache = if relay.reads_remote_inputs() { train.row_cache } else { RowCache::None };
        let train = &TrainConfig { row_cache, ..train.clone() };
        let plan = MacrobatchPlan::of(train, size, graph.seeds.batches(), row_bytes as u64)?;
        Ok(MacrobatchPlan { kept_rows: plan.kept_rows.min(graph.numbers.nodes()), ..plan })
    }

    fn of(train: &TrainConfig, size: BatchSize, batches: u64, row_bytes: u64) -> Result<Self, InputError> {
        let memory = train.batch_memory;
        let copies = SAMPLE_COPIES * size.sample + ROW_COPIES * size.rows;
        let macrobatch = match train.macrobatch {
            Some(given) => given.min(batches),
            None => (memory / COPIES_SHARE / copies).clamp(1, batches),
        };
        let needed = macrobatch.saturating_mul(copies);
        if needed > memory {
            return Err(too_little(train, needed));
        }
        let rest = memory - needed;
        let coming = match train.row_cache {
            RowCache::Future => rest / COMING_SHARE / (macrobatch * size.sample),
            _ => 0,
        };
        let coming = coming.min(MOST_COMING);
        let rest = rest - coming * macrobatch * size.sample;
        let kept_rows = match train.row_cache {
            RowCache::None => 0,
            _ => (rest / (row_bytes + KEPT_ROW)) as usize,
        };
        Ok(MacrobatchPlan { macrobatch, coming: coming as usize, kept_rows })
    }
}

/// Bytes of a batch on the rank with the largest one.
#[derive(Debug, Clone, Copy)]
struct BatchSize {
    sample: u64,
    /// Remote input rows.
    rows: u64,
}

fn too_little(train: &TrainConfig, needed: u64) -> InputError {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let of = match train.macrobatch {
        Some(size) if size > 1 => format!("macrobatches of {size} batches"),
        _ => "batches".to_string(),
    };
    let given = match train.batch_memory {
        bytes if bytes < 1 << 20 => format!("{bytes} bytes"),
        bytes => format!("{} MiB", bytes >> 20),
    };
    let problem = format!("{given}: {of} of this run need {} MiB on a rank", mib(needed));
    let help = match train.macrobatch {
        Some(size) if size > 1 => "or a smaller --macrobatch",
        _ => "or a smaller --batch-size or --fanout",
    };
    InputError::input("train.batch_memory", problem)
        .help(format!("give --batch-memory {}MiB or more, {help}", mib(needed)))
}

#[cfg(test)]
mod tests {
    use halograph_nn::model::Kind;

    use super::*;
    use crate::config::Config;

    const MIB: u64 = 1 << 20;

    fn train(memory: u64, macrobatch: Option<u64>, row_cache: RowCache) -> TrainConfig {
        TrainConfig { batch_memory: memory, macrobatch, row_cache, ..Config::new(Kind::Sage).train }
    }

    fn plan(train: &TrainConfig) -> Result<MacrobatchPlan, InputError> {
        // A batch needs 2 + 4 · 4 = 18 MiB.
        MacrobatchPlan::of(train, BatchSize { sample: MIB, rows: 4 * MIB }, 150, 1024 - KEPT_ROW)
    }

    #[test]
    fn half_of_the_memory_is_for_macrobatches_unless_their_size_is_given() {
        let found = plan(&train(144 * MIB, None, RowCache::Future)).unwrap();
        // Of the 72 MiB that are left, 18 may be for samples: of macrobatches of 4 MiB.
        assert_eq!(found, MacrobatchPlan { macrobatch: 4, coming: 4, kept_rows: 56 << 10 });
        let found = plan(&train(144 * MIB, Some(6), RowCache::Lru)).unwrap();
        assert_eq!(found, MacrobatchPlan { macrobatch: 6, coming: 0, kept_rows: 36 << 10 });
        // No macrobatch is larger than an epoch.
        let found = plan(&train(96 << 30, None, RowCache::None)).unwrap();
        assert_eq!(found, MacrobatchPlan { macrobatch: 150, coming: 0, kept_rows: 0 });
        assert_eq!(plan(&train(96 << 30, Some(1000), RowCache::None)).unwrap().macrobatch, 150);
    }

    #[test]
    fn too_little_memory_is_refused_with_what_is_needed() {
        let error = plan(&train(100, None, RowCache::Future)).unwrap_err().to_string();
        assert!(error.contains("100 bytes") && error.contains("--batch-memory 18MiB"), "{error}");
        let error = plan(&train(96 * MIB, Some(9), RowCache::Future)).unwrap_err().to_string();
        assert!(error.contains("9 batches") && error.contains("162MiB"), "{error}");
    }
}
