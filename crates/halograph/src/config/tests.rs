use super::*;

fn set(words: &[&str]) -> Vec<Setting> {
    words.iter().map(|word| Setting::parse("--set", word).unwrap()).collect()
}

fn refused(word: &str) -> String {
    resolve(&set(&[word])).expect_err(word).to_string()
}

#[test]
fn no_settings_give_the_defaults() {
    assert_eq!(resolve(&[]).unwrap(), Config::new(DEFAULT_KIND));
}

#[test]
fn the_last_kind_decides_the_defaults() {
    let config = resolve(&set(&["model.kind=gcn", "model.hidden=64", "model.kind=gat"])).unwrap();
    let mut expected = Config::new(Kind::Gat);
    expected.model.hidden = 64;
    assert_eq!(config, expected);
}

#[test]
fn later_settings_win_and_integers_become_floats() {
    let config = resolve(&set(&["train.lr=0.5", "train.lr=1", "train.epochs=7"])).unwrap();
    assert_eq!((config.train.lr, config.train.epochs), (1.0, 7));
}

#[test]
fn the_free_table_takes_any_key() {
    let config = resolve(&set(&["train.weight_decay_for.\"convs.0\"=1"])).unwrap();
    assert_eq!(config.train.weight_decay_for["convs.0"], 1.0);
    assert!(refused("train.weight_decay_for.lin=high").contains("\"high\": must be a number"));
    assert!(refused("train.weight_decay_for.lin=-1").contains("0 or more"));
}

#[test]
fn unknown_keys_suggest_the_most_similar_one() {
    for (word, nearest) in [
        ("model.hiden=3", "model.hidden"),
        ("hidden=3", "model.hidden"),
        ("train.hidden=3", "model.hidden"),
        ("train.weight-decay=3", "train.weight_decay"),
        ("lr=3", "train.lr"),
        ("modle.layers=3", "model.layers"),
        ("model.Dropout=3", "model.dropout"),
        ("model.attn_dropout=3", "model.attention_dropout"),
    ] {
        let message = refused(word);
        assert!(message.starts_with("--set: unknown key "), "{message}");
        assert!(message.ends_with(&format!("did you mean {nearest}?")), "{word}: {message}");
    }
    assert!(refused("zzzzzzzz=1").contains("the keys are data.edge_weights, data.inductive"));
}

#[test]
fn wrong_types_name_key_value_and_expected_type() {
    for (word, message) in [
        ("model.hidden=wide", "--set: model.hidden: \"wide\": must be a whole number, at least 1"),
        (
            "train.seed=9223372036854775808",
            "--set: train.seed: \"9223372036854775808\": must be at most 9223372036854775807",
        ),
        ("model.hidden=-3", "--set: model.hidden: -3: must be a whole number, at least 1"),
        ("model.hidden=1.5", "--set: model.hidden: 1.5: must be a whole number, at least 1"),
        ("model.output_heads=-3", "--set: model.output_heads: -3: must be a whole number, 0 or more"),
        ("train.batch_size=-1", "--set: train.batch_size: -1: must be a whole number, at least 1"),
        ("train.macrobatch=-1", "--set: train.macrobatch: -1: must be a whole number, at least 1"),
        ("train.macrobatch=auto", "--set: train.macrobatch: \"auto\": must be a whole number, at least 1"),
        ("train.row_cache=3", "--set: train.row_cache: 3: must be one of none, lru, degree, future"),
        ("train.lr=fast", "--set: train.lr: \"fast\": must be a number"),
        ("data.inductive=1", "--set: data.inductive: 1: must be true or false"),
        ("model=gat", "--set: model: \"gat\": must be a table of keys"),
        ("model.norm=3", "--set: model.norm: 3: must be one of none, layer, batch"),
    ] {
        assert_eq!(refused(word), message);
    }
}

#[test]
fn quoted_values_are_refused_with_their_remedy() {
    for (word, expected) in [
        ("model.hidden=\"3\"", "\"3\": must be a whole number, at least 1\n  help: remove the quotes: 3"),
        ("train.macrobatch=\"4\"", "\"4\": must be a whole number, at least 1\n  help: remove the quotes: 4"),
        ("train.lr=\"0.1\"", "\"0.1\": must be a number\n  help: remove the quotes: 0.1"),
        ("train.weight_decay_for.lin=\"1\"", "\"1\": must be a number\n  help: remove the quotes: 1"),
        ("data.inductive=\"true\"", "\"true\": must be true or false\n  help: remove the quotes: true"),
    ] {
        let message = refused(word);
        assert!(message.ends_with(expected), "{message}");
    }
    // Without quotes, these would not fit either.
    for word in ["model.hidden=\"-3\"", "model.hidden=\"1.5\"", "train.lr=\"true\""] {
        assert!(!refused(word).contains("quotes"), "{word}");
    }
}

/// Zeros of these keys must be refused by the configuration: other values are described by that.
#[test]
fn positive_keys_refuse_zero() {
    for key in POSITIVE {
        let message = refused(&format!("{key}=0"));
        assert!(message.contains(&format!("{key}: 0: must be at least 1")), "{message}");
    }
}

