"""What a client may say in a session, one class for each directive: the fields, and which are needed.

A ``tag`` comes back with the answer. A field that is not among these is refused, so that a misspelt one does
not pass unseen.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from rtfilter.service.errors import DirectiveError
from rtfilter.session import Directive

DEFAULT: Final = "default"
"""The filter, where a message names none."""
_Whole = Annotated[int, Meta(ge=0, lt=2**53)]


class Message(Struct, tag_field="directive", tag=lambda name: name.upper(), forbid_unknown_fields=True):
    """What all have."""

    tag: Any = None

    @property
    def directive(self) -> Directive:
        """What is asked for."""
        return Directive(type(self).__name__.upper())


class Connect(Message):
    """Who it is: by token, or by name and password."""

    token: str | None = None
    user: str | None = None
    password: str = ""


class Subscribe(Message, kw_only=True):
    """A subscription; see `rtfilter.service.records.Wish`. `key` makes a repeated one the same."""

    where: Any
    filter: str = DEFAULT
    metadata: Any = None
    ttl: Any = None
    digest: Any = None
    order: Any = None
    key: str | None = None


class Unsubscribe(Message, kw_only=True):
    """The id of one's subscription."""

    subscription: _Whole


class Ready(Message):
    """Deliveries may come."""


class Stop(Message):
    """No more deliveries."""


class Get(Message):
    """The backlog."""


class Disconnect(Message):
    """The end."""


class Ack(Message, kw_only=True):
    """All deliveries of this connection up to a number have arrived."""

    upto: _Whole


class Credit(Message, kw_only=True):
    """So many more deliveries may be sent."""

    more: _Whole


class Publish(Message):
    """One event, or a list of them. `key` makes repeated ones the same."""

    event: Any = UNSET
    events: list[Any] | UnsetType = UNSET
    filter: str = DEFAULT
    key: str | None = None


_Any = Connect | Subscribe | Unsubscribe | Ready | Stop | Get | Disconnect | Ack | Credit | Publish
_message: Final = msgspec.json.Decoder(_Any)


class Misread(NamedTuple):
    """What is no message; `directive` is None where it has none that there is."""

    error: DirectiveError
    tag: Any = None
    directive: Directive | None = None


def without_mark(text: str | bytes) -> str | bytes:
    """Return a text without the byte order mark that some programs begin it with."""
    return text.removeprefix("\ufeff") if isinstance(text, str) else text.removeprefix(BOM_UTF8)


def read(text: str | bytes) -> Message | Misread:
    """Return what a text says.

    Raises
    ------
    msgspec.DecodeError, UnicodeDecodeError, RecursionError
        It is not JSON.
    """
    try:
        message: Message = _message.decode(text)
    except msgspec.ValidationError as error:
        said = msgspec.json.decode(text)
        if not isinstance(said, dict):
            return Misread(DirectiveError('a message is a JSON object, such as {"directive": "READY"}'))
        tag, name = said.get("tag"), said.get("directive")
        if name not in list(Directive):
            return Misread(DirectiveError(f'"directive" is one of {", ".join(Directive)}'), tag)
        return Misread(DirectiveError(f"{name}: {error}"), tag, Directive(name))
    return message
