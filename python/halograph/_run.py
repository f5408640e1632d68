"""Finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from ._dataset import Dataset, Path

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores by the metric of a run, as fractions; ``None`` where no node has a label."""

    train: float | None
    """On training nodes."""
    val: float | None
    """On validation nodes."""
    test: float | None
    """On test nodes."""
    val_loss: float | None = None
    """Loss on validation nodes; ``None`` if it was not recorded."""


class History(Mapping[str, FloatArray]):
    """What was recorded of each epoch: a read-only dict of float64 arrays of equal length.

    Keys: ``epoch``, ``loss``, ``lr``, ``seconds``, and ``train``, ``val``, ``test``, ``val_loss``,
    ``evaluation_seconds``, which are NaN in epochs without evaluation.
    """

    def __getitem__(self, key: str) -> FloatArray:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of keys."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``, one row per epoch. Needs pandas (``ImportError``)."""
        raise NotImplementedError


class Report:
    """A report on a run: one self-contained HTML page. Shown in a notebook by itself."""

    @property
    def html(self) -> str:
        """The page."""
        raise NotImplementedError

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes the page.

        Raises:
            InputError: The file exists and may not be replaced; only a report is ever replaced.
        """
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError


class Run:
    """A finished or stopped run: its scores and its model with the weights of the best validation epoch.

    Runs come from :func:`train` and :func:`load`. They can be pickled: a pickle has the model and the results, not the data
    in memory (data in a directory are found again by their path).
    """

    @property
    def is_leader(self) -> bool:
        """Whether this process has the results: false on ranks other than 0 of a launcher, where every other attribute
        but :attr:`path` raises :class:`HalographError`."""
        raise NotImplementedError

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C, a callback that returned ``False``, or another signal ended the run before its last epoch."""
        raise NotImplementedError

    @property
    def path(self) -> str | None:
        """The run directory; ``None``: in memory."""
        raise NotImplementedError

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """All settings, resolved: tables ``data``, ``model``, ``train`` and ``layers``."""
        raise NotImplementedError

    @property
    def history(self) -> History:
        """What was recorded of each epoch."""
        raise NotImplementedError

    @property
    def scores(self) -> Scores:
        """Scores of the best validation epoch, whose weights these are."""
        raise NotImplementedError

    @property
    def summary(self) -> dict[str, Any]:
        """The run in numbers, as ``halograph train --json`` prints it."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on data, settings and scores."""
        raise NotImplementedError

    def predict(
        self,
        dataset: Dataset | Path | None = None,
        *,
        output: Literal["logits", "probabilities", "classes"] = "logits",
    ) -> npt.NDArray[Any]:
        r"""Applies the model to all nodes, exactly: all edges, no dropout.

        Args:
            dataset: The data, also new ones with the same features; default: those of the training.
            output: ``logits``: before softmax or sigmoid. ``probabilities``: softmax of the logits, or sigmoid of
                multi-label data. ``classes``: the most probable class or, of multi-label data, a flag for each class with
                probability above 0.5.

        Shapes:
            - logits, probabilities: :math:`(|V|, C)`, float32
            - classes: :math:`(|V|)`, int64; multi-label :math:`(|V|, C)`, uint8

        Raises:
            InputError: The features do not fit, or there are no data (a pickled run of data in memory).
        """
        raise NotImplementedError

    def embeddings(self, layer: int | None = None, dataset: Dataset | Path | None = None) -> npt.NDArray[np.float32]:
        r"""Returns the output of a hidden layer for all nodes, after norm and activation.

        Args:
            layer: The layer, counted from 1; default: the last hidden one.
            dataset: The data; default: those of the training.

        Shapes:
            - output: :math:`(|V|, \text{hidden})`, float32

        Raises:
            InputError: The model has no such layer, or the features do not fit.
        """
        raise NotImplementedError

    def evaluate(self, dataset: Dataset | Path | None = None) -> Scores:
        """Scores the model exactly, by the metric of the run.

        Args:
            dataset: The data, with labels and masks; default: those of the training.

        Raises:
            InputError: Features or classes do not fit.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Returns a copy of the weights, under PyG's names (``convs.0.lin_l.weight``). float32, or float64 if trained with
        ``precision="f64"``."""
        raise NotImplementedError

    def to_pyg(self) -> Any:
        """Returns a ``torch_geometric.nn.models`` model (GraphSAGE, GCN, GAT or GIN) with the weights, in evaluation mode.

        It gives the logits of :meth:`predict` for the tensors of :meth:`pyg_data`, and for the original ones if the run
        scales no features and counts no node in its own mean.

        Raises:
            ImportError: torch or torch_geometric is not installed.
            InputError: PyG has no such model: gcnii, resgcn, dense layers at the end, or another number of output heads.

        Example:
            >>> model, data = run.to_pyg(), run.pyg_data()
            >>> logits = model(data.x, data.edge_index)
        """
        raise NotImplementedError

    def pyg_data(self, dataset: Dataset | None = None) -> Any:
        """Returns a ``torch_geometric.data.Data`` as the model reads the data: ``x`` scaled, ``edge_index`` with the
        self-loops that ``self_in_mean`` stands for, and ``y``, masks and ``edge_weight`` if there are any.

        Raises:
            ImportError: torch or torch_geometric is not installed.
        """
        raise NotImplementedError

    def report(self) -> Report:
        """Returns a report, as ``halograph report`` writes it."""
        raise NotImplementedError

    def plot(self, ax: Any = None) -> Any:
        """Draws training loss and scores over epochs. Needs matplotlib (``ImportError``).

        Args:
            ax: The axes to draw into; default: new ones.

        Returns:
            The axes.
        """
        raise NotImplementedError

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes a run directory, which :func:`load` and the commands ``eval``, ``predict`` and ``report`` read. It has no
        checkpoint and cannot be resumed.

        Raises:
            InputError: ``path`` exists.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        """``Run(sage, arrays, epochs=100, train=0.9640, val=0.9575, test=0.9558)``"""
        raise NotImplementedError


def load(path: Path) -> Run:
    """Loads a run directory, of :meth:`Run.save` or of ``halograph train``.

    Raises:
        InputError: There is no run, or it has no weights yet.
    """
    raise NotImplementedError