#[test]
fn an_optional_key_is_set_and_replaced() {
    let macrobatch = |words: &[&str]| resolve(&set(words)).unwrap().train.macrobatch;
    assert_eq!(macrobatch(&[]), None);
    assert_eq!(macrobatch(&["train.macrobatch=8"]), Some(8));
    assert_eq!(macrobatch(&["train.macrobatch=8", "train.macrobatch=9"]), Some(9));
    assert!(refused("train.macrobatches=8").ends_with("did you mean train.macrobatch?"));
    assert!(refused("zzzzzzzz=1").contains("train.macrobatch, train.metric"));
    let base = resolve(&set(&["train.macrobatch=8"])).unwrap();
    assert_eq!(overlay(&base, &set(&["train.macrobatch=2"])).unwrap().train.macrobatch, Some(2));
    assert_eq!(differences(&Config::new(DEFAULT_KIND), &base).unwrap(), ["train.macrobatch"]);
}

#[test]
fn a_size_has_a_unit_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.toml");
    let from_file = |value: &str| {
        std::fs::write(&file, format!("[train]\nbatch_memory = {value}\nmacrobatch = 4\n")).unwrap();
        let train = resolve(&read_file(&file).unwrap()).unwrap().train;
        (train.batch_memory, train.macrobatch)
    };
    assert_eq!(from_file("\"2GiB\""), (2 << 30, Some(4)));
    assert_eq!(from_file("65536"), (65536, Some(4)));
    let bytes =
        |text: &str| resolve(&[Setting::new("--batch-memory", SIZES[0], text)]).unwrap().train.batch_memory;
    assert_eq!([bytes("64MB"), bytes("1g"), bytes("4096")], [64_000_000, 1 << 30, 4096]);
    assert_eq!(
        refused("train.batch_memory=12XB"),
        "--set: train.batch_memory: \"12XB\": must be a number of bytes, or one with a unit such as 512MiB, 1.5GiB or 64MB"
    );
    for word in ["train.batch_memory=1.5", "train.batch_memory=-1"] {
        assert!(refused(word).contains("must be a number of bytes"), "{word}");
    }
    assert_eq!(refused("train.batch_memory=0MiB"), "--set: train.batch_memory: 0: must be at least 1 byte");
    assert_eq!(text_of(SIZES[0], &Value::Integer(512 << 20)), "512MiB");
    assert_eq!(text_of("train.batch_size", &Value::Integer(1024)), "1024");
}

#[test]
fn an_unknown_choice_lists_the_choices_most_similar_first() {
    assert!(refused("model.kind=gcni").contains("must be one of gcnii, gcn, "));
    assert!(refused("train.schedule=cos").contains("must be one of cosine"));
    assert!(refused("model.norm=batchnorm").contains("must be one of batch"));
}

#[test]
fn errors_name_the_place_of_the_setting() {
    assert_eq!(refused("model.layers=0"), "--set: model.layers: 0: must be at least 1");
    assert!(refused("train.lr=nan").starts_with("--set: train.lr: NaN"));
    assert!(refused("train.threads=1000000").contains("train.threads: 1000000: must be at most 1024"));
    assert!(refused("train.lr=NaN").contains("train.lr"));
}

#[test]
fn every_default_is_among_its_choices() {
    for kind in Kind::ALL {
        for (key, value) in flatten(&Config::new(kind)).unwrap() {
            let listed = value.as_str().map(|word| choices(&key).contains(&word));
            assert_ne!(listed, Some(false), "{key}");
        }
    }
}

#[test]
fn differences_list_the_keys() {
    let one = Config::new(Kind::Gcn);
    let mut other = one.clone();
    assert!(differences(&one, &other).unwrap().is_empty());
    other.train.epochs += 1;
    other.train.weight_decay_for.insert("convs.0".into(), 1.0);
    assert_eq!(differences(&one, &other).unwrap(), ["train.epochs", "train.weight_decay_for.convs.0"]);
}

#[test]
fn settings_without_effect_are_noted() {
    let settings = set(&["model.kind=gcn", "model.heads=8", "train.step_epochs=3", "model.layers=2"]);
    let notes = unused(&settings, &resolve(&settings).unwrap());
    let note = |key: &str, requires| Note::Unused { place: "--set".into(), key: key.into(), requires };
    assert_eq!(notes, [note("model.heads", "model gat"), note("train.step_epochs", "schedule step")]);
    assert_eq!(notes[0].to_string(), "--set: model.heads has no effect here: it requires model gat");
    let settings = set(&["model.kind=gat", "model.heads=8", "train.schedule=step", "train.step_epochs=3"]);
    assert!(unused(&settings, &resolve(&settings).unwrap()).is_empty());
}

#[test]
fn an_empty_overlay_changes_nothing() {
    let mut config = Config::new(Kind::Gat);
    config.train.weight_decay_for.insert("convs.0".into(), 0.5);
    assert_eq!(overlay(&config, &[]).unwrap(), config);
}

#[test]
fn split_caches_the_input_aggregate_where_it_can_unless_told_otherwise() {
    let cached = |words: &[&str]| {
        let words = [&["train.strategy=split"], words].concat();
        resolve(&set(&words)).unwrap().train.cache_input_aggregate
    };
    assert!(cached(&[]) && cached(&["model.kind=gcn"]));
    assert!(!cached(&["train.cache_input_aggregate=false"]));
    for impossible in ["model.kind=gat", "model.kind=gcnii", "model.input_dropout=0.5", "model.project=first"]
    {
        assert!(!cached(&[impossible]), "{impossible}");
    }
    let batches = resolve(&set(&["train.strategy=minibatch"])).unwrap();
    assert!(!batches.train.cache_input_aggregate);
}
