"""What dgl_epochs and pyg_epochs share: arguments, the dataset directory, timed epochs, the line of JSON."""

import argparse
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HEADS = 4
DEPTH = {"sage": 3, "gcn": 3, "gat": 2, "gcnii": 32}
WIDTH = {"sage": 256, "gcn": 256, "gat": 256, "gcnii": 64}
SELF_LOOPS = ("gcn", "gat", "gcnii")
DROPOUT, ALPHA, THETA, RATE = 0.5, 0.1, 0.5, 0.003
TRAIN = 1  # in split.npy


def arguments(description, **flags):
    """The parsed command line; `flags` are switches of one peer, with their help. Call it before torch is imported."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", type=Path, help="a dataset directory of halograph, one label a node")
    parser.add_argument("--model", choices=DEPTH, default="sage")
    parser.add_argument("--epochs", type=int, default=9, help="warm-ups included")
    parser.add_argument("--threads", type=int, default=2)
    for name, text in flags.items():
        parser.add_argument("--" + name.replace("_", "-"), action="store_true", help=text)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args


class Graph(NamedTuple):
    """Arrays of the dataset; row v of the CSR pair lists the sources of the edges into v."""

    indptr: "torch.Tensor"
    indices: "torch.Tensor"
    features: "torch.Tensor"
    rows: "torch.Tensor"  # the training nodes
    targets: "torch.Tensor"  # their classes
    classes: int

    def widths(self, model):
        """Columns into the first layer, between layers …, out of the last."""
        return [self.features.shape[1], *[WIDTH[model]] * (DEPTH[model] - 1), self.classes]


def load(args):
    import numpy as np
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    indptr, indices, features, labels, split = (
        np.load(args.data / f"{name}.npy") for name in ("indptr", "indices", "feat", "label", "split"))
    if labels.ndim != 1:
        raise SystemExit(f"{args.data}: several labels a node are not compared")
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    if args.model in SELF_LOOPS:
        indptr, indices = with_self_loops(indptr, indices)
    rows = np.flatnonzero(split == TRAIN)
    arrays = indptr, indices, features.astype(np.float32, copy=False), rows, labels[rows]
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


def measure(args, model, forward, graph, packages):
    """Trains and prints one line: seconds and loss of every epoch, peak memory, versions. Nothing is evaluated."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    model.train()
    seconds, losses = [], []
    for _ in range(args.epochs):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(forward()[graph.rows], graph.targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - start)
    versions = {name: version(name) for name in packages}
    result = {"epoch_seconds": seconds, "loss_history": losses, "peak_rss_bytes": peak(), "versions": versions}
    print(json.dumps(result), flush=True)


def peak():
    """The kernel's high-water mark of this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
