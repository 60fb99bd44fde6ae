"""The directives, tags and states of a connection: no I/O, no clock.

`Protocol.ask` makes a message, `Protocol.hear` reads one. The states are those of the server; a directive
need not wait for the answer to the one before, because the server answers in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final

import msgspec

from rtfilter.client.client_errors import ClientError, ProtocolError, UnwritableError
from rtfilter.client.server_messages import Confirmation, Connected, Error, Message
from rtfilter.session_states import TABLE, Directive, State
from rtfilter.text import shown


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
