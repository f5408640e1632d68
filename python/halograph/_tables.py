"""Graphs of networkx and tables of pandas as arguments of ``Dataset.from_arrays``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ._arrays import as_array
from ._errors import InputError

SUBSETS = {"train": 1, "val": 2, "valid": 2, "validation": 2, "test": 3, "none": 0, "": 0, "0": 0, "1": 1, "2": 2, "3": 3}
"""What a split column may hold."""
USUAL = {
    "source": ("src", "source", "from"),
    "target": ("dst", "target", "to"),
    "weight": ("weight", "edge_weight"),
    "id": ("id", "node", "node_id"),
    "label": ("label", "y", "class"),
    "split": ("split",),
}
"""Usual names of columns, those of ``halograph data import csv``."""


def of_networkx(
    graph: Any, x: str, y: str | None, masks: Mapping[str, str | None], weight: str | None, directed: bool | None
) -> dict[str, Any]:
    """Returns the arguments for a networkx graph."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise InputError.at("graph", f"{type(graph).__name__} where a graph of networkx is needed")
    nodes = dict(graph.nodes(data=True))
    number = {node: k for k, node in enumerate(nodes)}
    lacking = next((node for node, values in nodes.items() if x not in values), None)
    if lacking is not None:
        raise InputError.at("graph", f"node {lacking!r} has no attribute {x!r}", "give every node its features")
    for argument, attribute in {"y": y, **masks}.items():
        is_there = any(attribute in values for values in nodes.values())
        if attribute not in (None, argument) and not is_there:  # the default has the name of the argument
            raise InputError.at(argument, f"no node has the attribute {attribute!r}")
    edges = [(number[u], number[v], values) for u, v, values in graph.edges(data=True)]
    if directed and not graph.is_directed():
        edges += [(v, u, values) for u, v, values in edges if u != v]
    has_weights = weight is not None and any(weight in values for _, _, values in edges)
    if weight not in (None, "weight") and not has_weights:
        raise InputError.at("weight", f"no edge has the attribute {weight!r}")
    found = {
        "edge_index": np.array([[u, v] for u, v, _ in edges], np.int64).reshape(-1, 2).T,
        "edge_weight": [values.get(weight, 1) for _, _, values in edges] if has_weights else None,
        "x": _columns(as_array(x, [values[x] for values in nodes.values()])),
        "y": _labels(y, list(nodes.values())),
        "directed": graph.is_directed() if directed is None else directed,
        "ids": _ids(list(nodes)),
    }
    for name, attribute in masks.items():
        if any(attribute in values for values in nodes.values()):
            found[name] = np.array([bool(values.get(attribute, False)) for values in nodes.values()])
    return found


def _columns(x: Any) -> Any:
    """Returns a matrix: one number per node is a column."""
    return x[:, None] if x.ndim == 1 else x


def _labels(attribute: str | None, nodes: Sequence[Mapping[str, Any]]) -> Any:
    """Returns the labels of nodes, -1 for none; ``None`` if no node has one."""
    labels = [] if attribute is None else [values.get(attribute) for values in nodes]
    given = [label for label in labels if label is not None]
    if not given:
        return None
    missing: Any = [0] * len(given[0]) if np.ndim(given[0]) else -1
    return as_array(str(attribute), [missing if label is None else label for label in labels])


def _ids(ids: Sequence[Any]) -> list[str] | None:
    """Returns ids as text; ``None`` if they are 0, 1, 2…."""
    is_sequence = all(isinstance(id, int | np.integer) and id == k for k, id in enumerate(ids))
    return None if is_sequence else [str(id) for id in ids]


