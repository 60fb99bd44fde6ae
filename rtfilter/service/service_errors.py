"""Errors with which the server refuses. Doors report them in their own form: a problem document, or ERROR."""

from __future__ import annotations

from typing import ClassVar, Final

from rtfilter.basics.errors import PredicateError, RTFilterError

KINDS: Final = {
    "request": (422, "The request is not understood"),
    "json": (400, "The body is not JSON"),
    "malformed": (400, "The request is not HTTP"),
    "directive": (400, "The session does not allow the directive"),
    "frame": (400, "The bytes are no frame"),
    "predicate": (422, "The predicate cannot be used"),
    "event": (422, "The event cannot be used"),
    "media-type": (415, "The body is of a type that the server does not read"),
    "unauthenticated": (401, "The client is not authenticated"),
    "forbidden": (403, "The user's roles do not allow it"),
    "unknown": (404, "There is no such thing"),
    "method": (405, "The path has no such method"),
    "conflict": (409, "The request conflicts with the present state"),
    "silent": (408, "The request does not arrive"),
    "too-large": (413, "The request is too large"),
    "limit": (429, "A limit of the user is reached"),
    "busy": (503, "The server cannot accept the request now"),
    "standby": (503, "Another server does this"),
    "host": (421, "The server does not answer to this host name"),
    "origin": (403, "Pages of other hosts may not use the server"),
    "internal": (500, "The server failed"),
}
"""The status of HTTP, and the title, of each kind of refusal."""


class ServiceError(RTFilterError):
    """A request that is refused; nothing of it was done.

    Parameters
    ----------
    message : str
    retry_after : float, optional
        Seconds after which the same request may succeed.

    Attributes
    ----------
    kind : str
        A key of `KINDS`, which programs can compare.
    """

    kind: ClassVar[str]

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return KINDS[self.kind][0]


class DirectiveError(ServiceError):
    """A directive that its state does not allow, or that is not understood. The state stays."""

    kind = "directive"


class RequestError(ServiceError):
    """A request that is not understood: a field that is missing or of a wrong type."""

    kind = "request"


class NotJSONError(ServiceError):
    """The text is not JSON, or nests too deeply."""

    kind = "json"


class NotAuthenticatedError(ServiceError):
    """The client is not authenticated: a wrong name, password or token; the message does not say which."""

    kind = "unauthenticated"


class NotAllowedError(ServiceError):
    """The user's roles do not allow it."""

    kind = "forbidden"


class UnknownError(ServiceError):
    """There is nothing of this name, or it is another user's; the message does not say which."""

    kind = "unknown"


class ConflictError(ServiceError):
    """A conflict with the present state: a name in use, a key that stands for another request."""

    kind = "conflict"


class TooLargeError(ServiceError):
    """A body, frame or list that is longer than the server takes."""

    kind = "too-large"


class TooManyError(ServiceError):
    """More than the user may have, or faster than it may come."""

    kind = "limit"


class BusyError(ServiceError):
    """The server cannot accept it now: too much waits, or the log cannot be written."""

    kind = "busy"


class StandbyError(ServiceError):
    """A request for the server that owns the log, sent to its standby."""

    kind = "standby"

    def __init__(self) -> None:
        super().__init__(
            "this server is a standby: ask the other one, or this one once it has taken over", 0.2
        )


def lone(error: RTFilterError) -> RTFilterError:
    """Return an error without its row, which was the only one."""
    if isinstance(error, PredicateError):
        error.row = None
        error.show_row()
    return error


def require_text(name: str | None) -> None:
    """Raise `RequestError` where PostgreSQL would not take a name."""
    if name is not None and "\0" in name:
        raise RequestError("a name has no NUL characters")
