"""Training."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ._dataset import Dataset, Path
from ._events import Event
from ._run import Run

Callback = Callable[[Event], object]


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
            (and not merely something falsy) stops the run after this epoch; any other value continues. A callback that raises
            stops the run, too, and the exception propagates; with ``out``, the epochs so far are saved. Callbacks run in another thread than the
            caller's, one at a time, while training waits. Only on rank 0 under a launcher.
        progress: Whether to draw a progress bar on standard error; default: in terminals and notebooks.
        **settings: All settings of the command line, with its defaults: flags (``hidden=256``, ``epochs=100``,
            ``strategy="minibatch"``, ``fanout=[15, 10, 5]``, ``ranks=4``, ``threads=2``; dashes are underscores) and keys
            of a configuration file (``clip=1.0``, ``optimizer="sgd"``, ``weight_decay_for={"convs.0": 5e-4}``).
            ``halograph train --help`` and docs/training.md list them. ``None`` leaves a setting at its default.

    Returns:
        The run. On ranks other than 0 of a launcher, ``Run.is_leader`` is false and there are no results.

    Ctrl-C stops after the current optimiser step and returns the run, with :attr:`Run.interrupted` true and what was learnt:
    the weights of the best evaluation so far. With ``out``, the run can be resumed. If there is nothing yet (before the
    first evaluation), ``KeyboardInterrupt`` is raised. Only the main thread of Python receives Ctrl-C.

    The GIL is released while training; runs in several threads are independent. The same data, settings and number of
    ranks give weights that are equal to the bit, here and on the command line, on any number of threads.

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
    raise NotImplementedError
