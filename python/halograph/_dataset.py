"""Datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

Path = str | os.PathLike[str]
Task = Literal["single-label", "multi-label"]
Metric = Literal["accuracy", "balanced-accuracy", "macro-f1", "micro-f1", "auc"]
Preset = Literal["demo", "small", "reddit-like", "arxiv-like", "products-like", "reddit", "products"]


class Dataset:
    r"""A graph with node features, labels and a split: arrays in memory, or a memory-mapped directory.

    Datasets are immutable; several runs, also in several threads, may share one. The constructors are
    :meth:`from_arrays`, :meth:`from_scipy`, :meth:`from_pyg`, :meth:`from_dgl`, :meth:`from_networkx`,
    :meth:`from_pandas`, :meth:`open` and :meth:`make`. Constructors check every element and raise :class:`InputError`.

    The same graph gives the same :attr:`fingerprint`, however the dataset was made: edges are stored once, sorted and,
    unless ``directed``, in both directions; self-loops are dropped unless ``keep_self_loops``.

    A dataset in a directory can be pickled (as its path), one in memory cannot: :meth:`save` it first.

    Example:
        >>> import numpy as np
        >>> edges = np.array([[0, 1], [1, 2]])          # 0-1-2, a path
        >>> x = np.eye(3, dtype=np.float32)
        >>> halograph.Dataset.from_arrays(edges, x, [0, 1, -1], train_mask=[True, True, False])
        Dataset(arrays, nodes=3, edges=4, features=3, classes=2)
    """

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
        ids: Sequence[str] | None = None,
        copy: bool = False,
    ) -> Self:
        r"""Makes a dataset of arrays, of any integer or float type and layout.

        Args:
            edge_index: Source and destination of each edge, as in PyG. May repeat edges.
            x: Features: an array, or a ``scipy.sparse`` matrix or array, which is stored sparse if that takes less
                memory.
            y: Classes, counted from 0; -1 or NaN: no label. Or flags 0/1, one column per class (multi-label). Without
                labels, a dataset serves :meth:`Run.predict` only.
            train_mask: Flags of training nodes, or their numbers. If no mask is given, no node is in a subset.
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
            ids: The user's own id of each node.
            copy: Whether to copy ``x`` even if it could be shared.

        Shapes:
            - ``edge_index``: :math:`(2, |E|)`
            - ``x``: :math:`(|V|, F)`
            - ``y``: :math:`(|V|)`, :math:`(|V|, 1)` or :math:`(|V|, C)`
            - masks: :math:`(|V|)`, or :math:`(|V|, S)` of :math:`S` splits (see ``split_index`` of :func:`train`)
            - ``edge_weight``: :math:`(|E|)`

        Memory:
            A C-contiguous float32 ``x`` is shared, not copied. It must not change while the dataset exists, so the array
            object is made read-only (``x.flags.writeable = False``): writing to it raises. Other arrays and tensors on the
            same memory are not protected; pass ``copy=True`` if they may be written. Any other ``x`` is converted once to
            float32. Edges, labels and masks are always converted: in memory of the dataset, 4 bytes per stored edge (8 with
            a weight) and 17 bytes per node.

        Raises:
            InputError: A shape, type, range or value is wrong; names array, position and value.

        Example:
            >>> data = Dataset.from_arrays(edge_index, x, y, train_mask=train, val_mask=val, test_mask=test)
        """
        raise NotImplementedError

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
        raise NotImplementedError

    @classmethod
    def from_pyg(cls, data: Any, **options: Any) -> Self:
        """Makes a dataset of a ``torch_geometric.data.Data``.

        Reads ``x``, ``edge_index`` and, where present, ``y``, ``train_mask``, ``val_mask``, ``test_mask`` and
        ``edge_weight``. A float32 ``x`` on the CPU is shared with the tensor; see :meth:`from_arrays`.

        Args:
            data: The data; not a list of graphs. ``edge_attr`` is not used and warned about.
            **options: Further arguments of :meth:`from_arrays`, which take precedence, such as ``directed=True`` to keep
                the directions of ``edge_index``.

        Raises:
            InputError: As :meth:`from_arrays`; the data have no ``x`` or no ``edge_index``.

        Example:
            >>> from torch_geometric.datasets import Planetoid
            >>> data = halograph.Dataset.from_pyg(Planetoid("/tmp/cora", "Cora")[0], name="cora")
        """
        raise NotImplementedError

    @classmethod
    def from_dgl(cls, graph: Any, *, edge_weight: str | None = None, **options: Any) -> Self:
        """Makes a dataset of a homogeneous ``dgl.DGLGraph``.

        Reads ``ndata`` ``feat``, ``label``, ``train_mask``, ``val_mask`` and ``test_mask``; all but ``feat`` may be missing.

        Args:
            graph: The graph.
            edge_weight: Name of the edge weights in ``edata``; default: none.
            **options: Further arguments of :meth:`from_arrays`, which take precedence.

        Raises:
            InputError: As :meth:`from_arrays`; the graph has several types, or no ``feat``.
        """
        raise NotImplementedError

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

        A ``DiGraph`` is directed unless ``directed=False`` is given. Nodes that are not 0, 1, 2… give the :attr:`ids`.

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
            InputError: As :meth:`from_arrays`; a node has no ``x``.
        """
        raise NotImplementedError

    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any,
        *,
        source: str = "src",
        target: str = "dst",
        weight: str = "weight",
        id: str = "id",
        label: str = "label",
        split: str = "split",
        features: Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """Makes a dataset of two ``pandas.DataFrame``, with the columns of ``halograph data import csv``.

        Args:
            edges: One row per edge: ``source`` and ``target``, ids of nodes; ``weight`` if edges have weights.
            nodes: One row per node.
            source: Column of the source.
            target: Column of the destination.
            weight: Column of the weight; may be missing.
            id: Column of ``nodes`` with the id; if it is missing, the index of ``nodes`` is the id.
            label: Column of the class, a number or a name; missing values: no label. Names are sorted to
                ``class_names``. The column may be missing.
            split: Column with train, val, test or nothing; may be missing.
            features: Feature columns; default: all other columns.
            **options: Further arguments of :meth:`from_arrays`.

        Raises:
            InputError: As :meth:`from_arrays`; a column is missing or not numeric, an id repeats or is unknown.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a dataset directory, as ``halograph data`` writes them. Arrays are mapped, not read.

        Raises:
            InputError: The directory does not exist or is not a dataset.
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes a dataset directory, which the command line trains on and :meth:`open` opens. All or nothing.

        Args:
            path: The directory.
            overwrite: Whether an existing dataset may be replaced.

        Raises:
            InputError: ``path`` exists, or is inside this dataset.
        """
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the dataset."""
        raise NotImplementedError

    @property
    def path(self) -> str | None:
        """Its directory; ``None``: in memory."""
        raise NotImplementedError

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        raise NotImplementedError

    @property
    def num_edges(self) -> int:
        """Number of stored edges: of an undirected graph, twice the number of pairs."""
        raise NotImplementedError

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        raise NotImplementedError

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""
        raise NotImplementedError

    @property
    def num_splits(self) -> int:
        """Number of splits; at least 1."""
        raise NotImplementedError

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        raise NotImplementedError

    @property
    def task(self) -> Task:
        """``single-label`` or ``multi-label``."""
        raise NotImplementedError

    @property
    def metric(self) -> Metric:
        """Metric of scores."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """Digest of all contents: equal if and only if the data are equal."""
        raise NotImplementedError

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; may be empty."""
        raise NotImplementedError

    @property
    def feature_names(self) -> list[str]:
        """Names of the feature columns; may be empty."""
        raise NotImplementedError

    @property
    def ids(self) -> list[str] | None:
        """The user's own ids of the nodes, if they are not 0, 1, 2…."""
        raise NotImplementedError

    @property
    def x(self) -> Any:
        """Features :math:`(|V|, F)`, float32 or float16: a read-only view, not a copy. Sparse features are a
        ``scipy.sparse.csr_array`` of views, which needs scipy."""
        raise NotImplementedError

    @property
    def y(self) -> npt.NDArray[np.int64] | npt.NDArray[np.uint8]:
        """Labels: a read-only view of int64 :math:`(|V|)`, -1 for none, or of uint8 flags :math:`(|V|, C)`."""
        raise NotImplementedError

    @property
    def train_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of training nodes :math:`(|V|)`, of the first split. A copy."""
        raise NotImplementedError

    @property
    def val_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of validation nodes."""
        raise NotImplementedError

    @property
    def test_mask(self) -> npt.NDArray[np.bool_]:
        """Flags of test nodes."""
        raise NotImplementedError

    @property
    def edge_index(self) -> npt.NDArray[np.int64]:
        """Stored edges :math:`(2, |E|)` as in PyG, sorted by destination, then source. A copy."""
        raise NotImplementedError

    @property
    def edge_weight(self) -> npt.NDArray[np.float32] | None:
        """Weights of :attr:`edge_index`, a read-only view; ``None``: edges have none."""
        raise NotImplementedError

    @property
    def csr(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Read-only views ``indptr`` :math:`(|V| + 1)` and ``indices`` :math:`(|E|)`:
        ``indices[indptr[v]:indptr[v + 1]]`` are the in-neighbours of v."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """``Dataset(cora, nodes=2708, edges=10556, features=1433, classes=7)``"""
        raise NotImplementedError
