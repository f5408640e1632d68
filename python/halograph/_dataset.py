"""Datasets."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from . import _halograph
from ._arrays import (
    as_array,
    as_features,
    as_flag,
    as_ids,
    as_mask,
    as_seed,
    as_split,
    as_text,
    as_texts,
    from_tensor,
)
from ._errors import HalographWarning, InputError

if TYPE_CHECKING:
    from typing_extensions import Self

Path = str | os.PathLike[str]
Task = Literal["single-label", "multi-label"]
Metric = Literal["accuracy", "balanced-accuracy", "macro-f1", "micro-f1", "auc"]
Layout = Literal["auto", "dense", "sparse"]
Preset = Literal["demo", "small", "reddit-like", "arxiv-like", "products-like", "reddit", "products"]


class Dataset:
    r"""A graph with node features, labels and a split: arrays in memory, or a memory-mapped directory.

    Datasets are immutable; several runs, also in several threads, may share one. The constructors are
    :meth:`from_arrays`, :meth:`from_scipy`, :meth:`from_pyg`, :meth:`from_dgl`, :meth:`from_networkx`,
    :meth:`from_pandas`, :meth:`open` and :meth:`make`. Constructors check every element and raise :class:`InputError`.

    The same graph gives the same :attr:`fingerprint`, however the dataset was made: edges are stored once, sorted and,
    unless ``directed``, in both directions; self-loops are dropped unless ``keep_self_loops``; features are stored sparse if
    at most a tenth of them is not 0 and there are at least 64 columns, as ``halograph data import`` does.

    A dataset in a directory can be pickled (as its path), one in memory cannot: :meth:`save` it first.

    Example:
        >>> import numpy as np
        >>> edges = np.array([[0, 1], [1, 2]])          # 0-1-2, a path
        >>> x = np.eye(3, dtype=np.float32)
        >>> halograph.Dataset.from_arrays(edges, x, [0, 1, -1], train_mask=[True, True, False])
        Dataset(arrays, nodes=3, edges=4, features=3, classes=2)
    """

    _native: _halograph.Dataset
    _facts: dict[str, Any]
    _notes: tuple[str, ...]

    def __init__(self) -> None:
        raise TypeError("a Dataset is made by one of its constructors, such as Dataset.from_arrays")

    @classmethod
    def _of(cls, native: _halograph.Dataset) -> Self:
        self = cls.__new__(cls)
        self._native = native
        self._facts = json.loads(native.manifest())
        self._notes = tuple(native.notes)
        return self

    @classmethod
    def from_arrays(
        cls,
        edge_index: npt.ArrayLike,
        x: Any,
        y: npt.ArrayLike | None = None,
        *,
        train_mask: npt.ArrayLike | None = None,
        val_mask: npt.ArrayLike | None = None,
        test_mask: npt.ArrayLike | None = None,
        edge_weight: npt.ArrayLike | None = None,
        name: str = "arrays",
        directed: bool = False,
        keep_self_loops: bool = False,
        task: Task | None = None,
        metric: Metric | None = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        ids: Sequence[object] | None = None,
        split: str | Sequence[float] | None = None,
        seed: int = 0,
        layout: Layout = "auto",
        copy: bool | None = None,
    ) -> Self:
        r"""Makes a dataset of arrays, of any integer or float type and layout.

        Args:
            edge_index: Source and destination of each edge, as in PyG. May repeat edges.
            x: Features: an array, or a ``scipy.sparse`` matrix or array.
            y: Classes, counted from 0; -1 or NaN: no label. Or flags 0/1, one column per class (multi-label). Without
                labels, a dataset serves :meth:`Run.predict` only.
            train_mask: Flags of training nodes, or their numbers. If no mask is given, no node is in a subset, unless
                ``split`` draws one. (Integers that are one 0 or 1 per node are flags.)
            val_mask: The same for validation nodes, which choose the best epoch.
            test_mask: The same for test nodes.
            edge_weight: Weights of edges: finite, at least 0. gat does not use them.
            name: Name of the dataset, in messages and names of runs.
            directed: Whether edges have a direction. If not, each is stored both ways.
            keep_self_loops: Whether edges from a node to itself are kept.
            task: Whether ``y`` has classes or flags; default: by its shape.
            metric: Metric of scores; default: accuracy, or micro-F1 for multi-label data.
            class_names: Name of each class.
            feature_names: Name of each column of ``x``. Columns are then matched by name in :meth:`Run.predict`.
            ids: The user's own id of each node, stored as text. No two may be equal.
            split: Rule of a random split, as ``data import --split`` has it, such as ``"0.6,0.2,0.2"``, ``"per-class:20,30"``
                or ``"auto"``; three numbers are shares; default: the masks.
            seed: Seed of that split.
            layout: How features are stored: every element, rows without their zeros, or the smaller of both (see
                :class:`Dataset`).
            copy: Whether to copy ``x`` if it is a C-contiguous float32 array. By default views and tensors are copied, and
                arrays that own their memory are shared. ``True`` always copies. ``False`` also shares views, tensors and
                ``numpy.memmap``: the memory must not be written or resized while the dataset exists (see Memory).

        Shapes:
            - ``edge_index``: :math:`(2, |E|)`, or :math:`(|E|, 2)`
            - ``x``: :math:`(|V|, F)`
            - ``y``: :math:`(|V|)`, :math:`(|V|, 1)` or :math:`(|V|, C)`
            - masks: :math:`(|V|)`, or :math:`(|V|, S)` of :math:`S` splits (see ``split_index`` of :func:`train`)
            - ``edge_weight``: :math:`(|E|)`

        Memory:
            A C-contiguous float32 array ``x`` that owns its memory (``x.flags.owndata``) and is stored dense is shared, not
            copied. The array is made read-only (``x.flags.writeable = False``), also for its user, and stays so: writing
            to it raises. With ``copy=False``, the memory of a view or tensor is shared, too, and not protected. Shared
            memory must not be written, through any array or tensor, nor resized while the dataset exists: results would
            be wrong, or freed memory would be read. Any other ``x`` is converted once to float32. Edges, labels and masks
            are always converted: in memory of the dataset, 4 bytes per stored edge (8 with a weight) and 17 bytes per
            node.

        Raises:
            InputError: A shape, type, range or value is wrong; names array, position and value.

        Example:
            >>> data = Dataset.from_arrays(edge_index, x, y, train_mask=train, val_mask=val, test_mask=test)
        """
        features, nodes = as_features("x", x, copy)
        arrays = {
            "edge_index": as_array("edge_index", edge_index),
            "edge_weight": None if edge_weight is None else as_array("edge_weight", edge_weight),
            "x": features,
            "y": None if y is None else as_array("y", y),
            "train_mask": as_mask("train_mask", train_mask, nodes),
            "val_mask": as_mask("val_mask", val_mask, nodes),
            "test_mask": as_mask("test_mask", test_mask, nodes),
        }
        options = {
            "name": as_text("name", name),
            "directed": as_flag("directed", directed),
            "keep_self_loops": as_flag("keep_self_loops", keep_self_loops),
            "task": None if task is None else as_text("task", task),
            "metric": None if metric is None else as_text("metric", metric),
            "class_names": as_texts("class_names", class_names),
            "feature_names": as_texts("feature_names", feature_names),
            "ids": as_ids("ids", ids),
            "split": as_split("split", split),
            "seed": as_seed("seed", seed),
            "layout": as_text("layout", layout),
        }
        if isinstance(features, tuple) or not features.flags.owndata or not features.flags.writeable:
            return cls._of(_halograph.Dataset.from_arrays(arrays, options))
        # Read-only before its elements are checked, so that no other thread changes them afterwards.
        features.flags.writeable = False
        is_shared = False
        try:
            self = cls._of(_halograph.Dataset.from_arrays(arrays, options))
            dense = self._native.dense()
            is_shared = dense is not None and np.may_share_memory(dense, features)
            return self
        finally:
            features.flags.writeable = not is_shared

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,
        x: Any,
        y: npt.ArrayLike | None = None,
        *,
        weighted: bool | None = None,
        **options: Any,
    ) -> Self:
        """Makes a dataset of a ``scipy.sparse`` adjacency matrix: an entry in row i, column j is an edge from i to j.

        Args:
            adjacency: The matrix, of any sparse format. Explicit zeros are edges.
            x: As for :meth:`from_arrays`.
            y: As for :meth:`from_arrays`.
            weighted: Whether entries are edge weights; default: if any of them is not 1.
            **options: Further arguments of :meth:`from_arrays`.

        Shapes:
            - ``adjacency``: :math:`(|V|, |V|)`

        Raises:
            InputError: As :meth:`from_arrays`; the matrix is not square, or not of ``scipy.sparse``.
        """
        if not hasattr(adjacency, "tocoo"):
            raise InputError.at("adjacency", f"{type(adjacency).__name__} where a matrix of scipy.sparse is needed")
        if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
            raise InputError.at("adjacency", f"shape {tuple(adjacency.shape)} where a square matrix is needed")
        rows = next(iter(getattr(x, "shape", ())), adjacency.shape[0])
        if rows != adjacency.shape[0]:
            raise InputError.at("adjacency", f"{adjacency.shape[0]} rows for {rows} rows of x")
        entries = adjacency.tocoo()
        if weighted is None:
            weighted = bool((entries.data != 1).any())
        if weighted:
            options.setdefault("edge_weight", entries.data)
        return cls.from_arrays(np.stack([entries.row, entries.col]), x, y, **options)

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Self:
        """Makes a dataset of a ``torch_geometric.data.Data``.

        Reads ``x``, ``edge_index`` and, where present, ``y``, ``train_mask``, ``val_mask``, ``test_mask`` and
        ``edge_weight``. ``x`` is copied; ``copy=False`` shares a float32 one on the CPU, see :meth:`from_arrays`.

        Args:
            data: The data; not a list of graphs. ``edge_attr`` is not used and warned about.
            **options: Further arguments of :meth:`from_arrays`, which take precedence, also over ``x`` and ``edge_index``.
                ``directed=True`` keeps the directions of ``edge_index``; otherwise :attr:`notes` tell if edges were added
                as the reverse of others.

        Raises:
            InputError: As :meth:`from_arrays`; the data have no ``x`` or no ``edge_index``, or a sparse tensor.

        Example:
            >>> from torch_geometric.datasets import Planetoid
            >>> data = halograph.Dataset.from_pyg(Planetoid("/tmp/cora", "Cora")[0], name="cora")
        """
        names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "edge_weight")
        found = {name: options.pop(name, None) if name in options else getattr(data, name, None) for name in names}
        for needed in ("x", "edge_index"):
            if found[needed] is None:
                problem = f"{type(data).__name__} has no {needed}"
                help = "give a homogeneous Data with x and edge_index; of a dataset of PyG, give one graph: dataset[0]"
                raise InputError.at("data", problem, help)
        if getattr(data, "edge_attr", None) is not None:
            warnings.warn("edge_attr is not used: there are no edge features", HalographWarning, stacklevel=2)
        return cls._of_tensors({name: tensor for name, tensor in found.items() if tensor is not None}, options)

    @classmethod
    def from_dgl(cls, graph: Any, *, edge_weight: str | None = None, **options: Any) -> Self:
        """Makes a dataset of a homogeneous ``dgl.DGLGraph``.

        Reads ``ndata`` ``feat``, ``label``, ``train_mask``, ``val_mask`` and ``test_mask``; all but ``feat`` may be missing.

        Args:
            graph: The graph.
            edge_weight: Name of the edge weights in ``edata``; default: none.
            **options: Further arguments of :meth:`from_arrays`, which take precedence; as for :meth:`from_pyg`.

        Raises:
            InputError: As :meth:`from_arrays`; the graph has several types, or no ``feat``.
        """
        if not hasattr(graph, "ndata") or not hasattr(graph, "edges"):
            raise InputError.at("graph", f"{type(graph).__name__} where a DGLGraph is needed")
        if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
            raise InputError.at("graph", "several types of nodes or edges", "convert it with dgl.to_homogeneous")
        if "feat" not in graph.ndata:
            raise InputError.at("graph", "no features: ndata has no feat", 'set graph.ndata["feat"]')
        names = {"label": "y", "train_mask": "train_mask", "val_mask": "val_mask", "test_mask": "test_mask"}
        found = {to: graph.ndata[name] for name, to in names.items() if name in graph.ndata}
        if edge_weight is not None:
            if edge_weight not in graph.edata:
                raise InputError.at("edge_weight", f"edata has no {edge_weight!r}")
            found["edge_weight"] = graph.edata[edge_weight]
        ends = zip(("source", "target"), graph.edges(form="uv", order="eid"), strict=True)
        found["edge_index"] = np.stack([from_tensor(name, tensor) for name, tensor in ends])
        found["x"] = graph.ndata["feat"]
        return cls._of_tensors(found, options)

    @classmethod
    def _of_tensors(cls, found: dict[str, Any], options: dict[str, Any]) -> Self:
        """Makes a dataset of the tensors that were found and of the options, which take precedence."""
        arguments = {name: from_tensor(name, value) for name, value in {**found, **options}.items()}
        self = cls.from_arrays(**arguments)
        edges = np.size(arguments["edge_index"]) // 2
        if not self.directed and self.num_edges > edges:
            note = f"edge_index: {edges} edges were given and {self.num_edges} are stored, in both directions"
            self._notes += (f"{note}; directed=True keeps the given directions",)
        return self

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        x: str = "x",
        y: str | None = "y",
        train_mask: str | None = "train_mask",
        val_mask: str | None = "val_mask",
        test_mask: str | None = "test_mask",
        weight: str | None = "weight",
        **options: Any,
    ) -> Self:
        """Makes a dataset of a ``networkx`` graph, nodes in its order.

        A ``DiGraph`` is directed unless ``directed=False`` is given. Nodes that are not 0, 1, 2… give the :attr:`ids`. An
        attribute of another name than the default must exist.

        Args:
            graph: The graph.
            x: Node attribute with the features: numbers, one or a sequence, as many for each node.
            y: Node attribute with the class, or a sequence of flags; a node without it has no label. ``None``: no labels.
            train_mask: Node attribute with the flag of training nodes; a node without it is none. Same for the next two.
            val_mask: Of validation nodes.
            test_mask: Of test nodes.
            weight: Edge attribute with the weight, 1 where it is missing; if no edge has it, there are no weights.
            **options: Further arguments of :meth:`from_arrays`.

        Raises:
            InputError: As :meth:`from_arrays`; a node has no ``x``, or no node or edge has an attribute that was named.
        """
        from ._tables import of_networkx

        masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
        arguments = of_networkx(graph, x, y, masks, weight, options.get("directed"))
        return cls.from_arrays(**{**arguments, **options})

    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any,
        *,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        id: str | None = None,
        label: str | None = None,
        split: str | None = None,
        features: Sequence[str] | None = None,
        split_rule: str | Sequence[float] | None = None,
        **options: Any,
    ) -> Self:
        """Makes a dataset of two ``pandas.DataFrame``, with the columns of ``halograph data import csv``.

        A column that is named by an argument must exist. By default, columns are found by their usual names, in upper or
        lower case, among those that ``features`` does not name; :attr:`notes` list what was found and what is not used.

        Args:
            edges: One row per edge: source and target, ids of nodes; weight if edges have weights.
            nodes: One row per node.
            source: Column of the source; default: src, source or from.
            target: Column of the destination; default: dst, target or to.
            weight: Column of the weight; default: weight or edge_weight, if there is one.
            id: Column of ``nodes`` with the id; default: id, node or node_id, or the index of ``nodes``.
            label: Column of the class, a number or a name; missing values: no label. Names are sorted to
                ``class_names``. Default: label, y or class, if there is one.
            split: Column with train, val, test or nothing; default: split, if there is one.
            features: Feature columns; default: all other columns.
            split_rule: Rule of a random split, as ``split`` of :meth:`from_arrays`, instead of a column.
            **options: Further arguments of :meth:`from_arrays`.

        Raises:
            InputError: As :meth:`from_arrays`; a column is missing or not numeric, an id repeats or is unknown.
        """
        from ._tables import of_pandas

        columns = {"source": source, "target": target, "weight": weight, "id": id, "label": label, "split": split}
        if split is not None and split_rule is not None:
            raise InputError.at("split_rule", "the split is given by a column, too", "give one of split and split_rule")
        arguments, notes = of_pandas(edges, nodes, columns, features, split_rule is not None)
        self = cls.from_arrays(**{**arguments, "split": split_rule, **options})
        self._notes += notes
        return self

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a dataset directory, as ``halograph data`` writes them. Arrays are mapped, not read.

        Raises:
            InputError: The directory does not exist or is not a dataset.
        """
        return cls._of(_halograph.Dataset.open(path))

    @classmethod
    def make(cls, preset: Preset, *, seed: int = 0, path: Path | None = None, overwrite: bool = False) -> Self:
        """Generates a graph, as ``halograph data make``. The same seed gives the same bytes.

        Args:
            preset: Which graph.
            seed: Seed of the generator.
            path: Directory to write; default: the dataset is in memory.
            overwrite: Whether an existing dataset in ``path`` may be replaced.

        Raises:
            InputError: The preset is unknown, or ``path`` exists.
        """
        return cls._of(_halograph.Dataset.make(preset, seed, path, overwrite))

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes a dataset directory, which the command line trains on and :meth:`open` opens. All or nothing.

        Args:
            path: The directory.
            overwrite: Whether an existing dataset may be replaced.

        Raises:
            InputError: ``path`` exists, or is inside this dataset.
        """
        self._native.save(path, overwrite)

    @property
    def name(self) -> str:
        """Name of the dataset."""
        value: str = self._facts["name"]
        return value

    @property
    def path(self) -> str | None:
        """Its directory; ``None``: in memory."""
        return None if self._native.path is None else os.fspath(self._native.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the arrays, such as labels that are missing or weights that were combined."""
        return self._notes

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        value: int = self._facts["nodes"]
        return value

    @property
    def num_edges(self) -> int:
        """Number of stored edges: of an undirected graph, twice the number of pairs."""
        value: int = self._facts["edges"]
        return value

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        value: int = self._facts["features"]
        return value

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        value: int = self._facts["classes"]
        return value

    @property
    def num_splits(self) -> int:
        """Number of splits; at least 1."""
        return int(self._facts.get("splits", 1))

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        value: bool = self._facts["directed"]
        return value

    @property
    def task(self) -> Task:
        """``single-label`` or ``multi-label``."""
        value: Task = self._facts["task"]
        return value

    @property
    def metric(self) -> Metric:
        """Metric of scores."""
        value: Metric = self._facts["metric"]
        return value

    @property
    def fingerprint(self) -> str:
        """Digest of all contents: equal if and only if the data are equal, with features of the same type."""
        value: str = self._facts["fingerprint"]
        return value

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; may be empty."""
        return list(self._facts.get("class_names", ()))

    @property
    def feature_names(self) -> list[str]:
        """Names of the feature columns; may be empty."""
        return list(self._facts.get("feature_names", ()))

    @property
    def ids(self) -> list[str] | None:
        """The user's own ids of the nodes, if they are not 0, 1, 2…."""
        return self._native.ids()

    @property
    def x(self) -> Any:
        """Features :math:`(|V|, F)`, float32 or float16: a read-only view, not a copy. Sparse features are a
        ``scipy.sparse.csr_array`` of views (``indptr`` is a copy), which needs scipy."""
        dense = self._native.dense()
        if dense is not None:
            return dense
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise ImportError("scipy is needed for sparse features: pip install scipy") from error
        starts, columns, values = self._native.sparse() or ()
        matrix = csr_array((self.num_nodes, self.num_features), dtype=values.dtype)
        # Both of one type, which scipy requires: a view of the columns, unless there are too many elements.
        index = np.int32 if len(values) < 2**31 else np.int64
        # Assigned, because the constructor would copy indices to signed types.
        matrix.indptr, matrix.indices = starts.astype(index), columns.view(np.int32).astype(index, copy=False)
        matrix.data = values
        return matrix

    @property
    def y(self) -> npt.NDArray[np.int64] | npt.NDArray[np.uint8]:
        """Labels: a read-only view of int64 :math:`(|V|)`, -1 for none, or of uint8 flags :math:`(|V|, C)`."""
        return self._native.labels()

    @property
    def train_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of training nodes :math:`(|V|)`, of the first split. A copy."""
        return self._native.split(0) == 1

    @property
    def val_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of validation nodes."""
        return self._native.split(0) == 2

    @property
    def test_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of test nodes."""
        return self._native.split(0) == 3

    @property
    def edge_index(self) -> npt.NDArray[np.int64]:
        """Stored edges :math:`(2, |E|)` as in PyG, sorted by destination, then source. A copy."""
        indptr, sources = self._native.graph()
        targets = np.repeat(np.arange(self.num_nodes), np.diff(indptr.view(np.int64)))
        return np.stack([sources.astype(np.int64), targets])

    @property
    def edge_weight(self) -> npt.NDArray[np.float32] | None:
        """Weights of :attr:`edge_index`, a read-only view; ``None``: edges have none."""
        return self._native.edge_weights()

    @property
    def csr(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Read-only views ``indptr`` :math:`(|V| + 1)` and ``indices`` :math:`(|E|)`:
        ``indices[indptr[v]:indptr[v + 1]]`` are the in-neighbours of v."""
        return self._native.graph()

    def __repr__(self) -> str:
        """``Dataset(cora, nodes=2708, edges=10556, features=1433, classes=7)``"""
        text = ", ".join(f"{key}={self._facts[key]}" for key in ("nodes", "edges", "features", "classes"))
        return f"Dataset({self.name}, {text})"

    def __copy__(self) -> Self:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError(f"dataset {self.name!r} is in memory and cannot be pickled: save() it, and open() the directory")
        return Dataset.open, (self.path,)
