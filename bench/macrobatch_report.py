"""The ways to train of bench/macrobatch, and the tables of its results."""

import shlex
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from compare_mini import FANOUT
from compare_report import NOISE, duration, machine, span, table
from runs import dates, failure, found

DISTDGL = "distdgl"
WARM_UPS = 1  # epochs
# Relative difference of losses that add the same numbers in another order, in single precision: of the first epoch, and of later
# ones. Each step of Adam divides gradients by their size, so the smallest ones turn rounding into different weights.
CLOSE, LATER = 1e-4, 1e-2
PURPOSES = ["sampling", "features", "gradients", "weights"]


@dataclass(frozen=True)
class Way:
    """A way to train: a strategy and more flags."""

    strategy: str
    more: str = ""

    def flags(self):
        return ["--strategy", self.strategy, *self.more.split()]

    @property
    def cached(self):
        return "--cache-input-aggregate" in self.more.split()

    @property
    def presampled(self):
        return self.strategy == "split" or "--partition presampled" in self.more

    @property
    def exact_group(self):
        """Returns a value that ways with the same losses, to the bit, have in common."""
        return self.strategy, self.presampled, self.cached


SAMPLED = "--cache-input-aggregate=false"
WAYS = {
    "one": Way("minibatch", "--macrobatch 1 --row-cache none"),
    "macro": Way("minibatch", "--row-cache none"),
    "future": Way("minibatch"),
    "cached": Way("minibatch", "--cache-input-aggregate"),
    "presampled": Way("minibatch", "--partition presampled"),
    "presampled-cached": Way("minibatch", "--partition presampled --cache-input-aggregate"),
    "split-one": Way("split", f"--macrobatch 1 --row-cache none --row-encoding dense {SAMPLED}"),
    "split-macro": Way("split", f"--row-cache none --row-encoding dense {SAMPLED}"),
    "split-dense": Way("split", f"--row-encoding dense {SAMPLED}"),
    "split": Way("split", SAMPLED),
    "split-cached": Way("split", "--cache-input-aggregate"),
    DISTDGL: Way(DISTDGL),
}
HEAD = ["model", "way", "delay", "epoch (range)", "waiting for batches", "exposed communication", "sampling, of the epoch",
        "gathering", "relays", "sent, MB", *PURPOSES, "W", "hit rate", "data parallel", "DistDGL: epoch", "waiting", "test",
        "others' CPU"]
LEGEND = f"""\
All values are per epoch. Epoch: median without the first epoch, and range. Waiting for batches: seconds in which training
waited for a batch, of the rank that waited longest (`batches.longest_wait_seconds`), mean over all epochs, with the first, in
which the loader starts; for DistDGL, `sample` + `fetch` of the slowest trainer, median without the first epoch. Exposed
communication: seconds in which a rank only waited (`wait_seconds`), mean over ranks and all epochs, with the waits for batches and
for slower ranks; in brackets without those for batches. Sampling: seconds of sampling and splitting with its waits for other
ranks, in the background (`batches.sampling_seconds`), relative to the sum of all epochs. Gathering: copying input rows of a batch,
part of DistDGL's `fetch`. Relays: all-to-alls for sampling and fetching, of each rank. Sent: payload of all ranks, mean over
epochs, by purpose; features are input rows and hidden rows, gradients those of hidden rows; DistDGL's with protocol headers. W:
batches of a macrobatch. Hit rate: remote rows that were cached, among distinct remote rows of a macrobatch. Data parallel: epoch of
the fastest way with `--strategy minibatch` of the same model and delay, divided by that of the row: above 1, the row is faster.
DistDGL: its epoch and its waiting, divided by those of the row; in brackets, waiting and gathering together. DistDGL runs without
delay and is compared with every delay. Others' CPU: fraction of the machine that others used during the run, among them the
kernel's work for links; above {NOISE:.0%} more than in other rows, repeat the run on a quiet machine."""


def links(rate):
    return "unshaped links" if rate == "none" else f"links of {rate}"


def name(run):
    delay = f", delay {run['delay_us']} µs" if run["delay_us"] else ""
    return (f"{run['graph']} {run['model']}, batch size {run['batch_size']}, {links(run['rate'])}{delay}, round {run['round']}: "
            f"{run['way']}")


def numbers_of(line):
    """Returns the numbers of a run per epoch; None for those that DistDGL does not have."""
    report, epochs = line["report"], line["epochs"]
    common = {"steady": report["epoch_seconds"][WARM_UPS:], "others": line["others_cpu"]}
    if line["way"] == DISTDGL:
        middle = report["median"]
        return {**common, "batch_wait": middle["sample"] + middle["fetch"], "bytes": sum(report["sent_bytes"])}
    batches, fetches = report["batches"], report["fetches"]
    remote, waits = fetches["remote_rows"], report["wait_seconds"]
    return {**common, "batch_wait": batches["longest_wait_seconds"] / epochs, "waits": waits / epochs,
            "other_waits": max(waits - batches["wait_seconds"], 0.0) / epochs,
            "sampling_share": batches["sampling_seconds"] / sum(report["epoch_seconds"]),
            "gather": batches["gather_seconds"] / epochs, "relays": fetches["relays"] / epochs, "bytes": report["bytes_per_epoch"],
            **{purpose: report["bytes_by_tag"].get(purpose, 0) for purpose in PURPOSES},
            "hits": 1 - fetches["fetched_rows"] / remote if remote else None, "macrobatch": fetches["macrobatch"],
            "test": report["test"]}


