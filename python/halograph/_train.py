"""Training."""

from __future__ import annotations

import atexit
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _halograph
from ._dataset import Dataset, Path
from ._errors import HalographWarning, InputError
from ._events import Epoch, Evaluation, Event
from ._progress import ProgressBar, is_shown
from ._run import Run

Callback = Callable[[Event], object]

# Ranks that a launcher started leave each other when Python ends.
atexit.register(_halograph.leave_world)


def train(
    dataset: Dataset | Path,
    *,
    model: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    trace: Path | None = None,
    config: Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    r"""Trains a model and returns the finished run, with the weights of the best validation epoch.

    Models (``model=``), with their papers and layers; :math:`\sigma` is the activation, :math:`\hat A` the symmetrically
    normalised adjacency with self-loops, :math:`N(i)` the in-neighbours of :math:`i`:

    - ``"sage"`` (default), `Inductive Representation Learning on Large Graphs <https://arxiv.org/abs/1706.02216>`_:
      :math:`x_i' = \sigma(W_1 x_i + W_2 \, \mathrm{mean}_{j \in N(i)} x_j)`
    - ``"gcn"``, `Semi-Supervised Classification with Graph Convolutional Networks <https://arxiv.org/abs/1609.02907>`_:
      :math:`X' = \sigma(\hat A X W)`
    - ``"gat"``, `Graph Attention Networks <https://arxiv.org/abs/1710.10903>`_:
      :math:`x_i' = \sigma(\sum_j \alpha_{ij} W x_j)`,
      :math:`\alpha_i = \mathrm{softmax}_j(\mathrm{LeakyReLU}(a^\top [W x_i \| W x_j]))`
    - ``"gin"``, `How Powerful are Graph Neural Networks? <https://arxiv.org/abs/1810.00826>`_:
      :math:`x_i' = \mathrm{MLP}((1 + \varepsilon) x_i + \sum_{j \in N(i)} x_j)`
    - ``"gcnii"``, `Simple and Deep Graph Convolutional Networks <https://arxiv.org/abs/2007.02133>`_:
      :math:`X' = \sigma(((1 - \alpha) \hat A X + \alpha X_0)((1 - \beta) I + \beta W))`
    - ``"resgcn"``, `DeeperGCN <https://arxiv.org/abs/2006.07739>`_: pre-activation residual layers

    Args:
        dataset: The data: a :class:`Dataset`, or the path of a dataset directory or of a folder of shards.
        model: Kind of model; default: sage.
        out: Run directory, as ``halograph train --out`` writes it; default: the run stays in memory. Under a launcher,
            rank 0 writes it.
        resume: Whether to continue the run in ``out``, if there is one. Needs ``out``.
        overwrite: Whether an existing run in ``out`` may be replaced.
        force: Whether to train although more memory is predicted than is free.
        trace: File for a trace of all ranks.
        config: TOML file with settings; ``settings`` take precedence.
        callbacks: Called with each :class:`Epoch` and :class:`Evaluation`, in this order. A callback that returns ``False``
            (and not merely something falsy) stops the run after this epoch; any other value continues. A callback that
            raises stops the run, too, and the exception propagates; with ``out``, the epochs so far are saved. Callbacks
            run in another thread than the caller's, one at a time, while training waits. Only on rank 0 under a launcher.
        progress: Whether to draw a progress bar on standard error; default: in terminals and notebooks.
        **settings: All settings of the command line, with its defaults: flags (``hidden=256``, ``epochs=100``,
            ``strategy="minibatch"``, ``fanout=[15, 10, 5]``, ``ranks=4``, ``threads=2``; dashes are underscores) and keys
            of a configuration file (``clip=1.0``, ``optimizer="sgd"``, ``weight_decay_for={"convs.0": 5e-4}``).
            ``halograph train --help`` and docs/training.md list them. ``None`` leaves a setting at its default.

    Returns:
        The run. On ranks other than 0 of a launcher, ``Run.is_leader`` is false and there are no results.

    Ctrl-C stops after the current optimiser step and returns the run, with :attr:`Run.interrupted` true and what was learnt:
    the weights of the best evaluation so far or, before the first evaluation, the newest weights. With ``out``, the run can be
    resumed. If no optimiser step has ended by then, ``KeyboardInterrupt`` is raised. An exception of any other signal
    handler propagates. Only the main thread of Python receives signals.

    The GIL is released while training; runs in several threads are independent (not under a launcher). The same data,
    settings and number of ranks give weights that are equal to the bit, here and on the command line, on any number of
    threads.

    Under a launcher, runs must not be concurrent: all ranks train the same runs, one after the other. A run that fails,
    also for wrong settings, ends all runs of these ranks: later ones fail, too.

    Remarks on data and settings are in :attr:`Run.notes`; those known before the first epoch are also issued as
    :class:`HalographWarning`.

    Raises:
        InputError: Data or settings are wrong; an unknown setting names the most similar one.
        OutOfMemory: More memory is predicted than is free.
        Diverged: The loss is no longer finite.
        PeerLost: Another rank was lost.
        KeyboardInterrupt: Interrupted before anything was learnt.

    Example:
        >>> run = halograph.train(data, model="sage", hidden=256, strategy="minibatch", fanout=[15, 10, 5], epochs=10)
        >>> run.scores.test
        0.78
        >>> def stop_at_90(event):
        ...     return not (isinstance(event, halograph.Evaluation) and event.val > 0.9)
        >>> run = halograph.train(data, callbacks=[stop_at_90])
    """
    listener = _Listener(callbacks, ProgressBar() if is_shown(progress) else None)
    arguments = {
        "settings": _settings({"model": model, **settings}),
        "config": config,
        "out": out,
        "resume": resume,
        "overwrite": overwrite,
        "force": force,
        "trace": trace,
        "on_event": listener,
        "on_notes": _warner(),
    }
    data = dataset._native if isinstance(dataset, Dataset) else os.fspath(dataset)
    try:
        trained = _halograph.train(data, arguments)
    finally:
        listener.close()
    return Run._of(trained, dataset if isinstance(dataset, Dataset) else None)


class _Listener:
    """Passes events to the progress bar and to callbacks; returns ``False`` if one of these stops the run."""

    def __init__(self, callbacks: Sequence[Callback], bar: ProgressBar | None) -> None:
        self.callbacks = tuple(callbacks)
        self.bar = bar
        for callback in self.callbacks:
            if not callable(callback):
                raise TypeError(f"callbacks: {callback!r} is not callable")

    def __call__(self, kind: str, values: tuple[Any, ...]) -> bool:
        if self.bar is not None:
            self.bar.show(kind, values)
        if kind == "epoch":
            return self.call(Epoch(*values))
        if kind == "evaluation":
            epoch, scores, seconds, best_epoch = values
            return self.call(Evaluation(epoch, *scores, seconds, best_epoch))
        return True

    def call(self, event: Event) -> bool:
        answers = [callback(event) for callback in self.callbacks]
        return not any(isinstance(answer, bool | np.bool_) and not answer for answer in answers)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _warner() -> Callable[[list[str]], None]:
    """Returns a function that issues notes as warnings about the line that called this package. It may run in any thread."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    place, line = frame.f_code.co_filename, frame.f_lineno
    module, registry = frame.f_globals.get("__name__"), frame.f_globals.setdefault("__warningregistry__", {})

    def warn(notes: list[str]) -> None:
        for note in notes:
            warnings.warn_explicit(note, HalographWarning, place, line, module, registry)

    return warn


def _settings(settings: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    """Returns name, key of a table and text of all settings that are not ``None``."""
    found: list[tuple[str, str | None, str]] = []
    for name, value in settings.items():
        if name == "class_weights" and isinstance(value, dict):
            raise InputError.at(f"argument {name}", "a dict", "give a list, one weight per class, or 'balanced'")
        if isinstance(value, dict):
            found += [(name, str(key), _text(name, inner)) for key, inner in value.items()]
        elif value is not None:
            found.append((name, None, _text(name, value)))
    return found


def _text(name: str, value: Any) -> str:
    """Returns a value as a configuration file has it."""
    if hasattr(value, "tolist") and not isinstance(value, type):  # of numpy, torch or pandas
        value = value.tolist()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        return json.dumps(str(os.fspath(value)), ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(name, inner) for inner in value)}]"
    raise InputError.at(f"argument {name}", f"{value!r}: a {type(value).__name__} is no setting")
