"""The life cycle of a session as one table: no I/O, no clock.

`TABLE` has the allowed requests of each state, and the state after their confirmation. The server answers any
other request with ERROR and keeps the state. A lost connection makes the session `DISCONNECTED`, from every
state.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The state of a session."""

    PRE_CONNECTED = "PRE_CONNECTED"
    """There is a connection, but no user yet."""
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
    """An extension: permission for a number of further deliveries."""
    PUBLISH = "PUBLISH"
    """An extension: events, on the connection that receives deliveries."""
    REPLACE = "REPLACE"
    """An extension: replacement of a subscription."""
    LIST = "LIST"
    """An extension: the list of subscriptions."""
    MATCH = "MATCH"
    """An extension: the subscriptions that match some events, without publishing them."""
    EXPLAIN = "EXPLAIN"
    """An extension: the reason why a subscription matches an event or not."""
    SITE = "SITE"
    """An extension: a message of one site to another; see `rtfilter.service.sites`."""


_ANY_TIME: Final = (
    Directive.ACK,
    Directive.CREDIT,
    Directive.PUBLISH,
    Directive.REPLACE,
    Directive.LIST,
    Directive.MATCH,
    Directive.EXPLAIN,
    Directive.SITE,
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
