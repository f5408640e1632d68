//! Memory under an allocator that counts; alone in its process, so that nothing else is counted.

use halograph_graph::Dataset;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::progress::Silent;
use halograph_graph::sample::SamplerKind;
use halograph_nn::model::Kind;
use halograph_train::admission::{admit, predict};
use halograph_train::config::{RowCache, StrategyKind};
use halograph_train::launch::{Extras, Leader, train};
use halograph_train::memory::{self, Counting};
use halograph_train::run::{DataRef, Header, Run};
use halograph_train::{Config, Event, Observer};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes allocated at the end of each epoch.
#[derive(Default)]
struct Watch(Vec<usize>);

impl Observer for Watch {
    fn on(&mut self, event: &Event) {
        if let Event::Epoch { .. } = event {
            self.0.push(memory::allocated());
        }
    }
}

/// Trains for `epochs` epochs; returns the bytes allocated at the end of each.
fn allocated(dataset: &Dataset, epochs: u64, change: impl FnOnce(&mut Config)) -> Vec<usize> {
    let temp = TempDir::new().unwrap();
    let mut config = Config::new(Kind::Sage);
    config.model.hidden = 8;
    config.train.epochs = epochs;
    config.train.threads = 1;
    change(&mut config);
    let data = DataRef::new(dataset).unwrap();
    let mut run = Run::create(&temp.path().join("run"), Header { data, config }, false).unwrap();
    let mut watch = Watch(Vec::with_capacity(epochs as usize));
    let leader = Leader { world: None, run: &mut run, from: None, observer: &mut watch };
    train(dataset.into(), leader, Extras::default()).unwrap();
    watch.0
}

/// What `epochs` epochs may leave: their records in the history, whose vector at most doubles.
fn history(epochs: u64) -> usize {
    2 * epochs as usize * size_of::<halograph_train::event::EpochRecord>()
}

/// One test: the allocator counts for all threads.
#[test]
fn memory_is_bounded() {
    memory_does_not_grow_with_epochs();
    an_absurd_model_is_refused_before_it_is_allocated();
}

fn memory_does_not_grow_with_epochs() {
    const EPOCHS: u64 = 1000;
    let temp = TempDir::new().unwrap();
    let demo = presets::find("demo").unwrap().spec.clone();
    let spec = Spec { nodes: 60, edges: 400, features: 4, classes: 3, ..demo };
    generate::make(&spec, "tiny", &temp.path().join("data"), false, &Silent).unwrap();
    let dataset = Dataset::open(&temp.path().join("data")).unwrap();
    let bytes = allocated(&dataset, EPOCHS, |_| ());
    let (early, late) = (bytes[9], bytes[EPOCHS as usize - 1]);
    assert!(late <= early + history(EPOCHS), "{early} bytes after 10 epochs, {late} after {EPOCHS}");

    for sampler in [SamplerKind::Neighbor, SamplerKind::Labor] {
        for threads in [1, 3] {
            batches_reuse_memory(&dataset, [EPOCHS, 200], sampler, |config| {
                config.train.threads = threads;
                (config.train.batch_size, config.train.fanout) = (7, vec![3, 2, 2]);
            });
        }
    }
    for row_cache in [RowCache::None, RowCache::Future] {
        batches_reuse_memory(&dataset, [400, 200], SamplerKind::Neighbor, |config| {
            (config.train.ranks, config.train.row_cache) = (2, row_cache);
            (config.train.batch_size, config.train.fanout) = (7, vec![3, 2, 2]);
            // Fewer rows are kept than there are.
            (config.train.macrobatch, config.train.batch_memory) = (Some(2), 24 << 10);
        });
    }
    // Matrices of batches are large enough to be pooled.
    let spec = Spec { nodes: 3000, edges: 30_000, features: 64, ..spec };
    generate::make(&spec, "pooled", &temp.path().join("larger"), false, &Silent).unwrap();
    let dataset = Dataset::open(&temp.path().join("larger")).unwrap();
    for sampler in [SamplerKind::Neighbor, SamplerKind::Labor] {
        batches_reuse_memory(&dataset, [60, 30], sampler, |config| {
            config.model.hidden = 64;
            (config.train.threads, config.train.eval_every) = (2, 100);
            (config.train.batch_size, config.train.fanout) = (256, vec![5, 5, 5]);
        });
    }
}

/// Batches keep the memory of the largest ones so far, which is found within `warm` epochs.
fn batches_reuse_memory(
    dataset: &Dataset,
    [epochs, warm]: [u64; 2],
    sampler: SamplerKind,
    change: impl FnOnce(&mut Config),
) {
    let bytes = allocated(dataset, epochs, |config| {
        (config.train.strategy, config.train.sampler) = (StrategyKind::Minibatch, sampler);
        change(config);
    });
    let (early, late) = bytes.split_at(warm as usize);
    let [early, late] = [early, late].map(|bytes| *bytes.iter().max().unwrap());
    // How many batches are prepared at once depends on the scheduling of threads.
    let limit = early + early / 10 + history(epochs);
    assert!(late <= limit, "{sampler:?}: {early} bytes in {warm} epochs, {late} in {epochs}");
}

fn an_absurd_model_is_refused_before_it_is_allocated() {
    let temp = TempDir::new().unwrap();
    let demo = presets::find("demo").unwrap().spec.clone();
    let spec = Spec { nodes: 300, edges: 2000, features: 4, classes: 3, ..demo };
    generate::make(&spec, "tiny", &temp.path().join("data"), false, &Silent).unwrap();
    let dataset = Dataset::open(&temp.path().join("data")).unwrap();
    for kind in Kind::ALL {
        let mut config = Config::new(kind);
        (config.model.hidden, config.model.layers) = (400_000, 1000);
        let found = predict(&dataset, &config).unwrap().expect("this program counts");
        assert!(found.is_bound && found.weights < found.bytes, "{}: {found:?}", kind.name());
        let refused = admit(&found, false).unwrap_err().to_string();
        for words in ["at least", "are free", "optimiser state", "activations", "model.hidden", "--force"] {
            assert!(refused.contains(words), "{refused}");
        }
        admit(&found, true).unwrap();
    }
    let found = predict(&dataset, &Config::new(Kind::Sage)).unwrap().expect("this program counts");
    assert!(!found.is_bound && found.weights < found.bytes, "{found:?}");
}
