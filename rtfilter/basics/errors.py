"""The exceptions of rtfilter.

Each is also the built-in exception that it resembles, so that ``except ValueError`` works. All of them keep
their attributes and notes when they are pickled.
"""

from __future__ import annotations

from typing import ClassVar, Self

from rtfilter.basics.text import caret, printable, shown


class RTFilterError(Exception):
    """Base class of all exceptions of rtfilter."""


class _InputError(RTFilterError, ValueError):
    """An event or a subscription cannot be used; the error says which.

    Parameters
    ----------
    message : str
        The fault and how to correct it, without the row.
    row : int, optional
        Its row among the given events or subscriptions, from 0; ``str()`` shows it before the message.
    attribute : str, optional
        Name of the attribute.
    reason : str, optional
        The message without the attribute; by default the message.

    Notes
    -----
    The parameters are attributes. A caller that knows a better place than the row, such as a line of a file,
    shows that place and `message`. Setting `row` later does not change what ``str()`` shows; `show_row` does.
    """

    _PLACE: ClassVar[str]

    def __init__(
        self,
        message: str,
        *more: object,
        row: int | None = None,
        attribute: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, *more)
        self.message = printable(message)
        self.row = row
        self.attribute = attribute
        self.reason = self.message if reason is None else printable(reason)
        self.show_row()

    @classmethod
    def about(cls, attribute: str, reason: str, row: int | None = None) -> Self:
        """Return the error whose message is ``attribute '<attribute>' <reason>``."""
        return cls(f"attribute {attribute!r} {reason}", row=row, attribute=attribute, reason=reason)

    def show_row(self) -> None:
        """Make ``str()`` show a row that was set later; without a row, change nothing."""
        self._place = "" if self.row is None else self._PLACE.format(self.row)

    def __str__(self) -> str:
        return self._place + self.message


class PredicateError(_InputError):
    """A predicate cannot be understood, does not fit the schema, or would cost too much.

    Parameters
    ----------
    message : str
        The fault and how to correct it, without the row and the source.
    source : str, optional
        The SQL text. With a position, ``str()`` shows its line with a caret under the place.
    position : int, optional
        0-based index into `source`.
    row : int, optional
        Row of the subscription among several, from 0.
    attribute : str, optional
        Name of the attribute.
    reason : str, optional
        The message without the attribute; by default the message.
    """

    _PLACE = "row {}, "

    def __init__(
        self,
        message: str,
        source: str | None = None,
        position: int | None = None,
        *,
        row: int | None = None,
        attribute: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, source, position, row=row, attribute=attribute, reason=reason)
        self.source = source
        self.position = position

    def __str__(self) -> str:
        text = super().__str__()
        if self.source is None or self.position is None:
            return text
        return f"{text}\n{caret(self.source, self.position)}"


class EventError(_InputError):
    """An event cannot be matched: NaN, infinity, a value outside its domain, a wrong type, a wrong shape.

    Parameters
    ----------
    message : str
        The fault and how to correct it, without the row.
    row : int, optional
        Row of the event in the batch, from 0.
    attribute : str, optional
        Name of the attribute.
    reason : str, optional
        The message without the attribute; by default the message.
    """

    _PLACE = "event {}: "


class FileError(RTFilterError, ValueError):
    """A file of events or subscriptions cannot be read; the message names the file and the line."""


class SnapshotError(RTFilterError, ValueError):
    """A saved index cannot be opened: damaged, incomplete, or of another format version."""


class UnknownSubscriptionError(RTFilterError, KeyError):
    """No subscription has this id.

    Parameters
    ----------
    id : int, str or uuid.UUID
        The unknown id.
    """

    def __init__(self, id: object) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no subscription {shown(self.id) if isinstance(self.id, str) else self.id}"
