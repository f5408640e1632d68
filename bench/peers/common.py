"""What the scripts of the peers share: arguments, the dataset directory, timed epochs, the line of JSON.

| key of the line | meaning |
|---|---|
| `epoch_seconds`, `loss_history` | one value per epoch, warm-ups included; neither evaluation nor set-up is timed |
| `peak_rss_bytes`, `worker_peak_rss_bytes` | peak resident memory of the process, and of its largest sampling worker |
| `val_history`, `test_history` | with --time-to-accuracy: exact full-graph accuracy after every epoch |
| `batches`, `sampled_edges`, `input_nodes` | with --mode mini: batches of an epoch; per epoch, edges and distinct input nodes, summed over batches |
| `sampling_seconds` | with --mode mini: seconds of --sampling-epochs more epochs that sample, and neither gather features nor train |
| `variant` | with --workers auto: the fastest |
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HEADS = 4
DEPTH = {"sage": 3, "gcn": 3, "gat": 2, "gcnii": 32}
WIDTH = {"sage": 256, "gcn": 256, "gat": 256, "gcnii": 64}
SELF_LOOPS = ("gcn", "gat", "gcnii")
DROPOUT, ALPHA, THETA, RATE = 0.5, 0.1, 0.5, 0.003
WARM_UPS = 2
TRAIN, VAL, TEST = 1, 2, 3  # in split.npy


def arguments(description, loaders, **flags):
    """Returns the parsed command line. Call it before torch is imported.

    `loaders` are the mini-batch loaders of the peer with their samplers, `flags` its switches with their help."""
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("data", type=Path, help="dataset directory of halograph, one label per node")
    add("--model", choices=DEPTH, default="sage")
    add("--mode", choices=["full", "mini"], default="full", help="full-graph epochs or mini-batches [default: full]")
    add("--epochs", type=int, default=9, help="epochs, warm-ups included [default: 9]")
    add("--threads", type=int, default=2)
    add("--seed", type=int, default=0)
    add("--time-to-accuracy", action="store_true", help="evaluate on the full graph after every epoch")
    add("--fanout", type=lambda text: [int(part) for part in text.split(",")], default=[15, 10, 5], metavar="K,K",
        help="neighbours per hop, hop 1 (neighbours of seed nodes) first; one layer per hop [default: 15,10,5]")
    add("--batch", type=int, default=1024, help="seed nodes per batch [default: 1024]")
    add("--loader", choices=loaders, default=next(iter(loaders)))
    add("--sampler", choices=sorted({name for samplers in loaders.values() for name in samplers}), default="neighbor")
    add("--workers", default="0", help="sampling processes; auto: the fastest of 0 and 1 (with and without affinity) [default: 0]")
    add("--affinity", action="store_true", help="bind sampling workers and training to different cores")
    add("--sampling-epochs", type=int, default=3, metavar="N", help="epochs that only sample [default: 3]")
    for name, text in flags.items():
        add("--" + name.replace("_", "-"), action="store_true", help=text)
    args = parser.parse_args()
    if args.mode == "mini" and args.model == "gcnii":
        parser.error("gcnii has no mini-batches")
    if args.sampler not in loaders[args.loader]:
        parser.error(f"--loader {args.loader} has no sampler {args.sampler}")
    if args.workers == "auto":
        sys.exit(fastest([["--workers", "0"], ["--workers", "1"], ["--workers", "1", "--affinity"]]))
    args.workers = int(args.workers)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args


def fastest(variants):
    """Runs this command once per variant and prints the line of the fastest; returns an exit code."""
    lines = []
    for variant in variants:
        done = subprocess.run([sys.executable, *sys.argv, *variant], stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            line = json.loads(done.stdout.splitlines()[-1])
            lines.append(line | {"variant": " ".join(variant)})
            median = statistics.median(line["epoch_seconds"][WARM_UPS:] or line["epoch_seconds"])
            print(f"{' '.join(variant)}: {median:.3f} s per epoch", file=sys.stderr)
    if not lines:
        return 1
    print(json.dumps(min(lines, key=lambda line: statistics.median(line["epoch_seconds"][WARM_UPS:] or line["epoch_seconds"]))))
    return 0


class Graph(NamedTuple):
    """Arrays of the dataset; row v of the CSR pair lists the sources of the edges into v."""

    indptr: "torch.Tensor"
    indices: "torch.Tensor"
    features: "torch.Tensor"
    labels: "torch.Tensor"
    split: "torch.Tensor"
    rows: "torch.Tensor"  # training nodes
    targets: "torch.Tensor"  # their classes
    classes: int

    def widths(self, args):
        """Returns the columns into the first layer, between layers …, out of the last."""
        depth = len(args.fanout) if args.mode == "mini" else DEPTH[args.model]
        return [self.features.shape[1], *[WIDTH[args.model]] * (depth - 1), self.classes]


class Batch(NamedTuple):
    graph: Any  # as the model takes it
    features: "torch.Tensor"  # one row per input node
    targets: "torch.Tensor"  # classes of the seed nodes, which are the first rows of the output
    edges: int


def load(args):
    import numpy as np
    import torch

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    indptr, indices, features, labels, split = (
        np.load(args.data / f"{name}.npy") for name in ("indptr", "indices", "feat", "label", "split"))
    if labels.ndim != 1:
        raise SystemExit(f"{args.data}: several labels per node are not compared")
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    if args.model in SELF_LOOPS:
        indptr, indices = with_self_loops(indptr, indices)
    rows = np.flatnonzero(split == TRAIN)
    labels = labels.astype(np.int64)
    arrays = indptr, indices, features.astype(np.float32, copy=False), labels, split, rows, labels[rows]
    classes = json.loads((args.data / "dataset.json").read_text())["classes"]
    return Graph(*map(torch.from_numpy, arrays), classes)


def with_self_loops(indptr, indices):
    """Every node among its own neighbours exactly once; rows stay sorted."""
    import numpy as np

    nodes = np.arange(len(indptr) - 1)
    owner = np.repeat(nodes, np.diff(indptr))
    other = indices != owner
    owner, indices = owner[other], indices[other]
    indptr = np.concatenate([[0], np.bincount(owner, minlength=len(nodes)).cumsum()])
    before = np.bincount(owner[indices < owner], minlength=len(nodes))
    return indptr + np.arange(len(indptr)), np.insert(indices, indptr[:-1] + before, nodes)


def measure(args, data, model, graph, packages, batches=None, samples=None):
    """Trains and prints the line of JSON. `graph` is the full graph as the model takes it.

    For --mode mini, `batches()` yields the batches of an epoch and `samples()` only (edges, input nodes) of each."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    line = {"epoch_seconds": [], "loss_history": []}
    if args.mode == "mini":
        line |= {"batches": -(-len(data.rows) // args.batch), "sampled_edges": [], "input_nodes": [], "sampling_seconds": []}
    if args.time_to_accuracy:
        line |= {"val_history": [], "test_history": []}
    for _ in range(args.epochs):
        model.train()
        start = time.perf_counter()
        if args.mode == "full":
            loss = step(model, optimizer, graph, data.features, data.rows, data.targets)
        else:
            loss, edges, inputs = batch_epoch(model, optimizer, batches())
            line["sampled_edges"].append(edges)
            line["input_nodes"].append(inputs)
        line["epoch_seconds"].append(time.perf_counter() - start)
        line["loss_history"].append(loss)
        if args.time_to_accuracy:
            evaluate(model, graph, data, line)
    line["peak_rss_bytes"] = peak()
    for _ in range(args.sampling_epochs if args.mode == "mini" else 0):
        start = time.perf_counter()
        for _ in samples():
            pass
        line["sampling_seconds"].append(time.perf_counter() - start)
    if args.workers:
        line["worker_peak_rss_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    line["versions"] = {name: version(name) for name in packages}
    print(json.dumps(line), flush=True)


def step(model, optimizer, graph, features, rows, targets):
    """Forward, loss, backward, optimiser step; returns the loss. `rows` of the output belong to `targets`."""
    import torch

    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(graph, features)[rows], targets)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def batch_epoch(model, optimizer, batches):
    """Trains on every batch; returns mean loss, sampled edges and input nodes."""
    total = seeds = edges = inputs = 0
    for batch in batches:
        size = len(batch.targets)
        total += size * step(model, optimizer, batch.graph, batch.features, slice(size), batch.targets)
        seeds, edges, inputs = seeds + size, edges + batch.edges, inputs + len(batch.features)
    return total / seeds, edges, inputs


def evaluate(model, graph, data, line):
    """Appends validation and test accuracy on the full graph."""
    import torch

    model.eval()
    with torch.no_grad():
        hits = (model(graph, data.features).argmax(1) == data.labels).float()
    for subset, key in ((VAL, "val_history"), (TEST, "test_history")):
        line[key].append(float(hits[data.split == subset].mean()))


def peak():
    """Returns the peak resident memory of this process in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
