"""The errors that a client raises."""

from __future__ import annotations

from rtfilter.errors import RTFilterError


class ClientError(RTFilterError):
    """Base class of what `rtfilter.client` raises."""


class RefusedError(ClientError):
    """The server has answered with an error; nothing of the request was done.

    Parameters
    ----------
    message : str
        The server's.
    kind : str
        A short name that programs can compare: ``predicate``, ``event``, ``unauthenticated``, ``forbidden``,
        ``unknown``, ``conflict``, ``limit``, ``busy`` ...
    retry_after : float, optional
        Seconds after which the same request may succeed.
    row : int, optional
        Which of several events it is about, from 0.
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
        return self.kind in ("busy", "limit")


class UnwritableError(ClientError):
    """JSON cannot say what was to be sent; nothing was.

    Parameters
    ----------
    message : str
    row : int, optional
        Which of several events it is, from 0.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class UnreachableError(ClientError, ConnectionError):
    """The server does not answer, or did not come back in time."""


class ClosedError(ClientError):
    """The client was disconnected before this could be done."""


class ProtocolError(ClientError):
    """The server says what this client does not understand: another version, or another program."""
