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
        head, _, advice = message.partition("\n  help: ")
        self.place = place
        self.problem = problem or head
        self.help = help or advice


class InputError(HalographError, ValueError):
    """Bad input: an array, a file, a setting, or settings that differ between ranks."""

    @classmethod
    def at(cls, place: str, problem: str, help: str = "") -> InputError:
        """Creates the error of a problem at a place."""
        advice = f"\n  help: {help}" if help else ""
        return cls(f"{place}: {problem}{advice}", place, problem, help)


class PeerLost(HalographError):
    """Another rank was lost or failed, or a message could not be sent."""


class Diverged(HalographError):
    """The loss, the weights or the outputs are no longer finite numbers."""


class OutOfMemory(HalographError, MemoryError):
    """More memory is predicted than is free. Nothing was allocated or written."""


class HalographWarning(UserWarning):
    """A remark on data or settings, such as a setting without effect."""


for _class in (HalographError, InputError, PeerLost, Diverged, OutOfMemory, HalographWarning):
    _class.__module__ = "halograph"  # where users find it
