//! Flags that stand for keys of the configuration: one declaration each, from which the argument, its help and the
//! setting come. Defaults are asked of the configuration itself.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use halograph::config::{self, Setting, choices};
use halograph::nn::model::Kind;
use halograph::train::Config;
use halograph_graph::error::Result;

/// A flag, the key it stands for, what its value is called, and what it means.
struct Flag(&'static str, &'static str, &'static str, &'static str);

const MODEL: [Flag; 6] = [
    Flag("model", "model.kind", "KIND", "The model"),
    Flag("layers", "model.layers", "N", "Layers"),
    Flag("hidden", "model.hidden", "WIDTH", "Width between layers; of all heads together"),
    Flag("heads", "model.heads", "N", "Attention heads (gat)"),
    Flag("norm", "model.norm", "NORM", "Normalisation between layers"),
    Flag("dropout", "model.dropout", "SHARE", "Probability of dropping an element of a layer's input"),
];

const TRAINING: [Flag; 21] = [
    Flag("lr", "train.lr", "RATE", "Learning rate"),
    Flag("weight-decay", "train.weight_decay", "RATE", "Weight decay"),
    Flag("epochs", "train.epochs", "N", "Passes over the training nodes"),
    Flag("seed", "train.seed", "N", "Seed of everything random"),
    Flag(
        "patience",
        "train.patience",
        "N",
        "Epochs without a better validation score before it stops; 0: never",
    ),
    Flag("precision", "train.precision", "TYPE", "Numbers to compute in"),
    Flag("strategy", "train.strategy", "NAME", "How the work is spread"),
    Flag(
        "ranks",
        "train.ranks",
        "N",
        "Ranks that share the work; more than 1 means --strategy partition, if none is named",
    ),
    Flag("partition", "train.partition", "HOW", "How nodes are dealt out to ranks"),
    Flag("overlap", "train.overlap", "SWITCH", "Whether something is computed while messages travel"),
    Flag("staleness", "train.staleness", "K", "Epochs that rows of others are old (pipelined)"),
    Flag("warmup-epochs", "train.warmup_epochs", "N", "First epochs that read fresh rows (pipelined)"),
    Flag("cooldown-epochs", "train.cooldown_epochs", "N", "Last epochs that read fresh rows (pipelined)"),
    Flag(
        "smooth",
        "train.smooth",
        "WHAT",
        "What is averaged over epochs of what is read of others (pipelined)",
    ),
    Flag("gamma", "train.gamma", "SHARE", "What is left of an epoch in such an average when the next comes"),
    Flag(
        "smooth-correction",
        "train.smooth_correction",
        "BOOL",
        "Whether such an average is one from the beginning; if not, it begins near zero",
    ),
    Flag(
        "measure-staleness",
        "train.measure_staleness",
        "BOOL",
        "Compare what is read of others with what is fresh (pipelined; waits)",
    ),
    Flag("deadline", "train.deadline", "S", "Seconds of silence after which a rank is lost"),
    Flag("threads", "train.threads", "N", "Threads of a rank; 0: all cores, shared by its ranks"),
    Flag("eval-every", "train.eval_every", "N", "Epochs between evaluations"),
    Flag("checkpoint-seconds", "train.checkpoint_seconds", "S", "Seconds between checkpoints"),
];

impl Flag {
    fn arg(&self, heading: &'static str) -> Arg {
        let &Flag(name, key, value, meaning) = self;
        let help = format!("{meaning} [default: {}]", default_of(key));
        // A negative number is an answer too: the configuration says what is wrong with it.
        let arg = Arg::new(name).long(name).value_name(value).help(help).help_heading(heading);
        // Said twice, the last counts, as with --set.
        let arg = arg.overrides_with(name);
        if matches!(default_of(key).as_str(), "true" | "false") {
            let words = PossibleValuesParser::new(["true", "false"]);
            return arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(words);
        }
        match choices(key) {
            [] => arg.allow_negative_numbers(true),
            words => arg.value_parser(PossibleValuesParser::new(words)),
        }
    }

    fn setting(&self, matches: &ArgMatches) -> Option<Setting> {
        let &Flag(name, key, ..) = self;
        let text: &String = matches.get_one(name)?;
        Some(Setting::new(&format!("--{name}"), key, text))
    }
}

/// The default of a key, and those of models that have another.
fn default_of(key: &str) -> String {
    let default = |kind: Kind| {
        let flat = config::flatten(&Config::new(kind)).unwrap_or_default();
        let value = flat.into_iter().find(|(name, _)| name == key).map(|(_, value)| value);
        value.as_ref().map(config::text).unwrap_or_default()
    };
    let usual = default(config::DEFAULT_KIND);
    let mut others: Vec<(String, Vec<&str>)> = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| key != "model.kind" && default(*kind) != usual) {
        match others.iter_mut().find(|(value, _)| *value == default(kind)) {
            Some((_, kinds)) => kinds.push(kind.name()),
            None => others.push((default(kind), vec![kind.name()])),
        }
    }
    others.iter().fold(usual, |text, (value, kinds)| format!("{text}; {value} for {}", kinds.join(", ")))
}

/// Flags of training that change how fast it is, not only what it learns.
const SPEED: [&str; 2] = ["precision", "threads"];

/// Everything that is said about the configuration: with all flags, or only those that change how fast an epoch is.
#[derive(clap::Args)]
pub struct Settings<const ALL: bool> {
    /// Settings in TOML: tables [data], [model] and [train].
    #[arg(long, value_name = "F.toml")]
    config: Option<PathBuf>,
    /// One setting, stronger than the file's; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    flags: Flags<ALL>,
}

impl<const ALL: bool> Settings<ALL> {
    /// The settings, the strongest last: file, `--set`, flags.
    pub fn read(&self) -> Result<Vec<Setting>> {
        let mut settings = self.config.as_deref().map_or(Ok(Vec::new()), config::read_file)?;
        for text in &self.set {
            settings.extend(Setting::parse("--set", text)?.parts());
        }
        settings.extend(self.flags.0.iter().cloned());
        Ok(settings)
    }
}

/// The settings of the flags.
struct Flags<const ALL: bool>(Vec<Setting>);

impl<const ALL: bool> Flags<ALL> {
    fn training() -> impl Iterator<Item = &'static Flag> {
        TRAINING.iter().filter(|flag| ALL || SPEED.contains(&flag.0))
    }

    fn settings(matches: &ArgMatches) -> impl Iterator<Item = Setting> {
        MODEL.iter().chain(Self::training()).filter_map(|flag| flag.setting(matches))
    }
}

impl<const ALL: bool> clap::Args for Flags<ALL> {
    fn augment_args(command: Command) -> Command {
        command
            .args(MODEL.iter().map(|flag| flag.arg("Model")))
            .args(Self::training().map(|flag| flag.arg("Training")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const ALL: bool> FromArgMatches for Flags<ALL> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Flags(Self::settings(matches).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::settings(matches));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_stands_for_a_key() {
        let known = config::flatten(&Config::new(Kind::Gcn)).unwrap();
        for Flag(name, key, ..) in MODEL.iter().chain(&TRAINING) {
            assert!(known.iter().any(|(known, _)| known == key), "--{name}: {key}");
        }
    }

    #[test]
    fn defaults_tell_models_apart() {
        assert_eq!(default_of("train.lr"), "0.01");
        assert_eq!(default_of("model.kind"), "sage");
        assert_eq!(default_of("model.norm"), "layer; none for gcn, gat, gcnii");
    }
}
