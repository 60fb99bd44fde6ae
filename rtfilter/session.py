"""The life cycle of a session as one table: no I/O, no clock.

What is in `TABLE` is allowed, and leads to the state that stands there once it is confirmed. Everything else
is answered with ERROR and leaves the state as it is. A connection that is lost is `DISCONNECTED`, from every
state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a session."""

    PRE_CONNECTED = "PRE_CONNECTED"
    """There is a connection; nobody knows whose."""
    CONNECTED = "CONNECTED"
    RECEIVING = "RECEIVING"
    DISCONNECTED = "DISCONNECTED"


class Directive(StrEnum):
    """The requests of a client."""

    CONNECT = "CONNECT"
    SUBSCRIBE = "SUBSCRIBE"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    READY = "READY"
    STOP = "STOP"
    GET = "GET"
    DISCONNECT = "DISCONNECT"
    ACK = "ACK"
    """An extension: deliveries have arrived."""
    CREDIT = "CREDIT"
    """An extension: so many more deliveries may be sent."""
    PUBLISH = "PUBLISH"
    """An extension: events, on the connection that receives."""
    REPLACE = "REPLACE"
    """An extension: another subscription in the place of one."""
    LIST = "LIST"
    """An extension: the subscriptions that there are."""
    MATCH = "MATCH"
    """An extension: which subscriptions match events, that are not published."""
    EXPLAIN = "EXPLAIN"
    """An extension: why a subscription matches an event or not."""


_ANY_TIME: Final = (
    Directive.ACK,
    Directive.CREDIT,
    Directive.PUBLISH,
    Directive.REPLACE,
    Directive.LIST,
    Directive.MATCH,
    Directive.EXPLAIN,
)


TABLE: Final[dict[State, dict[Directive, State]]] = {
    State.PRE_CONNECTED: {Directive.CONNECT: State.CONNECTED},
    State.CONNECTED: {
        Directive.SUBSCRIBE: State.CONNECTED,
        Directive.UNSUBSCRIBE: State.CONNECTED,
        Directive.GET: State.CONNECTED,
        **dict.fromkeys(_ANY_TIME, State.CONNECTED),
        Directive.READY: State.RECEIVING,
        Directive.DISCONNECT: State.DISCONNECTED,
    },
    State.RECEIVING: {
        Directive.STOP: State.CONNECTED,
        **dict.fromkeys(_ANY_TIME, State.RECEIVING),
    },
    State.DISCONNECTED: {},
}
