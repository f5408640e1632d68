"""Finished runs."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _halograph, _pyg
from ._dataset import Dataset, Path
from ._errors import HalographError, InputError

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

    _arrays: dict[str, FloatArray]

    def __init__(self, records: list[dict[str, Any]]) -> None:
        keys = ("epoch", "loss", "lr", "seconds", "train", "val", "test", "val_loss", "evaluation_seconds")
        self._arrays = {}
        for key in keys:
            # JSON has null for a score that no node has, and for a loss that is not finite.
            array = np.array([np.nan if record.get(key) is None else record[key] for record in records], np.float64)
            array.flags.writeable = False
            self._arrays[key] = array

    def __getitem__(self, key: str) -> FloatArray:
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"History({len(self['epoch'])} epochs: {', '.join(self)})"

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``, one row per epoch. Needs pandas (``ImportError``)."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pd.DataFrame(dict(self))


class Report:
    """A report on a run: one self-contained HTML page. Shown in a notebook by itself."""

    _html: str

    def __init__(self, html: str) -> None:
        self._html = html

    @property
    def html(self) -> str:
        """The page."""
        return self._html

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes the page.

        Raises:
            InputError: The file exists and may not be replaced; only a report is ever replaced.
        """
        _halograph.write_report(path, self._html, overwrite)

    def _repr_html_(self) -> str:
        # A document of its own: styles of the notebook and of the page do not meet.
        return f'<iframe srcdoc="{html.escape(self._html)}" width="100%" height="640" style="border: 0"></iframe>'


