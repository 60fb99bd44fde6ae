"""The messages of a connection, with its directives, tags and states: no I/O, no clock.

`Protocol.ask` makes a message, `Protocol.hear` reads one. The states are those of the server; a directive
need not wait for the answer to the one before, because the server answers in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.basics.text import shown
from rtfilter.client.client_errors import ClientError, ProtocolError, UnwritableError


class ServerSubscription(msgspec.Struct, frozen=True):
    """A subscription on the server."""

    id: int = msgspec.field(name="subscription")
    filter: str
    where: str | dict[str, Any]
    """An SQL condition, or an event pattern."""
    user: str = ""
    metadata: dict[str, Any] | None = None
    ttl: float | None = None
    """Its time to live, in seconds."""
    digest: float | None = None
    order: str | None = None
    since: float = 0.0
    """Unix seconds of its creation, or last replacement."""
    expires: float | None = None
    """Unix seconds of its expiry."""


class Reasons(NamedTuple):
    """The reasons why a subscription matches an event, or not; `str` returns them as text."""

    matched: bool
    report: tuple[str, ...]
    """A line for each constraint."""

    def __str__(self) -> str:
        return "\n".join(self.report)


class _Message(msgspec.Struct, tag_field="directive", frozen=True):
    """A JSON object whose ``directive`` is its type. Unknown fields are ignored."""


class Connected(_Message, tag="CONNECTED", frozen=True):
    """The answer to CONNECT."""

    connection: str
    user: str = ""
    roles: tuple[str, ...] = ()
    tag: int | None = None


class Confirmation(_Message, tag="ACK", frozen=True):
    """The confirmation of any other directive; the directive decides which fields it has."""

    tag: int | None = None
    subscription: int | None = None
    positions: list[int] | None = None
    pending: int | None = None
    expires: float | None = None
    subscriptions: list[ServerSubscription] | None = None
    next: int | None = None
    matches: list[list[int]] | None = None
    matched: bool | None = None
    report: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


class Error(_Message, tag="ERROR", frozen=True):
    """The refusal of a request, with the reason."""

    error: str
    kind: str = "refused"
    tag: int | None = None
    retry_after: float | None = None
    row: int | None = None


class EventDelivery(_Message, tag="EVENT", frozen=True):
    """A delivery of one event."""

    number: int
    position: int
    subscriptions: tuple[int, ...]
    event: dict[str, Any]
    filter: str = "default"
    at: float = 0.0
    response: float | None = None
    redelivered: int = 0
    dropped: int = 0
    source: str = msgspec.field(default="", name="from")
    """The origin of the event, where the receiver is a site."""

    @property
    def events(self) -> tuple[EventDelivery]:
        """The only event, as those of a digest."""
        return (self,)


class DigestEvent(msgspec.Struct, frozen=True):
    """An event of a digest."""

    position: int
    event: dict[str, Any]
    at: float = 0.0
    subscriptions: tuple[int, ...] = ()


class Digest(_Message, tag="DIGEST", frozen=True):
    """A delivery of all events of a period."""

    number: int
    subscriptions: tuple[int, ...]
    events: tuple[DigestEvent, ...]
    filter: str = "default"
    redelivered: int = 0
    dropped: int = 0


class Ended(_Message, tag="ENDED", frozen=True):
    """The notice that a subscription has ended."""

    number: int
    position: int
    subscription: int
    reason: str
    filter: str = ""
    redelivered: int = 0
    dropped: int = 0


Arrival = EventDelivery | Digest | Ended
"""A numbered message, which the client acknowledges."""
Message = Connected | Confirmation | Error | EventDelivery | Digest | Ended


def encoded(value: object, name: str = "") -> msgspec.Raw:
    """Return a value as JSON, for the field `name` of a message.

    Raises `UnwritableError`, with the place in the value, and the row among several values.
    """
    try:
        if not _is_plain(value):
            from rtfilter.client.json_values import converted  # it imports NumPy; most programs need neither

            value = converted(value, name)
        return msgspec.Raw(_encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnwritableError(f"this cannot be written as JSON: {error}", _row(value)) from None
    except ClientError as error:
        raise UnwritableError(str(error), _row(value)) from None


def _row(value: object) -> int | None:
    """Return the row of the first of several values that JSON cannot represent; None for a single value."""
    if not isinstance(value, list | tuple):
        return None
    return next((row for row, one in enumerate(value) if not _writable(one)), None)


def _writable(value: object) -> bool:
    try:
        encoded(value)
    except ClientError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    """Return whether JSON represents a value without change."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is float:
        return isfinite(value)
    if kind is dict:
        values: Iterable[Any] = value.values()
    elif kind is list or kind is tuple:
        values = value
    else:
        return kind is msgspec.Raw
    return _ATOMS.issuperset(map(type, values)) or all(map(_is_plain, values))


_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_ATOMS: Final = frozenset((int, str, bool, type(None)))
ENDED: Final = ("unauthenticated", "busy")
"""Kinds of errors that end the connection instead of answering a request: the user must authenticate again,
or the server ends."""
_DECODER: Final = msgspec.json.Decoder(Message)


class Protocol:
    """The requests and answers of a connection.

    `state` is the state after the answers so far, `expected` that after the answers to all requests so far.
    """

    def __init__(self) -> None:
        self.state = self.expected = State.PRE_CONNECTED
        self._asked: dict[int, Directive] = {}

    def ask(self, directive: Directive, tag: int, **body: Any) -> bytes:
        """Return the message of a directive; `tag` comes back with the answer; None is left out of `body`.

        Raises `ClientError` if the state does not allow the directive.
        """
        following = TABLE[self.expected].get(directive)
        if following is None:
            raise ClientError(f"{directive} is not possible when {self.expected}")
        given = {name: value for name, value in body.items() if value is not None}
        message = msgspec.json.encode({"directive": directive.value, "tag": tag, **given})
        self._asked[tag] = directive
        self.expected = following
        return message

    def hear(self, text: str | bytes) -> Message:
        """Decode a message of the server, and update the state.

        Raises `ProtocolError` if the message is not understood, or answers no request.
        """
        try:
            message: Message = _DECODER.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"the server sent {shown(text)}, which is not understood: {error}") from None
        if isinstance(message, Connected | Confirmation | Error):
            self._follow(message)
        return message

    def _follow(self, answer: Connected | Confirmation | Error) -> None:
        if isinstance(answer, Error) and answer.tag is None:
            if answer.kind in ENDED:
                return
            raise ProtocolError(f"the server did not understand this client: {answer.error}")
        directive = self._asked.pop(answer.tag, None) if answer.tag is not None else None
        if directive is None or isinstance(answer, Connected) != (
            directive is Directive.CONNECT and not isinstance(answer, Error)
        ):
            raise ProtocolError(f"the server sent an answer without a request: {shown(answer)}")
        if isinstance(answer, Error):
            self.expected = self.state
            for other in self._asked.values():
                self.expected = TABLE[self.expected].get(other, self.expected)
        else:
            self.state = TABLE[self.state][directive]
