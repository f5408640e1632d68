"""Accuracy over seeds: concurrent runs of several seeds that a file keeps, and differences that are paired by seed."""

import concurrent.futures
import json
import math
import os
import statistics
import threading
from pathlib import Path

from cases import BUILD_LIMIT, BUILT, execute, say
from runs import append, read

LIMIT = 3600  # seconds per run
AMAZON = "{data}/amazon_%s/amazon_electronics_%s.npz"
ALLOWED, ERRORS = 0.5, 2  # points, or standard errors, by which a mean may be lower


def program():
    if named := os.environ.get("HALOGRAPH"):
        return str(Path(named).absolute())
    execute(["cargo", "build", "--release", "--quiet", "--locked", "-p", "halograph"], BUILD_LIMIT, captured=False)
    return str(BUILT)


class SeedBench:
    """Runs by key: a tuple of graph, anything, and seed. `graphs`: by name, the `halograph data` command with `{data}` for
    HALOGRAPH_TEST_DATA, the option by which the seed chooses the split or None, and more.

    Subclasses define `words(key)`, the arguments of `train`."""

    def __init__(self, args, folder, graphs):
        self.args, self.folder, self.graphs, self.program = args, Path(folder), graphs, program()
        self.lock, self.found = threading.Lock(), {tuple(case["key"]): case for case in read(args.out)}

    def graph(self, name, seed):
        how, option, *_ = self.graphs[name]
        path = self.folder / f"{name}-{seed if option else 0}"
        with self.lock:
            if not path.exists():
                words = [word.format(data=os.environ.get("HALOGRAPH_TEST_DATA", "")) for word in how]
                split = [option, str(seed)] if option else []
                execute([self.program, "data", *words, *split, "-o", str(path), "--quiet"], LIMIT)
        return str(path)

    def run_all(self, keys):
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            list(pool.map(self.run, keys))

    def run(self, key):
        """Trains once and stores the numbers of the run, unless they are stored already."""
        if key in self.found:
            return
        name, *_, seed = key
        out = self.folder / f"run-{threading.get_ident()}"
        command = [self.program, "train", self.graph(name, seed), *self.words(key), "--seed", str(seed), "--threads", "1",
                   "--out", str(out), "--overwrite", "--json"]
        summary = json.loads(execute(command, LIMIT).splitlines()[-1])
        epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        case = {"key": key, **numbers_of(summary, epochs)}
        with self.lock:
            self.found[key] = case
            append(self.args.out, case)
        say(f"{' '.join(map(str, key))}: {100 * case['test']:.2f}")


def numbers_of(summary, epochs):
    """Returns the scores of a run, and when it was near the best."""
    scored = [(k, epoch) for k, epoch in enumerate(epochs) if epoch.get("val") is not None]
    enough = next(k for k, epoch in scored if epoch["val"] >= 0.99 * summary["val"])
    return {"test": summary["test"], "val": summary["val"], "best_epoch": summary["best_epoch"],
            "last_test": scored[-1][1].get("test"), "near_epoch": epochs[enough]["epoch"],
            "near_seconds": sum(epoch["seconds"] for epoch in epochs[:enough + 1])}


def difference(cases, others):
    """Returns mean and standard error of the paired differences, in points."""
    apart = [100 * (case["test"] - other["test"]) for case, other in zip(cases, others)]
    error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return statistics.mean(apart), error


def against(cases, others):
    """Returns the difference as text, and whether the mean is at most half a point or two standard errors lower."""
    mean, error = difference(cases, others)
    return f"{mean:+.2f} ± {error:.2f}", "yes" if mean >= -ALLOWED or mean >= -ERRORS * error else "**no**"


def mean_and_deviation(cases, key="test"):
    scores = [100 * case[key] for case in cases]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return f"{statistics.mean(scores):.2f} ± {spread:.2f}"
