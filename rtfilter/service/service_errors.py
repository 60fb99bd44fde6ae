"""Errors with which the server refuses. Doors report them in their own form: a problem document, or ERROR."""

from __future__ import annotations

from typing import ClassVar

from rtfilter.errors import PredicateError, RTFilterError


class ServiceError(RTFilterError):
    """A request that is refused; nothing of it was done.

    Attributes
    ----------
    kind : str
        A short name that programs can compare.
    status : int
        The status of HTTP.
    retry_after : float or None
        Seconds after which the same request may succeed.
    """

    kind: ClassVar[str] = "refused"
    status: ClassVar[int] = 400
    retry_after: float | None = None


class DirectiveError(ServiceError):
    """A directive that its state does not allow, or that is not understood. The state stays."""

    kind = "directive"


class RequestError(ServiceError):
    """A request that is not understood: not JSON, a field that is missing or of a wrong type."""

    kind = "request"
    status = 422


class NotJSONError(ServiceError):
    """The text is not JSON, or nests too deeply."""

    kind = "json"


class NotAuthenticatedError(ServiceError):
    """The client is not authenticated: a wrong name, password or token; the message does not say which."""

    kind = "unauthenticated"
    status = 401


class NotAllowedError(ServiceError):
    """The user's roles do not allow it."""

    kind = "forbidden"
    status = 403


class UnknownError(ServiceError):
    """There is nothing of this name, or it is another user's; the message does not say which."""

    kind = "unknown"
    status = 404


class ConflictError(ServiceError):
    """A conflict with the present state: a name in use, a key that stands for another request."""

    kind = "conflict"
    status = 409


class TooLargeError(ServiceError):
    """A body, frame or list that is longer than the server takes."""

    kind = "too-large"
    status = 413


class TooManyError(ServiceError):
    """More than the user may have, or faster than it may come.

    Parameters
    ----------
    message : str
    retry_after : float, optional
        Seconds.
    """

    kind = "limit"
    status = 429

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BusyError(TooManyError):
    """The server cannot accept it now: too much waits, or the log cannot be written."""

    kind = "busy"
    status = 503


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
