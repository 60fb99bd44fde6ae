"""The messages of a client in a session, a class for each directive: the fields, and which are needed.

A ``tag`` comes back with the answer. A field that is not among these is refused, so that a misspelt one does
not pass unseen.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from rtfilter.basics.session_states import Directive
from rtfilter.service.records import MOST_OF_A_PAGE, Wish
from rtfilter.service.service_errors import DirectiveError

DEFAULT: Final = "default"
"""The filter, where a message names none."""
MOST_TAG: Final = 1000
"""Bytes of a tag as JSON: a client that reads no answers has many of them kept."""
_Whole = Annotated[int, Meta(ge=0, lt=2**53)]


class Message(Struct, tag_field="directive", tag=lambda name: name.upper(), forbid_unknown_fields=True):
    """The fields of all messages."""

    tag: Any = None

    @property
    def directive(self) -> Directive:
        """The directive of the message."""
        return Directive(type(self).__name__.upper())


class Connect(Message):
    """The identity of a client: by token, or by name and password."""

    token: str | None = None
    user: str | None = None
    password: str = ""


class _Wished(Message, kw_only=True):
    """A subscription as it is asked for."""

    where: Any
    metadata: Any = None
    ttl: Any = None
    digest: Any = None
    order: Any = None

    @property
    def wish(self) -> Wish:
        """The subscription as the pipeline takes it."""
        return Wish(self.where, self.metadata, self.ttl, self.digest, self.order)


class Subscribe(_Wished, kw_only=True):
    """A new subscription. With `key`, a repeated message adds no second one."""

    filter: str = DEFAULT
    key: str | None = None
    everywhere: bool = False


class Replace(_Wished, kw_only=True):
    """A subscription that takes the place of one of the user's, as a whole."""

    subscription: _Whole


class Unsubscribe(Message, kw_only=True):
    """The removal of a subscription of the user."""

    subscription: _Whole


class Ready(Message):
    """The start of deliveries."""


class Stop(Message):
    """The end of deliveries."""


class Get(Message):
    """A request for the backlog."""


class Disconnect(Message):
    """The end of the session."""


class Ack(Message, kw_only=True):
    """The arrival of all deliveries of this connection up to a number, and of some numbers above it."""

    upto: _Whole
    numbers: list[_Whole] = []


class Credit(Message, kw_only=True):
    """The number of further deliveries that may be sent."""

    more: _Whole


class _Events(Message):
    """An event, or a list of events, as JSON."""

    event: Raw | UnsetType = UNSET
    events: list[Raw] | UnsetType = UNSET
    filter: str = DEFAULT

    @property
    def count(self) -> int:
        """The number of events."""
        return 1 if self.events is UNSET else len(self.events)

    @property
    def texts(self) -> list[bytes]:
        """The JSON of each event. Raises `DirectiveError` if both fields are given, or none."""
        if self.events is UNSET and self.event is not UNSET:
            return [bytes(self.event)]
        if self.event is UNSET and self.events is not UNSET:
            return list(map(bytes, self.events))
        raise DirectiveError('give "event", an object, or "events", a list of them')


class Publish(_Events):
    """Events to deliver. With `key`, a repeated message publishes nothing twice."""

    key: str | None = None


class Match(_Events):
    """Events to be matched only."""


class Explain(Message, kw_only=True):
    """A question why a subscription of the user matches an event or not."""

    subscription: _Whole
    event: Raw


class List(Message):
    """The user's subscriptions, of one filter or all, above an id; or a single one."""

    filter: str | None = None
    after: _Whole = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_OF_A_PAGE)] = 100
    subscription: _Whole | None = None


class Site(Message, kw_only=True):
    """A message of a site, by name and cluster, to this one, as MessagePack."""

    site: Annotated[str, Meta(min_length=1, max_length=100)]
    cluster: Annotated[str, Meta(min_length=1, max_length=100)]
    message: bytes


_Any = (
    Connect
    | Subscribe
    | Unsubscribe
    | Replace
    | List
    | Ready
    | Stop
    | Get
    | Disconnect
    | Ack
    | Credit
    | Publish
    | Match
    | Explain
    | Site
)
_message: Final = msgspec.json.Decoder(_Any)


class Misread(NamedTuple):
    """A message that cannot be read; `directive` is None if it has no known one."""

    error: DirectiveError
    tag: Any = None
    directive: Directive | None = None


def without_mark(text: str | bytes) -> str | bytes:
    """Return a text without the byte order mark that some programs begin it with."""
    return text.removeprefix("\ufeff") if isinstance(text, str) else text.removeprefix(BOM_UTF8)


def read(text: str | bytes) -> Message | Misread:
    """Return the message of a JSON text.

    Raises
    ------
    msgspec.DecodeError, UnicodeDecodeError, RecursionError
        The text is not JSON.
    """
    message = _read(text)
    if len(text) > MOST_TAG and len(msgspec.json.encode(message.tag)) > MOST_TAG:
        return Misread(DirectiveError(f"a tag has at most {MOST_TAG} bytes"))
    return message


def _read(text: str | bytes) -> Message | Misread:
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