class Run:
    """A finished or stopped run: its scores and its model with the weights of the best validation epoch.

    Runs come from :func:`train` and :func:`load`. They can be pickled: a pickle has the model and the results, not the data
    in memory (data in a directory are found again by their path).
    """

    _model: _halograph.Model | None
    _dataset: Dataset | None
    _history: str
    _summary: str | None
    _path: str | None
    _notes: tuple[str, ...]
    _interrupted: bool

    def __init__(self) -> None:
        raise TypeError("a Run is returned by halograph.train or halograph.load")

    @classmethod
    def _of(cls, trained: _halograph.Trained, dataset: Dataset | None) -> Run:
        path = None if trained.path is None else os.fspath(trained.path)
        notes = tuple(trained.notes)
        parts = (trained.take_model(), trained.history, trained.summary, path, notes, trained.interrupted)
        return cls._from_parts(*parts, dataset=dataset)

    @classmethod
    def _from_parts(
        cls,
        model: _halograph.Model | None,
        history: str,
        summary: str | None,
        path: str | None,
        notes: tuple[str, ...],
        interrupted: bool,
        dataset: Dataset | None = None,
    ) -> Run:
        self = cls.__new__(cls)
        self._model, self._dataset = model, dataset
        self._history, self._summary = history, summary
        self._path, self._notes, self._interrupted = path, notes, interrupted
        return self

    def __copy__(self) -> Run:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> Run:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        parts = None if self._model is None else self._model.parts()
        rest = (self._history, self._summary, self._path, self._notes, self._interrupted)
        return _unpickle, (parts, *rest)

    @property
    def _results(self) -> _halograph.Model:
        """The model; refuses on ranks that have none."""
        if self._model is None:
            raise HalographError("run: only rank 0 has the results of a run\n  help: ask run.is_leader first")
        return self._model

    @property
    def _data_ref(self) -> dict[str, Any]:
        """The data as the run directory describes them."""
        data: dict[str, Any] = json.loads(self._results.header())["data"]
        return data

    def _data(self, dataset: Dataset | Path | None) -> _halograph.Dataset | Path | None:
        chosen = self._dataset if dataset is None else dataset
        return chosen._native if isinstance(chosen, Dataset) else chosen

    @property
    def is_leader(self) -> bool:
        """Whether this process has the results: false on ranks other than 0 of a launcher. There :attr:`path`,
        :attr:`notes` and :attr:`interrupted` are those of the rank itself, which no callback stops, and all else raises
        :class:`HalographError`."""
        return self._model is not None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C, a callback that returned ``False``, or another signal ended the run before its last epoch."""
        return self._interrupted

    @property
    def path(self) -> str | None:
        """The run directory; ``None``: in memory."""
        return self._path

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """All settings, resolved: tables ``data``, ``model``, ``train`` and ``layers``."""
        config: dict[str, dict[str, Any]] = json.loads(self._results.header())["config"]
        return config

    @property
    def history(self) -> History:
        """What was recorded of each epoch."""
        self._results
        return History(json.loads(self._history))

    @property
    def scores(self) -> Scores:
        """Scores of the best validation epoch, whose weights these are."""
        history = self.history
        evaluated = ~np.isnan([history[key] for key in ("train", "val", "test", "val_loss")]).all(axis=0)
        best = self.summary.get("best_epoch")
        if best is None or best not in history["epoch"][evaluated]:
            return Scores(None, None, None)
        row = int(np.flatnonzero(history["epoch"] == best)[0])
        found = (history[key][row] for key in ("train", "val", "test", "val_loss"))
        return Scores(*(None if np.isnan(score) else float(score) for score in found))

    @property
    def summary(self) -> dict[str, Any]:
        """The run in numbers, as ``halograph train --json`` prints it."""
        self._results
        summary: dict[str, Any] = json.loads(self._summary or "{}")
        return summary

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on data, settings and scores."""
        return self._notes

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
        return self._results.predict(self._data(dataset), output)

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
        return self._results.embeddings(layer, self._data(dataset))

    def evaluate(self, dataset: Dataset | Path | None = None) -> Scores:
        """Scores the model exactly, by the metric of the run.

        Args:
            dataset: The data, with labels and masks; default: those of the training.

        Raises:
            InputError: Features or classes do not fit.
        """
        return Scores(*self._results.evaluate(self._data(dataset)))

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Returns a copy of the weights, under PyG's names (``convs.0.lin_l.weight``). float32, or float64 if trained with
        ``precision="f64"``."""
        weights = self._results.weights()
        return {name: np.frombuffer(values, dtype).reshape(shape).copy() for name, dtype, shape, values in weights}

    def to_pyg(self) -> Any:
        """Returns a ``torch_geometric.nn.models`` model (GraphSAGE, GCN, GAT or GIN) with the weights, in evaluation mode.

        It gives the logits of :meth:`predict` for the tensors of :meth:`pyg_data`, and for the original ones if the run
        scales no features and counts no node in its own mean. A GCN of data with edge weights needs ``edge_weight``, too.

        Raises:
            ImportError: torch or torch_geometric is not installed.
            InputError: PyG has no such model: gcnii, resgcn, dense layers at the end, another number of output heads, or
                sage or gin with edge weights. (Weights of data that are not there any more are refused by
                :meth:`pyg_data`.)

        Example:
            >>> model, data = run.to_pyg(), run.pyg_data()
            >>> logits = model(data.x, data.edge_index)                               # without edge weights
            >>> logits = model(data.x, data.edge_index, edge_weight=data.edge_weight)   # a GCN, with edge weights
        """
        header = json.loads(self._results.header())
        try:
            data = self._pyg_source(None)
        except HalographError:  # The data are no longer there.
            data = None
        return _pyg.model(header, self.state_dict(), data)

    def pyg_data(self, dataset: Dataset | Path | None = None) -> Any:
        """Returns a ``torch_geometric.data.Data`` as the model reads the data: ``x`` scaled, its columns in the order of
        the run, ``edge_index`` with the self-loops that ``self_in_mean`` stands for, and ``y``, masks and ``edge_weight``
        if there are any.

        Args:
            dataset: The data, also new ones with the same features, matched as by :meth:`predict`; default: those of the
                training.

        Raises:
            ImportError: torch or torch_geometric is not installed.
            InputError: The features do not fit, there are no data, or the data have edge weights that PyG's model does not
                take.
        """
        header = json.loads(self._results.header())
        return _pyg.data(header, self._results.scaling(), self._pyg_source(dataset))

    def _pyg_source(self, dataset: Dataset | Path | None) -> Dataset:
        """Returns a dataset, or opens it."""
        chosen = self._dataset if dataset is None else dataset
        if chosen is None:
            chosen = self._data_ref.get("path")
        if chosen is None:
            raise InputError.at("run", "was trained on a dataset in memory", "give the dataset")
        return chosen if isinstance(chosen, Dataset) else Dataset.open(chosen)

    def report(self) -> Report:
        """Returns a report, as ``halograph report`` writes it."""
        if self._path is not None and os.path.isdir(self._path):
            return Report(_halograph.report(self._path))
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, f"{self._data_ref['name']}-{self.config['model']['kind']}".replace("/", "-"))
            self.save(run)
            return Report(_halograph.report(run))

    def plot(self, ax: Any = None) -> Any:
        """Draws training loss and scores over epochs. Needs matplotlib (``ImportError``).

        Args:
            ax: The axes to draw into; default: new ones.

        Returns:
            The axes.
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError("plot needs matplotlib: pip install matplotlib") from error
            ax = plt.figure().subplots()
        history = self.history
        ax.plot(history["epoch"], history["loss"], color="0.6", label="loss")
        ax.set_xlabel("epoch")
        ax.set_ylabel("training loss")
        scores = ax.twinx()
        evaluated = ~np.isnan(history["evaluation_seconds"])
        for name in ("train", "val", "test"):
            if not np.isnan(history[name]).all():
                scores.plot(history["epoch"][evaluated], history[name][evaluated], label=name)
        scores.set_ylabel(str(self.summary.get("metric", "score")))
        scores.legend(*(a + b for a, b in zip(ax.get_legend_handles_labels(), scores.get_legend_handles_labels(), strict=True)))
        return ax

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Writes a run directory, which :func:`load` and the commands ``eval``, ``predict`` and ``report`` read. It has no
        checkpoint and cannot be resumed.

        Raises:
            InputError: ``path`` exists.
        """
        self._results.save(path, overwrite, self._history, self._summary)

    def __repr__(self) -> str:
        """``Run(sage, arrays, epochs=100, train=0.9640, val=0.9575, test=0.9558)``"""
        if self._model is None:
            return "Run(not rank 0)"
        header, scores = json.loads(self._model.header()), self.scores
        given = {"train": scores.train, "val": scores.val, "test": scores.test}
        text = "".join(f", {name}={score:.4f}" for name, score in given.items() if score is not None)
        epochs = len(self.history["epoch"])
        return f"Run({header['config']['model']['kind']}, {header['data']['name']}, epochs={epochs}{text})"


def load(path: Path) -> Run:
    """Loads a run directory, of :meth:`Run.save` or of ``halograph train``.

    Raises:
        InputError: There is no run, or it has no weights yet.
    """
    model, history, summary = _halograph.load(path)
    interrupted = json.loads(summary or '{"ending": "interrupted"}').get("ending") == "interrupted"
    return Run._from_parts(model, history, summary, os.path.abspath(path), (), interrupted)


def _unpickle(
    parts: tuple[str, bytes, bytes | None] | None,
    history: str,
    summary: str | None,
    path: str | None,
    notes: tuple[str, ...],
    interrupted: bool,
) -> Run:
    model = None if parts is None else _halograph.Model.from_parts(*parts, path)
    return Run._from_parts(model, history, summary, path, notes, interrupted)
