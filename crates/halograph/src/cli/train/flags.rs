//! Flags that set keys of the configuration: one declaration each, from which the argument, its help and the setting are
//! derived. Defaults come from the configuration itself.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use halograph::config::{self, Setting, choices};
use halograph::nn::model::Kind;
use halograph::train::Config;
use halograph_graph::error::Result;

/// A flag that sets a key of the configuration.
struct Flag {
    name: &'static str,
    key: &'static str,
    /// Placeholder of the value.
    value: &'static str,
    /// What `-h` shows.
    help: &'static str,
    /// What `--help` adds.
    more: &'static str,
}

/// Declares a flag.
const fn flag(
    name: &'static str,
    key: &'static str,
    value: &'static str,
    help: &'static str,
    more: &'static str,
) -> Flag {
    Flag { name, key, value, help, more }
}

/// Heading of the flags of `train` about files and messages.
pub const OUTPUT: &str = "Output";
const DATA: &str = "Data";
const MODEL: &str = "Model";
const OPTIMISATION: &str = "Optimisation";
const STRATEGY: &str = "Strategy and ranks";
const PIPELINED: &str = "Strategy pipelined (PipeGCN)";
const LAYERS: &str = "Strategies layers and hybrid (GNNPipe)";
const SAMPLED: &str = "Strategies minibatch (BatchGNN) and split (GSplit)";

