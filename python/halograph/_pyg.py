"""Models and data for PyG."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._errors import InputError

if TYPE_CHECKING:
    from ._dataset import Dataset

MODELS = {"gcn": "GCN", "sage": "GraphSAGE", "gat": "GAT", "gin": "GIN"}
NORMS: dict[str, dict[str, Any]] = {
    "none": {},
    "layer": {"norm": "LayerNorm", "norm_kwargs": {"mode": "node"}},
    "batch": {"norm": "BatchNorm"},
}


def _import() -> tuple[Any, Any]:
    """Returns torch and torch_geometric."""
    for name in ("torch", "torch_geometric"):
        try:
            __import__(name)
        except ImportError as error:
            raise ImportError(f"{name} is needed for models and data of PyG: pip install torch torch_geometric") from error
    import torch
    import torch_geometric

    return torch, torch_geometric


def model(header: dict[str, Any], weights: dict[str, npt.NDArray[Any]], dataset: Dataset | None) -> Any:
    """Returns PyG's model of a run, with its weights; ``dataset`` are its data, if they are there."""
    spec = header["config"]["model"]
    _check(spec)
    if dataset is not None:
        _check_edge_weights(header["config"], dataset)
    torch, _ = _import()
    from torch_geometric.nn import models

    options = {"gat": {"heads": spec["heads"]}, "gin": {"train_eps": spec["train_eps"]}}.get(spec["kind"], {})
    sizes = header["data"]["features"], spec["hidden"], spec["layers"], header["data"]["classes"]
    made = getattr(models, MODELS[spec["kind"]])(
        *sizes, dropout=spec["dropout"], act=spec["activation"], **NORMS[spec["norm"]], **options
    )
    state = {name: torch.from_numpy(array) for name, array in weights.items()}
    made = made.to(next(tensor.dtype for tensor in state.values() if tensor.is_floating_point()))
    made.load_state_dict(state)
    return made.eval()


def _check(spec: dict[str, Any]) -> None:
    """Refuses models that PyG does not have."""
    if spec["kind"] not in MODELS:
        problem = f"{spec['kind']}: torch_geometric.nn.models has no such model, only {', '.join(MODELS)}"
        raise InputError.at("model.kind", problem)
    if spec["linear_layers"] > 0:
        raise InputError.at("model.linear_layers", f"{spec['linear_layers']}: models of PyG have no dense layers at the end")
    if spec["kind"] == "gat" and spec["output_heads"] not in (0, spec["heads"]):
        problem = f"{spec['output_heads']}: GAT of PyG has as many heads in its last layer as in the others"
        raise InputError.at("model.output_heads", problem)


def _check_edge_weights(config: dict[str, Any], dataset: Dataset) -> None:
    """Refuses edge weights that a model uses and its counterpart in PyG ignores."""
    kind = config["model"]["kind"]
    if config["data"]["edge_weights"] and kind in ("sage", "gin") and dataset.edge_weight is not None:
        problem = f"{MODELS[kind]} of PyG takes no edge weights, which {dataset.name} has"
        raise InputError.at("data.edge_weights", problem, "train with edge_weights=False, or another model")


def _columns(own: dict[str, Any], dataset: Dataset) -> list[int] | None:
    """Returns the column of the dataset for each input of the model; ``None``: in the order of the dataset. Refuses what
    ``predict`` refuses."""
    names, others = own.get("feature_names", []), dataset.feature_names
    if not names or not others:
        if own["features"] == dataset.num_features:
            return None
        problem = f"{dataset.num_features} features; the run was trained on {own['features']}"
        raise InputError.at("dataset", problem, "use data with the features that the run was trained on, in the same order")
    if names == others:
        return None
    place, known = {name: k for k, name in enumerate(others)}, set(names)
    counts = Counter(names) | Counter(others)
    wrong = {
        "several columns are called": [name for name, count in counts.items() if count > 1],
        "missing": [name for name in names if name not in place],
        "not in the run": [name for name in others if name not in known],
    }
    problem = next((f"{what}: {', '.join(which[:8])}" for what, which in wrong.items() if which), "")
    if problem:
        help = "give the columns that the run was trained on, in any order"
        raise InputError.at("dataset", f"feature columns differ from those of the run: {problem}", help)
    return [place[name] for name in names]


def _dense(dataset: Dataset) -> npt.NDArray[np.float64]:
    """Returns a copy of the features with all their zeros."""
    sparse = dataset._native.sparse()
    if sparse is None:
        return np.array(dataset.x, np.float64)
    starts, columns, values = sparse
    x = np.zeros((dataset.num_nodes, dataset.num_features))
    x[np.repeat(np.arange(len(x)), np.diff(starts.view(np.int64))), columns] = values
    return x


def data(header: dict[str, Any], scaling: tuple[list[float], list[float]] | None, dataset: Dataset) -> Any:
    """Returns the data as the model of a run reads them."""
    torch, pyg = _import()
    config = header["config"]
    _check_edge_weights(config, dataset)
    columns = _columns(header["data"], dataset)
    x = _dense(dataset)
    if columns is not None:
        x = x[:, columns]
    if config["data"]["normalize"] == "rows":
        sums = np.abs(x).sum(axis=1, keepdims=True)
        x = x / np.where(sums > 0, sums, 1)
    elif scaling is not None:
        mean, scale = scaling
        x = (x - mean) * scale
    dtype = {"f32": np.float32, "f64": np.float64}[config["train"]["precision"]]
    made = pyg.data.Data(x=torch.from_numpy(x.astype(dtype)), edge_index=torch.from_numpy(dataset.edge_index))
    if config["data"]["edge_weights"] and dataset.edge_weight is not None:
        made.edge_weight = torch.from_numpy(dataset.edge_weight.astype(dtype))
    if config["model"]["self_in_mean"]:
        from torch_geometric.utils import add_remaining_self_loops

        made.edge_index = add_remaining_self_loops(made.edge_index, num_nodes=dataset.num_nodes)[0]
    made.y = torch.from_numpy(dataset.y.copy())
    split = dataset._native.split(config["data"]["split_index"] if dataset.num_splits > 1 else 0)
    for subset, name in enumerate(("train_mask", "val_mask", "test_mask"), 1):
        made[name] = torch.from_numpy(split == subset)
    return made
