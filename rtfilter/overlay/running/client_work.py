"""The work that a client's message causes, and the limits of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rtfilter.overlay.broker_machine import Out
from rtfilter.overlay.running.broker_frames import MOST_BYTES, SPARE
from rtfilter.overlay.running.client_messages import ClientPublish, Drop, Want
from rtfilter.store.broker_store import Change

UNKEPT: Final = (
    "this broker cannot store anything now, because its disk is full or its database absent; see its log; "
    "ask again later, or another broker"
)
"""The reason of a refusal when the broker cannot store anything."""


class ClientLimits(NamedTuple):
    """The limits of a broker for its clients: times, counts and sizes.

    Attributes
    ----------
    again, longest : float
        Seconds until an unacknowledged publication is sent again: the first time, and at most.
        `Publications` waits longer if very many wait.
    linger : float
        Seconds that the subscriptions of a client stay after its connection, and within which a connected
        client must acknowledge some of its deliveries; otherwise it counts as gone.
    unacknowledged : int
        Most unacknowledged publications of one client; others are refused.
    deliveries : int
        Most pending deliveries of one client; others are not accepted, so their publishers send them again.
    clients : int
        Most known clients; others are sent to another broker.
    subscriptions : int
        Most subscriptions of one client.
    bytes : int
        Most bytes of one client's subscriptions, of its unacknowledged publications, and of its pending
        deliveries: for each of the three.
    event : int
        Most bytes of an event, or of a condition; the same at all brokers of a network.
    """

    again: float = 2.0
    longest: float = 10.0
    linger: float = 30.0
    unacknowledged: int = 10_000
    deliveries: int = 10_000
    clients: int = 10_000
    subscriptions: int = 100_000
    bytes: int = 64 * 2**20
    event: int = MOST_BYTES - SPARE


def require_short(what: str, size: int, most: int) -> None:
    """Raise `ValueError` for text that is too long for a message between brokers."""
    if size > most:
        raise ValueError(f"{what} is {size:,} bytes long; at most {most:,}, see --message of the brokers")


class StoreRequest(NamedTuple):
    """A client's request to store first: then `Clients.kept` carries it out, or `Clients.refused` refuses it.

    Attributes
    ----------
    client : str
    message : Want, Drop or ClientPublish
    change : Change
        The change to store.
    """

    client: str
    message: Want | Drop | ClientPublish
    change: Change


class ClientWork(NamedTuple):
    """The work that a message or a tick causes.

    Attributes
    ----------
    changes : list of Change
        Changes to store at some time: a restart before that loses nothing.
    out : list of Out
        Messages to send now.
    asked : sequence of StoreRequest
        Requests to store, each before it is carried out.
    """

    changes: list[Change]
    out: list[Out]
    asked: Sequence[StoreRequest] = ()