/// All flags by heading, in the order of `--help`.
const FLAGS: [(&str, &[Flag]); 8] = [
    (
        DATA,
        &[flag(
            "split-index",
            "data.split_index",
            "I",
            "Number of the split, from 0, of a dataset that has several",
            "`data info` says how many there are. Without it: that of the shards, or the first of a dataset.",
        )],
    ),
    (
        MODEL,
        &[
            flag("model", "model.kind", "KIND", "Kind of the model", ""),
            flag("layers", "model.layers", "N", "Number of layers", ""),
            flag(
                "hidden",
                "model.hidden",
                "N",
                "Hidden size",
                "PyG's hidden_channels. For gat: heads × size of a head.",
            ),
            flag("heads", "model.heads", "N", "Attention heads (gat)", ""),
            flag("norm", "model.norm", "NORM", "Normalisation between layers", ""),
            flag("dropout", "model.dropout", "P", "Dropout probability of hidden layers", ""),
            flag(
                "edge-weights",
                "data.edge_weights",
                "BOOL",
                "Use the edge weights of the dataset, if it has any",
                "For every model but gat. gcn and gcnii normalise them as PyG; sage and resgcn take weighted means, gin weighted \
                 sums.",
            ),
        ],
    ),
    (
        OPTIMISATION,
        &[
            flag("epochs", "train.epochs", "N", "Number of epochs", ""),
            flag("lr", "train.lr", "RATE", "Learning rate", ""),
            flag("weight-decay", "train.weight_decay", "RATE", "Weight decay", ""),
            flag(
                "patience",
                "train.patience",
                "N",
                "Early stopping: epochs without a better validation score; 0: off",
                "",
            ),
            flag(
                "metric",
                "train.metric",
                "METRIC",
                "Metric of scores and of the best epoch [default: that of the dataset]",
                "accuracy. balanced-accuracy: mean recall over classes. macro-f1: mean F1 over classes. micro-f1. auc: for two \
                 classes, or multi-label data. On imbalanced classes, accuracy and micro-f1 say little about the rare ones.",
            ),
            flag(
                "class-weights",
                "train.class_weights",
                "balanced|FILE",
                "Weights of the classes in the loss [default: all 1]",
                "balanced: n / (classes · count) over training nodes, as in scikit-learn; for multi-label data negatives / positives. \
                 FILE: a CSV file with the columns class,weight, which names every class once. As weight of PyTorch's \
                 CrossEntropyLoss, or pos_weight of BCEWithLogitsLoss.",
            ),
            flag("seed", "train.seed", "N", "Seed of weights and dropout", ""),
            flag("precision", "train.precision", "TYPE", "Floating-point type for training", ""),
        ],
    ),
    (
        STRATEGY,
        &[
            flag(
                "strategy",
                "train.strategy",
                "NAME",
                "How the work is spread over ranks",
                "single: one process. partition: each rank owns a part of the graph and reads fresh halo rows; exact. \
                 pipelined: as partition, with halo rows one epoch stale (PipeGCN). minibatch: many optimiser \
                 steps per epoch on sampled neighbourhoods; on several ranks, each computes the seed nodes that it owns. \
                 split: as minibatch, but every node of a batch is computed by one rank, its owner (GSplit). layers: each \
                 rank computes consecutive stages of the model on the whole graph, chunk by chunk (GNNPipe). hybrid: as \
                 layers, with several ranks per group of stages, each on a part of the graph.",
            ),
            flag(
                "ranks",
                "train.ranks",
                "N",
                "Number of ranks; more than 1 implies --strategy partition",
                "For every strategy but single. Ranks are threads of this process. Under mpirun or srun \
                 the launcher decides, and ranks are processes.",
            ),
            flag("threads", "train.threads", "N", "Threads per rank; 0: cores of the host / ranks on it", ""),
            flag(
                "partition",
                "train.partition",
                "METHOD",
                "How nodes are assigned to ranks",
                "metis: least communication volume. presampled: least exchange and even work of sampled mini-batches, by sampling \
                 two epochs first (for split and minibatch). stream: fast, with little memory. random.",
            ),
            flag(
                "overlap",
                "train.overlap",
                "SWITCH",
                "Overlap communication with computation",
                "off is the baseline that overlap is measured against; the results are the same.",
            ),
            flag(
                "deadline",
                "train.deadline",
                "S",
                "Fail the run if a rank is silent for this many seconds",
                "",
            ),
        ],
    ),
    (
        PIPELINED,
        &[
            flag(
                "staleness",
                "train.staleness",
                "K",
                "Staleness of halo rows in epochs; 0: strategy partition",
                "",
            ),
            flag("warmup-epochs", "train.warmup_epochs", "N", "Synchronous epochs at the beginning", ""),
            flag("cooldown-epochs", "train.cooldown_epochs", "N", "Synchronous epochs at the end", ""),
            flag(
                "smooth",
                "train.smooth",
                "WHAT",
                "Smooth stale features (f), gradients (g) or both (gf) with an EMA",
                "",
            ),
            flag("gamma", "train.gamma", "DECAY", "EMA decay for smoothing stale rows", ""),
            flag(
                "smooth-correction",
                "train.smooth_correction",
                "BOOL",
                "Bias-correct the EMA",
                "Without it the EMA starts at zero, as in the PipeGCN paper.",
            ),
            flag(
                "measure-staleness",
                "train.measure_staleness",
                "BOOL",
                "Record the relative error of stale rows in metrics.jsonl; slows epochs down",
                "",
            ),
        ],
    ),
    (
        SAMPLED,
        &[
            flag(
                "batch-size",
                "train.batch_size",
                "N",
                "Training nodes per optimiser step",
                "The seed nodes of a batch, of all ranks together.",
            ),
            flag(
                "fanout",
                "train.fanout",
                "N,N,…",
                "Sampled neighbours per node and hop, hop 1 first; -1: all",
                "One number per graph layer. Hop 1 are the neighbours of the seed nodes of a batch: the last layer. If not \
                 given: 15, 10, then 5 for every further hop.",
            ),
            flag(
                "sampler",
                "train.sampler",
                "NAME",
                "How neighbours are sampled",
                "neighbor: independently for each node. labor: LABOR, which shares random numbers between nodes, so that \
                 a batch has fewer distinct nodes at the same variance.",
            ),
            flag(
                "cache-input-aggregate",
                "train.cache_input_aggregate",
                "BOOL",
                "Aggregate the features once, over all neighbours, instead of sampling the deepest hop",
                "For gcn, sage and gin without input dropout. Costs memory for one more copy of the features.",
            ),
            flag(
                "macrobatch",
                "train.macrobatch",
                "W",
                "Batches that ranks sample and fetch in one exchange [default: as many as --batch-memory allows]",
                "For several ranks. More batches per exchange need fewer messages and more memory.",
            ),
            flag(
                "batch-memory",
                "train.batch_memory",
                "BYTES",
                "Memory per rank for batches fetched ahead and for cached remote rows",
                "For several ranks. A number of bytes, or one with a unit: KiB, MiB, GiB, TiB (or K, M, G, T) are powers of \
                 1024, KB, MB, GB, TB powers of 1000.",
            ),
            flag(
                "row-cache",
                "train.row_cache",
                "POLICY",
                "Which feature rows fetched from other ranks are cached",
                "For several ranks. none. lru: the most recently used. degree: those of the nodes with the highest \
                 in-degree. future: those that coming batches need soonest.",
            ),
            flag(
                "row-encoding",
                "train.row_encoding",
                "NAME",
                "How hidden rows are sent to other ranks (split)",
                "For several ranks. nonzero: numbers other than 0 and a bitmap, of rows that a ReLU has computed. dense: \
                 all numbers. Results are the same.",
            ),
        ],
    ),
    (
        LAYERS,
        &[
            flag(
                "stages",
                "layers.stages",
                "S",
                "Stage groups: runs of consecutive stages of the model [default: layers: the number of ranks]",
                "Needed for hybrid; the number of ranks must be a multiple of it. Rank s·W + w, with W = ranks / S, computes \
                 stage group s on part w of the graph.",
            ),
            flag(
                "chunks",
                "layers.chunks",
                "K",
                "Chunks of the graph, of all parts together [default: 4 × ranks]",
                "Rows of chunks that an epoch has not computed yet are read from history. With one chunk per part, results are \
                 exact and nothing overlaps.",
            ),
            flag(
                "history-epochs",
                "layers.history_epochs",
                "R",
                "Epochs after which history is refreshed; 1: the newest rows",
                "The GNNPipe paper has 23.",
            ),
            flag(
                "history-init",
                "layers.history_init",
                "WHAT",
                "History before the first step",
                "forward: rows of one synchronous forward with the initial weights. zero: as in the GNNPipe paper.",
            ),
            flag(
                "chunk-order",
                "layers.chunk_order",
                "ORDER",
                "Order of chunks",
                "alternating: drawn anew in every second epoch, from the seed, and reversed in the one after it. random: drawn anew in \
                 every epoch, as in the GNNPipe paper. fixed: the same in every epoch; the same edges then get no gradient in \
                 every step, a bias that --gradient-weights does not remove.",
            ),
            flag(
                "gradient-weights",
                "layers.gradient_weights",
                "HOW",
                "Scale gradients between chunks",
                "Rows read from history get no gradient; those of rows read fresh are scaled to make up for it. position: by the \
                 position of the chunk in the order. doubled: by 2, as in the GNNPipe paper. unscaled: not at all.",
            ),
            flag(
                "steps-per-epoch",
                "layers.steps_per_epoch",
                "N",
                "Optimiser steps per epoch, each on an equal share of the chunks",
                "",
            ),
            flag(
                "activation-memory",
                "layers.activation_memory",
                "BYTES",
                "Memory per rank for activations of a step [default: all are kept]",
                "Activations of further chunks are computed again before their backward, at the cost of a second forward. 0: of \
                 all chunks but the last. Results are the same. Units as for --batch-memory.",
            ),
        ],
    ),
    (
        OUTPUT,
        &[
            flag("eval-every", "train.eval_every", "N", "Epochs between evaluations", ""),
            flag("checkpoint-seconds", "train.checkpoint_seconds", "S", "Seconds between checkpoints", ""),
        ],
    ),
];

