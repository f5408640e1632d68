//! Training as its users see it. One program, for it takes longer to link than to run.

mod batches;
mod exchange;
mod gradients;
mod in_memory;
mod large;
mod minibatch;
mod parity;
mod ranks;
mod regression;
mod run;
mod scores;
mod sparse;
mod train;
mod versions;

use halograph_graph::Dataset;
use halograph_train::launch::{self, Extras, Leader};
use halograph_train::run::RunStore;
use halograph_train::trainer::ResumePoint;
use halograph_train::{Observer, Result, Summary};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// Trains `run` in this process, without extras.
fn train_run(
    data: &Dataset,
    run: &mut dyn RunStore,
    from: Option<ResumePoint>,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    launch::train(data.into(), Leader { world: None, run, from, observer }, Extras::default())
}

/// Settings of a property test: the same cases in every run. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` choose others.
fn properties(cases: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    let rng_seed = if given.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { given.rng_seed };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { cases };
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..given }
}
