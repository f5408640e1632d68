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
    assert!(refused("zzzzzzzz=1").contains("the keys are data.inductive"));
}

#[test]
fn wrong_types_name_key_value_and_expected_type() {
    for (word, message) in [
        ("model.hidden=wide", "--set: model.hidden: \"wide\": must be a whole number, 0 or more"),
        ("model.hidden=-3", "--set: model.hidden: -3: must be a whole number, 0 or more"),
        ("model.hidden=1.5", "--set: model.hidden: 1.5: must be a whole number, 0 or more"),
        ("train.lr=fast", "--set: train.lr: \"fast\": must be a number"),
        ("data.inductive=1", "--set: data.inductive: 1: must be true or false"),
        ("model=gat", "--set: model: \"gat\": must be a table of keys"),
        ("model.norm=3", "--set: model.norm: 3: must be one of none, layer, batch"),
    ] {
        assert_eq!(refused(word), message);
    }
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
