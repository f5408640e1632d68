"""Exceptions and warnings."""

from __future__ import annotations


class HalographError(Exception):
    """Base of all errors of this package.

    The text names the place, the problem and, where there is one, the remedy.

    Attributes:
        place: File, array or setting concerned; empty if there is none.
        problem: The problem, with the offending value.
        help: The remedy; may be empty.
    """

    def __init__(self, message: str, place: str = "", problem: str = "", help: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.problem = problem or message
        self.help = help


class InputError(HalographError, ValueError):
    """Bad input: an array, a file, a setting, or settings that differ between ranks."""


class PeerLost(HalographError):
    """Another rank was lost or failed, or a message could not be sent."""


class Diverged(HalographError):
    """The loss, the weights or the outputs are no longer finite numbers."""


class OutOfMemory(HalographError, MemoryError):
    """More memory is predicted than is free. Nothing was allocated or written."""


class HalographWarning(UserWarning):
    """A remark on data or settings, such as a setting without effect."""