impl Flag {
    fn arg(&self, heading: &'static str) -> Arg {
        let &Flag { name, key, value, help, more } = self;
        let default = default_of(key);
        let short = match default.as_str() {
            "" => help.to_string(),
            default => format!("{help} [default: {default}{}]", of_split(key)),
        };
        let arg = Arg::new(name).long(name).value_name(value).help_heading(heading);
        // The last of several occurrences counts, as with --set.
        let arg = arg.overrides_with(name);
        let arg = match more {
            "" => arg.help(short),
            more => arg.long_help(format!("{short}\n\n{more}")).help(short),
        };
        if matches!(default.as_str(), "true" | "false") {
            let values = PossibleValuesParser::new(["true", "false"]);
            return arg.num_args(0..=1).default_missing_value("true").value_parser(values);
        }
        match choices(key) {
            // The configuration says what is wrong with a negative number.
            [] => arg.allow_hyphen_values(key == "train.fanout").allow_negative_numbers(true),
            names => arg.value_parser(PossibleValuesParser::new(names)),
        }
    }

    fn setting(&self, matches: &ArgMatches) -> Option<Setting> {
        let &Flag { name, key, .. } = self;
        let text: &String = matches.get_one(name)?;
        Some(Setting::new(&format!("--{name}"), key, text))
    }
}

