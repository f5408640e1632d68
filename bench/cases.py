"""Graphs, models and helpers that the scripts in bench/ share."""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where cargo puts the binary.
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/halograph"
MODELS = ["sage", "gcn", "gat", "gcnii"]
CASES = {"reddit-like": MODELS, "arxiv-like": ["sage"], "products-like": ["sage", "gcn", "gat"]}
# Models as flags. bench/peers builds all but resgcn.
FLAGS = {
    "sage": "--layers 3 --hidden 256 --norm layer",
    "gcn": "--layers 3 --hidden 256 --norm none",
    "gat": "--layers 2 --hidden 256 --heads 4 --norm none --set model.attention_dropout=0",
    "gcnii": "--layers 32 --hidden 64 --norm none"
             " --set model.alpha=0.1 --set model.theta=0.5 --set model.input_dropout=0.5",
    "resgcn": "--layers 32 --hidden 64 --norm layer",
}
# Flags of every case.
TRAINING = ["--dropout", "0.5", "--set", "train.lr=0.003"]
# Pipelined training with one synchronous epoch.
STALE = ["--strategy", "pipelined", "--warmup-epochs", "1", "--smooth", "none"]
MAKE_LIMIT, BUILD_LIMIT = 1800, 3600  # seconds


class Failure(Exception):
    """A command failed; the message fits into a table."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def execute(command, limit, env=None, captured=True, grace=0):
    """Runs a command and returns its output. Kills it with its children after `limit` seconds, or if this script ends;
    first sends SIGTERM and waits for `grace` seconds, unless 0."""
    pipe = subprocess.PIPE if captured else sys.stderr
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
                          cwd=ROOT, env=env, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except BaseException as stop:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                if grace:
                    os.killpg(process.pid, signal.SIGTERM)
                    process.communicate(timeout=grace)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(stop, subprocess.TimeoutExpired):
                raise Failure(f"not finished after {limit} s") from None
            raise
    if process.returncode < 0:
        raise Failure(f"killed by {signal.Signals(-process.returncode).name}")
    if process.returncode > 0:
        raise Failure(f"exit code {process.returncode}" + (f": {reason(errors)}" if captured else ""))
    return output


def reason(errors):
    """Returns the most informative line of standard error."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or ["no message"])[-1][:160]


def cpu_seconds():
    """Returns CPU seconds since boot: all busy ones, with steal time, and those of our children."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy, own.ru_utime + own.ru_stime


class Load:
    """Measures the load of this machine by others from now on. Children count as others until they have been waited for."""

    def __init__(self):
        (self.busy, self.own), self.begin = cpu_seconds(), time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begin

    def others(self):
        """Returns the fraction of the CPU time of the machine that other processes used."""
        busy, own = cpu_seconds()
        return min(max(((busy - self.busy) - (own - self.own)) / (self.seconds() * os.cpu_count()), 0.0), 1.0)


def prepare_graphs(args, graphs, features=()):
    """Builds the binary and generates the graphs, as far as they are missing."""
    if not args.binary:
        say("building halograph")
        build = ["cargo", "build", "--release", "--quiet", "--locked", "-p", "halograph"]
        execute([*build, *(f"--features=halograph/{name}" for name in features)], BUILD_LIMIT, captured=False)
        args.binary = str(BUILT)
    args.data.mkdir(parents=True, exist_ok=True)
    for graph in dict.fromkeys(graphs):
        if not (args.data / graph / "dataset.json").exists():
            say(f"generating {graph}")
            make = [args.binary, "data", "make", graph, "-o", str(args.data / graph), "--quiet"]
            execute(make, MAKE_LIMIT, captured=False)


def train_flags(args, graph, folder, *flags):
    """Returns the arguments of halograph that train with one thread per rank and print the summary as JSON."""
    return ["train", str(args.data / graph), "--threads", "1", *flags, "--out", f"{folder}/run", "--overwrite", "--force", "--json"]


def sized(model, layers, hidden):
    """Returns the flags of a model with other sizes."""
    words = FLAGS[model].split()
    for flag, size in [("--layers", layers), ("--hidden", hidden)]:
        words[words.index(flag) + 1] = str(size)
    return words


def chosen(args):
    """Returns the chosen (graph, model) pairs; by default those of CASES."""
    models = args.models or MODELS
    if args.graphs and args.models:
        return [(graph, model) for graph in args.graphs for model in models]
    graphs = args.graphs or list(CASES)
    return [(graph, model) for graph in graphs for model in CASES.get(graph, MODELS) if model in models]


def names(known=None, comma=","):
    def split(text):
        parts = [part for part in text.split(comma) if part]
        unknown = [part for part in parts if known and part not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return parts
    return split


def numbers(text):
    """Parses a list of positive numbers."""
    return [positive(part) for part in text.split(",")]


def positive(text):
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
