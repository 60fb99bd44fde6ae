"""The exceptions that rtfilter raises on purpose.

Each is also the built-in exception it resembles, so that ``except ValueError`` keeps working.
"""

from __future__ import annotations

from rtfilter.text import caret, printable


class RTFilterError(Exception):
    """Base class of every error that rtfilter raises on purpose."""


class PredicateError(RTFilterError, ValueError):
    """A predicate cannot be understood, does not fit the schema, or would cost too much.

    Parameters
    ----------
    message : str
        What is wrong and what to do about it.
    source : str, optional
        The SQL text. With a position, ``str()`` shows its line with a caret under the place.
    position : int, optional
        0-based index into `source`.
    """

    def __init__(self, message: str, source: str | None = None, position: int | None = None) -> None:
        super().__init__(message, source, position)
        self.message = printable(message)
        self.source = source
        self.position = position

    def __str__(self) -> str:
        if self.source is None or self.position is None:
            return self.message
        return f"{self.message}\n{caret(self.source, self.position)}"


class EventError(RTFilterError, ValueError):
    """An event cannot be filtered: NaN, infinity, outside its declared domain, or of a wrong shape."""


class SnapshotError(RTFilterError, ValueError):
    """A saved index cannot be opened: damaged, incomplete, or of another format version."""


class UnknownSubscriptionError(RTFilterError, KeyError):
    """There is no subscription with this id.

    Parameters
    ----------
    id : int
        The id that was asked for.
    """

    def __init__(self, id: int) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no subscription {self.id}"