/// Returns the key that a flag sets; dashes in its name may be underscores.
pub fn key_of_flag(name: &str) -> Option<String> {
    let name = name.replace('_', "-");
    let found = FLAGS.iter().flat_map(|(_, flags)| flags.iter()).find(|flag| flag.name == name);
    found.map(|flag| flag.key.into())
}

/// Returns the default of a key, and the other defaults of some models.
fn default_of(key: &str) -> String {
    let default = |kind: Kind| {
        let flat = config::flatten(&Config::new(kind)).unwrap_or_default();
        let value = flat.into_iter().find(|(name, _)| name == key).map(|(_, value)| value);
        value.map(|value| config::text_of(key, &value)).unwrap_or_default()
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

/// Returns what `config::resolve` chooses instead of a default for strategy `split`.
fn of_split(key: &str) -> &'static str {
    match key {
        "train.partition" => "; presampled for split",
        "train.cache_input_aggregate" => "; true for split where possible",
        _ => "",
    }
}

/// Flags outside of the model that change the speed of an epoch.
const SPEED: [&str; 3] = ["precision", "strategy", "threads"];
/// Flags of sampled strategies that have no effect in one process.
const RANKS: [&str; 4] = ["macrobatch", "batch-memory", "row-cache", "row-encoding"];

/// Settings from a file, `--set` and flags: all flags, or only those that change the speed of an epoch.
#[derive(clap::Args)]
pub struct Settings<const ALL: bool> {
    /// Read settings from a TOML file with the tables [data], [model], [train] and [layers]
    #[arg(long, value_name = "F.toml")]
    config: Option<PathBuf>,
    /// Set one key, e.g. --set model.hidden=256; overrides the file; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    flags: Flags<ALL>,
}

impl<const ALL: bool> Settings<ALL> {
    /// Reads all settings in increasing order of precedence: file, `--set`, flags.
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
    /// Returns the flags with their headings.
    fn all() -> impl Iterator<Item = (&'static str, &'static Flag)> {
        let flags = FLAGS.iter().flat_map(|(heading, flags)| flags.iter().map(|flag| (*heading, flag)));
        flags.filter(|(heading, Flag { name, .. })| {
            let is_speed = [MODEL, SAMPLED].contains(heading) || SPEED.contains(name);
            ALL || is_speed && !RANKS.contains(name)
        })
    }

    fn settings(matches: &ArgMatches) -> impl Iterator<Item = Setting> {
        Self::all().filter_map(|(_, flag)| flag.setting(matches))
    }
}

impl<const ALL: bool> clap::Args for Flags<ALL> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::all().map(|(heading, flag)| flag.arg(heading)))
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
    fn every_flag_sets_a_known_key() {
        let known = config::flatten(&Config::new(Kind::Gcn)).unwrap();
        for (_, Flag { name, key, .. }) in Flags::<true>::all() {
            let is_known = config::OPTIONAL.contains(key) || known.iter().any(|(known, _)| known == key);
            assert!(is_known, "--{name}: {key}");
        }
    }

    #[test]
    fn defaults_of_split_are_told() {
        let with = |strategy: &str| config::resolve(&[Setting::new("", "train.strategy", strategy)]).unwrap();
        let changed = config::differences(&with("minibatch"), &with("split")).unwrap();
        let told: Vec<&str> = ["train.cache_input_aggregate", "train.partition", "train.strategy"].into();
        assert_eq!(changed, told);
        assert!(told[..2].iter().all(|key| of_split(key).contains("for split")));
    }

    #[test]
    fn defaults_tell_models_apart() {
        assert_eq!(default_of("train.lr"), "0.01");
        assert_eq!(default_of("model.kind"), "sage");
        assert_eq!(default_of("train.batch_memory"), "512MiB");
        assert_eq!(default_of("train.macrobatch"), "");
        assert_eq!(default_of("model.norm"), "layer; none for gcn, gat, gcnii");
    }
}
