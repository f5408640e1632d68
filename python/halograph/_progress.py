"""A progress bar on standard error, in terminals and notebooks."""

from __future__ import annotations

import sys
import time
from typing import Any

WIDTH = 24
"""Characters of the bar."""
INTERVAL = 0.1
"""Seconds between two drawings."""


def is_shown(progress: bool | None) -> bool:
    """Returns whether to draw a bar; by default in terminals and notebooks."""
    if progress is not None:
        return bool(progress)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    in_notebook = shell is not None and hasattr(shell, "kernel")
    return in_notebook or (sys.stderr is not None and sys.stderr.isatty())


class ProgressBar:
    """Draws the epochs of a run in one line."""

    def __init__(self) -> None:
        self.epochs, self.done = 0, 0.0
        self.line = ""
        self.loss = self.scores = ""
        self.drawn = 0.0

    def show(self, kind: str, values: tuple[Any, ...]) -> None:
        """Takes note of an event."""
        if kind == "started":
            _, first, self.epochs = values
            self.done = first - 1
        elif kind == "step":
            epoch, self.epochs, step, steps, loss = values
            self.done, self.loss = epoch - 1 + step / steps, f"  loss {loss:.4f}"
        elif kind == "epoch":
            self.done, self.epochs, loss, _, _ = values
            self.loss = f"  loss {loss:.4f}"
        elif kind == "evaluation":
            _, (_, val, _, _), _, best = values
            if val is not None:
                self.scores = f"  val {val:.4f}  best at {best}"
        now = time.monotonic()
        if now - self.drawn >= INTERVAL:
            self.drawn = now
            self.draw()

    def draw(self) -> None:
        """Draws the line over the one before."""
        share = self.done / self.epochs if self.epochs else 0.0
        filled = round(WIDTH * share)
        bar = "━" * filled + "─" * (WIDTH - filled)
        line = f"epoch {int(self.done):>{len(str(self.epochs))}}/{self.epochs} {bar}{self.loss}{self.scores}"
        self.write("\r" + line.ljust(len(self.line)))
        self.line = line

    def close(self) -> None:
        """Draws the last state and ends the line."""
        if self.epochs:
            self.draw()
            self.write("\n")

    def write(self, text: str) -> None:
        """Writes to standard error; one that is closed or cannot hold the text is no reason to stop a run."""
        try:
            print(text, end="", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            pass
