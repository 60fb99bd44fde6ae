"""The work that a client's message causes, and the limits of each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rtfilter.overlay.broker import Out
from rtfilter.overlay.running.client_messages import Drop, Publish, Want
from rtfilter.overlay.running.frames import MOST_BYTES, SPARE
from rtfilter.store.brokers import Change

UNKEPT: Final = (
    "this broker cannot keep anything now: its disk is full, or its database away, as its log says; "
    "ask again later, or another broker"
)
"""The reason of a refusal when the broker cannot store anything."""


class ClientLimits(NamedTuple):
    """The limits of a broker for its clients: times, counts and sizes.

    Attributes
    ----------
    again, longest : float
        Seconds until a publication that is not acknowledged is sent again: the first time, and at most, but
        for what `Publications` adds if very many wait.
    linger : float
        Seconds that the subscriptions of a client stay after its connection, and that one who is connected
        has to acknowledge something of what is delivered: it is taken for gone then.
    unacknowledged : int
        Most publications of one client that are not acknowledged; others are refused.
    deliveries : int
        Most that one client does not have yet; others are not taken, so their publishers send them again.
    clients : int
        Most that are known; others are sent to another broker.
    subscriptions : int
        Most of one client.
    bytes : int
        Most of one client's subscriptions, of its publications that are not acknowledged, and of deliveries
        that it does not have yet: of each.
    event : int
        Most of an event, or of a condition: all brokers of a network take as long ones.
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
    """Refuse what no message between brokers can hold. Raises `ValueError`."""
    if size > most:
        raise ValueError(f"{what} is {size:,} bytes long, and may be {most:,}; see --message of the brokers")


class Asked(NamedTuple):
    """A client's request to store first: `Clients.kept` then carries it out, or `Clients.refused` refuses it.

    Attributes
    ----------
    client : str
    message : Want, Drop or Publish
    change : Change
        What is to be kept.
    """

    client: str
    message: Want | Drop | Publish
    change: Change


class Work(NamedTuple):
    """The work that a message or a tick causes.

    Attributes
    ----------
    changes : list of Change
        To be kept at some time: a restart before that loses nothing.
    out : list of Out
        To be sent now.
    asked : sequence of Asked
        To be kept, each in its turn.
    """

    changes: list[Change]
    out: list[Out]
    asked: Sequence[Asked] = ()
