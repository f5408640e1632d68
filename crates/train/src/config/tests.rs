use super::*;

fn on_ranks(strategy: StrategyKind, ranks: usize) -> Config {
    let mut config = Config::new(Kind::Sage);
    (config.train.strategy, config.train.ranks) = (strategy, ranks);
    config
}

#[test]
fn only_single_refuses_ranks() {
    for (strategy, allows_ranks) in [
        (StrategyKind::Single, false),
        (StrategyKind::Partition, true),
        (StrategyKind::Pipelined, true),
        (StrategyKind::Minibatch, true),
        (StrategyKind::Split, true),
    ] {
        assert_eq!(strategy.allows_ranks(), allows_ranks, "{strategy:?}");
        on_ranks(strategy, 1).check().unwrap();
        assert_eq!(on_ranks(strategy, 2).check().is_ok(), allows_ranks, "{strategy:?}");
    }
    let message = on_ranks(StrategyKind::Single, 2).check().unwrap_err().to_string();
    assert!(message.starts_with("train.ranks: 2: must be 1 with train.strategy = \"single\""), "{message}");
    assert!(message.ends_with("pipelined, minibatch, split, layers or hybrid"), "{message}");
}

#[test]
fn a_dataset_is_partitioned_by_strategy_and_ranks() {
    let uses_parts = |strategy| [1, 2].map(|ranks| on_ranks(strategy, ranks).train.uses_parts());
    assert_eq!(uses_parts(StrategyKind::Single), [false, false]);
    assert_eq!(uses_parts(StrategyKind::Partition), [true, true]);
    assert_eq!(uses_parts(StrategyKind::Pipelined), [true, true]);
    assert_eq!(uses_parts(StrategyKind::Minibatch), [false, true]);
    for strategy in [StrategyKind::Split, StrategyKind::Layers, StrategyKind::Hybrid] {
        assert_eq!(uses_parts(strategy), [true, true]);
    }
}

#[test]
fn an_empty_macrobatch_and_no_batch_memory_are_refused() {
    let refused = |change: &dyn Fn(&mut TrainConfig)| {
        let mut config = on_ranks(StrategyKind::Minibatch, 2);
        change(&mut config.train);
        config.check().unwrap_err().to_string()
    };
    let message = refused(&|train| train.macrobatch = Some(0));
    assert_eq!(message, "train.macrobatch: 0: must be at least 1");
    let message = refused(&|train| train.batch_memory = 0);
    assert_eq!(message, "train.batch_memory: 0: must be at least 1 byte");
}

#[test]
fn settings_of_the_exchange_of_batches_require_ranks() {
    for key in ["train.macrobatch", "train.batch_memory", "train.row_cache"] {
        for (strategy, ranks, is_met) in [
            (StrategyKind::Minibatch, 2, true),
            (StrategyKind::Minibatch, 1, false),
            (StrategyKind::Split, 2, true),
            (StrategyKind::Split, 1, false),
            (StrategyKind::Partition, 2, false),
        ] {
            let requires = (!is_met).then_some("strategy minibatch or split on several ranks");
            assert_eq!(on_ranks(strategy, ranks).requirement(key), requires, "{key}");
        }
    }
    for (strategy, ranks, is_met) in [
        (StrategyKind::Split, 2, true),
        (StrategyKind::Split, 1, false),
        (StrategyKind::Minibatch, 2, false),
        (StrategyKind::Partition, 2, false),
    ] {
        let requires = (!is_met).then_some("strategy split on several ranks");
        assert_eq!(on_ranks(strategy, ranks).requirement("train.row_encoding"), requires, "{strategy:?}");
    }
}

#[test]
fn a_macrobatch_survives_json_and_is_left_out_if_unset() {
    let mut config = Config::new(Kind::Sage);
    for macrobatch in [None, Some(8)] {
        config.train.macrobatch = macrobatch;
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(text.contains("macrobatch"), macrobatch.is_some());
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
    }
}

#[test]
fn presampled_partitions_are_for_strategies_that_sample() {
    for strategy in [StrategyKind::Single, StrategyKind::Partition, StrategyKind::Pipelined] {
        let mut config = on_ranks(strategy, if strategy == StrategyKind::Single { 1 } else { 2 });
        config.check().unwrap();
        config.train.partition = PartitionKind::Presampled;
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("train.partition") && error.contains(strategy.name()), "{error}");
    }
    let mut config = on_ranks(StrategyKind::Minibatch, 2);
    config.train.partition = PartitionKind::Presampled;
    config.check().unwrap();
}