def combined(lines):
    """Returns the numbers of the rounds of a case together: all timed epochs, means of the rest; None without a run."""
    rounds = [numbers_of(line) for line in lines]
    if not rounds:
        return None
    values = {key: [one[key] for one in rounds if one[key] is not None] for key in rounds[0]}
    steady = [seconds for one in rounds for seconds in one["steady"]]
    means = {key: statistics.mean(found) for key, found in values.items() if found and key != "steady"}
    return {**means, "steady": steady, "epoch": statistics.median(steady), "others": max(values["others"])}


def fastest_data_parallel(lines, case):
    """Returns the shortest epoch of data-parallel ways, with the other settings of a case; None if none was run."""
    ways = [way for way in WAYS if WAYS[way].strategy == "minibatch"]
    runs = [combined(found(lines, {**case, "way": way})) for way in ways]
    return min((run["epoch"] for run in runs if run), default=None)


def row(lines, case):
    """Returns the cells of a case, all rounds together; None if it was not run."""
    ours = combined(found(lines, case))
    first = [case["model"], case["way"], f"{case['delay_us']} µs"]
    if ours is None:
        error = failure(lines, case)
        return [*first, error, *[""] * (len(HEAD) - 4)] if error else None
    shown = lambda key, text: text(ours[key]) if key in ours else ""
    megabytes = lambda count: f"{count / 1e6:.2f}"
    waits = f"{duration(ours['waits'])} ({duration(ours['other_waits'])})" if "waits" in ours else ""
    cells = [*first, f"{duration(ours['epoch'])} ({span(ours['steady'])})", duration(ours["batch_wait"]), waits,
             shown("sampling_share", "{:.0%}".format), shown("gather", duration), shown("relays", "{:.1f}".format),
             *(shown(key, megabytes) for key in ["bytes", *PURPOSES]), shown("macrobatch", "{:.0f}".format),
             shown("hits", "{:.0%}".format)]
    best = fastest_data_parallel(lines, case)
    ratios = [f"{best / ours['epoch']:.2f}×" if best else "", "", ""]
    theirs = combined(found(lines, {**case, "delay_us": 0, "way": DISTDGL}))
    if theirs and case["way"] != DISTDGL:
        waited, gathered = ours["batch_wait"], ours["batch_wait"] + ours["gather"]
        ratios[1:] = [f"{theirs['epoch'] / ours['epoch']:.2f}×",
                      f"{theirs['batch_wait'] / waited:.1f}× ({theirs['batch_wait'] / gathered:.1f}×)" if waited else ""]
    return [*cells, *ratios, shown("test", "{:.4f}".format), f"{ours['others']:.0%}"]


def loss_warnings(lines, runs):
    """Returns warnings about losses. Ways with equal strategy and partition must have the same, to the bit; other ways that train
    the same batches must be close: they add in another order, and round differently."""
    first, close, different, far = {}, {}, [], []
    for run in runs:
        way, case = WAYS[run["way"]], (run["graph"], run["model"], run["batch_size"])
        for line in found(lines, run) if run["way"] != DISTDGL else []:
            losses = line["report"]["loss_history"]
            if losses != first.setdefault((*case, way.exact_group), losses):
                different.append(name(run))
            reference = close.setdefault((*case, way.cached), losses)
            bounds = [CLOSE] + [LATER] * (len(losses) - 1)
            if any(abs(loss - other) > bound * abs(other) for loss, other, bound in zip(losses, reference, bounds)):
                far.append(name(run))
    texts = {"losses differ from those of another way with the same strategy and partition": different,
             f"losses differ by more than {CLOSE:g} (relative), after the first epoch {LATER:g}, from those of another way": far}
    return [f"WARNING: {text}: {'; '.join(names)}." for text, names in texts.items() if names]


def markdown(args, lines, runs):
    start = shlex.join(["bench/macrobatch", *sys.argv[1:]])
    text = [f"`{start}`, {dates(lines, runs)}: 3 layers, hidden size 256, fanout {FANOUT}, "
            f"{args.hosts} hosts, 1 thread per rank, {args.epochs} epochs per run.", LEGEND]
    for graph, size, rate in dict.fromkeys((run["graph"], run["batch_size"], run["rate"]) for run in runs):
        cases = [{key: value for key, value in run.items() if key != "round"} for run in runs
                 if (run["graph"], run["batch_size"], run["rate"], run["round"]) == (graph, size, rate, 1)]
        if rows := [cells for case in cases if (cells := row(lines, case))]:
            text += [f"### {Path(graph).name}, batch size {size}, {links(rate)}", table(HEAD, rows)]
    return "\n\n".join([*text, *loss_warnings(lines, runs), f"Machine: {machine()}."])