def of_pandas(
    edges: Any, nodes: Any, wanted: Mapping[str, str | None], features: Sequence[str] | None, has_rule: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the arguments for two tables, and notes; ``wanted`` names special columns, or has ``None`` for usual names.
    A column with the split is neither read nor a feature if a rule draws the split."""
    for name, table in (("edges", edges), ("nodes", nodes)):
        if not hasattr(table, "columns") or not hasattr(table, "iloc"):
            raise InputError.at(name, f"{type(table).__name__} where a pandas.DataFrame is needed")
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()][0]
            raise InputError.at(name, f"several columns are called {twice!r}", "give every column a name of its own")
    import pandas as pd

    given = () if features is None else tuple(features)
    of_edges = {role: _find(edges, "edges", role, wanted[role], ()) for role in ("source", "target", "weight")}
    of_nodes = {role: _find(nodes, "nodes", role, wanted[role], given) for role in ("id", "label", "split")}
    for role in ("source", "target"):
        if of_edges[role] is None:
            problem = f"no {role} column: none of {', '.join(USUAL[role])} is among {_listing(edges)}"
            raise InputError.at("edges", problem, f"name it with {role}=")
    ids = nodes.index if of_nodes["id"] is None else nodes[of_nodes["id"]]
    index = pd.Index(ids)
    if not index.is_unique:
        raise InputError.at("nodes", f"id {index[index.duplicated()][0]!r} is there twice", "give every node one row")
    ends = [_numbers(edges, of_edges[end], index) for end in ("source", "target")]
    special = [name for name in of_nodes.values() if name is not None]
    if has_rule:
        of_nodes["split"] = None
    names = list(given) if features is not None else [name for name in nodes.columns if name not in special]
    if not set(special).isdisjoint(names):
        both = next(name for name in names if name in special)
        raise InputError.at("features", f"column {both!r} is the id, the label or the split", "leave it out")
    found: dict[str, Any] = {
        "edge_index": np.stack(ends),
        "x": _features(nodes, names),
        "feature_names": [str(name) for name in names],
        "ids": _ids(index.tolist()),
    }
    if of_edges["weight"] is not None:
        found["edge_weight"] = edges[of_edges["weight"]].to_numpy()
    if of_nodes["label"] is not None:
        found.update(_classes(nodes[of_nodes["label"]]))
    if of_nodes["split"] is not None:
        found.update(_masks(nodes[of_nodes["split"]]))
    return found, (*_notes("edges", edges, of_edges, ()), *_notes("nodes", nodes, of_nodes, names))


def _notes(place: str, table: Any, roles: Mapping[str, Any], features: Sequence[Any]) -> list[str]:
    """Returns notes on the columns that have a role and on those that are not used."""
    read = [f"{role} {name!r}" for role, name in roles.items() if name is not None]
    unused = [str(name) for name in table.columns if name not in roles.values() and name not in features]
    return [
        *([f"{place}: columns: {', '.join(read)}"] if read else []),
        *([f"{place}: columns that are not used: {', '.join(unused)}"] if unused else []),
    ]


def _find(table: Any, place: str, role: str, wanted: Any, features: Sequence[Any]) -> Any:
    """Returns the name of the column of a role: the one that was named, else one with a usual name that is no feature, or
    ``None``."""
    if wanted is not None:
        return _column(table, wanted, place).name
    found = {str(name).lower(): name for name in reversed(list(table.columns)) if name not in features}
    return next((found[name] for name in USUAL[role] if name in found), None)


def _listing(table: Any) -> str:
    return ", ".join(map(str, table.columns))


def _column(table: Any, name: str, what: str) -> Any:
    if not isinstance(name, Hashable) or name not in table.columns:
        help = "a rule that draws a split is split_rule=" if "," in str(name) else ""
        raise InputError.at(what, f"no column {name!r}; the columns are {_listing(table)}", help)
    return table[name]


def _numbers(edges: Any, name: str, index: Any) -> Any:
    """Returns the numbers of the nodes in a column of edges."""
    column = _column(edges, name, "edges")
    numbers = index.get_indexer(column)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        problem = f"id {column.iloc[unknown[0]]!r} is not in the node table"
        raise InputError.at(f"edges, row {unknown[0]}, column {name}", problem)
    return numbers.astype(np.int64)


def _features(nodes: Any, names: Sequence[str]) -> Any:
    for name in names:
        kind = _column(nodes, name, "nodes").dtype.kind
        if kind not in "biuf":
            problem = f"{nodes[name].dtype} where numbers are needed"
            raise InputError.at(f"nodes, column {name}", problem, "convert the column, or choose others with features=")
    x: Any = nodes[list(names)].to_numpy(np.float64, na_value=np.nan)
    wrong = np.argwhere(~np.isfinite(x))
    if len(wrong):
        row, column = wrong[0]
        problem = f"{x[row, column]} where a finite number is needed"
        raise InputError.at(f"nodes, row {row}, column {names[column]}", problem, "fill or drop missing values")
    return x


def _classes(column: Any) -> dict[str, Any]:
    """Returns labels and, if classes have names, these, sorted."""
    if column.dtype.kind in "biuf":
        return {"y": column.to_numpy(np.float64, na_value=np.nan)}
    texts = [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
    names = sorted({text for text in texts if text is not None})
    number = {name: k for k, name in enumerate(names)}
    # Numbers in the usual form; 01 and 1 are two names.
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        number = {name: int(name) for name in names}
        names = []
    return {"y": np.array([-1 if text is None else number[text] for text in texts], np.int64), "class_names": names}


def _masks(column: Any) -> dict[str, Any]:
    """Returns the masks that a split column says."""
    texts = ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
    subsets = np.zeros(len(texts), np.int64)
    for row, text in enumerate(texts):
        subset = SUBSETS.get(text.removesuffix(".0").lower())
        if subset is None:
            place = f"nodes, row {row}, column {column.name}"
            raise InputError.at(place, f"{text!r} is no subset of a split", "use train, val, test, or nothing")
        subsets[row] = subset
    return {f"{name}_mask": subsets == k for k, name in enumerate(("train", "val", "test"), 1)}
