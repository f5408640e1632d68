"""Models and data for PyG."""

from __future__ import annotations

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


def model(header: dict[str, Any], weights: dict[str, npt.NDArray[Any]]) -> Any:
    """Returns PyG's model of a run, with its weights."""
    spec = header["config"]["model"]
    _check(spec)
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
    x = _dense(dataset)
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
