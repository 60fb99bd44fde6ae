"""The errors of a client."""

from __future__ import annotations

from rtfilter.basics.errors import RTFilterError


class ClientError(RTFilterError):
    """Base class of the errors of `rtfilter.client`."""


class RefusedError(ClientError):
    """The server has answered with an error, and has done nothing of the request.

    Parameters
    ----------
    message : str
        The message of the server.
    kind : str
        A short name that programs can compare: ``predicate``, ``event``, ``unauthenticated``, ``forbidden``,
        ``unknown``, ``conflict``, ``limit``, ``busy`` ...
    retry_after : float, optional
        Seconds after which the same request may succeed.
    row : int, optional
        Row of the event that it is about, among several, from 0.
    """

    def __init__(
        self, message: str, kind: str = "refused", retry_after: float | None = None, row: int | None = None
    ) -> None:
        super().__init__(message, kind, retry_after, row)
        self.kind, self.retry_after, self.row = kind, retry_after, row

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def passing(self) -> bool:
        """True if the same request may succeed later."""
        return self.kind in ("busy", "limit", "standby")


class UnwritableError(ClientError):
    """JSON cannot represent a value; the client sent nothing.

    Parameters
    ----------
    message : str
    row : int, optional
        Row of the event among several, from 0.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class UnreachableError(ClientError, ConnectionError):
    """The server does not answer, or could not be reached again in time."""


class ClosedError(ClientError):
    """The client was disconnected before it could do this."""


class ProtocolError(ClientError):
    """The server's message is not understood: it has another version, or is another program."""
