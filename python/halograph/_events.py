"""Events that callbacks receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Epoch:
    """An epoch ended. Sent after every epoch."""

    epoch: int
    """Counted from 1."""
    epochs: int
    """Last epoch, unless training stops early."""
    loss: float
    """Mean training loss over the optimiser steps of the epoch, with dropout, each before its update."""
    lr: float
    """Learning rate of the last step."""
    seconds: float
    """Seconds of forward, backward and update."""


@dataclass(frozen=True)
class Evaluation:
    """The model was evaluated exactly, without dropout. Sent after the :class:`Epoch` of an epoch that evaluates.

    Scores are fractions by the metric of the run; ``None`` where no node has a label.
    """

    epoch: int
    """The epoch, counted from 1."""
    train: float | None
    """Score on training nodes."""
    val: float | None
    """Score on validation nodes."""
    test: float | None
    """Score on test nodes."""
    val_loss: float | None
    """Loss on validation nodes."""
    seconds: float
    """Seconds of the evaluation."""
    best_epoch: int | None
    """The epoch with the best validation score so far: its weights are kept."""


Event = Union[Epoch, Evaluation]
