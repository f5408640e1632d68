#!/usr/bin/env python3
"""Check that a trained run loads into PyG: scripts/pyg-load.py RUN DATA LOGITS.npy

    pip install torch==2.15.0 torch_geometric==2.8.1 numpy==2.4.6 safetensors==0.7.0
    halograph predict RUN -o logits.npy
    python scripts/pyg-load.py RUN DATA logits.npy

Builds PyG's own GCN, GraphSAGE, GAT or GIN as RUN/run.json describes it, loads RUN/model.safetensors into it (strictly),
computes the logits of every node of the dataset directory DATA and compares them with LOGITS.npy. Prints the largest
difference; exits 1 if it is above 1e-4 or if anything is not as it should be.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch_geometric.nn import models
from torch_geometric.utils import add_remaining_self_loops

TOLERANCE = 1e-4
TRAIN = 1  # in split.npy
MODELS = {"gcn": models.GCN, "sage": models.GraphSAGE, "gat": models.GAT, "gin": models.GIN}
NORMS = {
    "none": {},
    "layer": {"norm": "LayerNorm", "norm_kwargs": {"mode": "node"}},
    "batch": {"norm": "BatchNorm"},
}


def build(spec, inputs, outputs):
    """Returns the PyG model of a `model` table. Dropout is left out: it is off in evaluation."""
    if spec["kind"] not in MODELS:
        sys.exit(f"model.kind = {spec['kind']}: torch_geometric.nn.models has no such model, only {', '.join(MODELS)}")
    if spec["linear_layers"] > 0:
        sys.exit(f"model.linear_layers = {spec['linear_layers']}: PyG's models have no dense layers at the end")
    if spec["kind"] == "gat" and spec["output_heads"] not in (0, spec["heads"]):
        sys.exit(f"model.output_heads = {spec['output_heads']}: PyG's GAT has as many heads in its last layer as in the others")
    options = {"gat": {"heads": spec["heads"]}, "gin": {"train_eps": spec.get("train_eps", False)}}.get(spec["kind"], {})
    sizes = inputs, spec["hidden"], spec["layers"], outputs
    return MODELS[spec["kind"]](*sizes, act=spec["activation"], **NORMS[spec["norm"]], **options)


def features(data, normalize):
    """Returns feat.npy, scaled as in training."""
    x = np.load(data / "feat.npy").astype(np.float64)
    if normalize == "rows":
        sums = np.abs(x).sum(axis=1, keepdims=True)
        return x / np.where(sums > 0, sums, 1)
    if normalize == "columns":
        training = x[np.load(data / "split.npy") == TRAIN]
        deviation = training.std(axis=0)
        return (x - training.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    if normalize == "none":
        return x
    sys.exit(f"data.normalize = {normalize}: unknown value")


def edges(data, self_loops):
    """Returns the graph as PyG's edge_index; indices of row v are the sources of the edges into v."""
    indptr, sources = (np.load(data / name).astype(np.int64) for name in ("indptr.npy", "indices.npy"))
    nodes = len(indptr) - 1
    destinations = np.repeat(np.arange(nodes), np.diff(indptr))
    edge_index = torch.from_numpy(np.stack([sources, destinations]))
    return add_remaining_self_loops(edge_index, num_nodes=nodes)[0] if self_loops else edge_index


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    run, data, logits = map(Path, sys.argv[1:])
    config = json.loads((run / "run.json").read_text())["config"]
    ours = np.load(logits)
    x = features(data, config["data"]["normalize"])
    if len(ours) != len(x):
        sys.exit(f"{logits}: {len(ours)} rows for {len(x)} nodes")

    state = {name: torch.from_numpy(array) for name, array in load_file(run / "model.safetensors").items()}
    precision = next(tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    model = build(config["model"], x.shape[1], ours.shape[1]).to(precision)
    model.load_state_dict(state, strict=True)
    model.eval()
    with torch.no_grad():
        edge_index = edges(data, config["model"]["self_in_mean"])
        theirs = model(torch.from_numpy(x).to(precision), edge_index).numpy()

    largest = float(np.abs(theirs.astype(np.float64) - ours).max(initial=0))
    print(f"{len(state)} tensors loaded into PyG's {type(model).__name__}; logits differ by at most {largest:.2e}")
    if not largest <= TOLERANCE:  # also fails for NaN
        sys.exit(f"pyg-load.py: the difference is more than {TOLERANCE:.0e}")


if __name__ == "__main__":
    main()
