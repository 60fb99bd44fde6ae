"""The reasons why an event is not acknowledged yet, as far as the broker of its publisher knows them."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.overlay.acknowledging import Acknowledging
from rtfilter.overlay.broker_names import Connection, ConnectionKind
from rtfilter.overlay.core import Core
from rtfilter.overlay.routing_messages import Event
from rtfilter.overlay.uncertainty import LOST, Uncertainty


class WaitReason(NamedTuple):
    """A reason why an event waits.

    Attributes
    ----------
    what : str
        The reason, as text after "waits for".
    seconds : float
        Seconds since the wait began.
    """

    what: str
    seconds: float


class Holding:
    """Finds the reasons why events wait."""

    def __init__(self, core: Core, uncertainty: Uncertainty, acknowledging: Acknowledging) -> None:
        self._core, self._uncertainty, self._acknowledging = core, uncertainty, acknowledging

    def of(self, event: Event, since: float) -> list[WaitReason]:
        """Return the reasons why an attempt of an event waits; without any, the next attempt may arrive.

        Parameters
        ----------
        event : Event
        since : float
            Time of its publication, from which on receivers may be late.
        """
        core, found = self._core, dict[str, float]()
        for passed in self._acknowledging.waiting(event):
            for connection in sorted(one for one in passed.awaits if one.name):
                found[f"{self._called(connection)}, which has not acknowledged it"] = since
            if not passed.sure:
                found |= self._unsure(event, since)
        return [WaitReason(what, core.now - begun) for what, begun in found.items()]

    def _unsure(self, event: Event, since: float) -> dict[str, float]:
        """Return the reasons why receivers of an event may be unknown, each with the time it began."""
        core, uncertainty = self._core, self._uncertainty
        if not core.at.leads:
            return {} if core.at.designated else {f"a broker to stand for cluster {core.at.cluster}": since}
        lost = uncertainty.lost() if LOST in core.table.match(event.type, event.values) else {}
        found = {f"{self._called(one)}, whose connection was lost": at for one, at in sorted(lost.items())}
        for connection in sorted(uncertainty.unheard):
            found[f"{self._called(connection)}, which has not said yet what it wants"] = since
        if not core.is_whole(event.type):
            whole = core.at.root or core.at.parent in core.at.links
            place = f"the way to the rendezvous of {event.type}" if whole else "a cluster above this one"
            found[place] = since
        doubted = uncertainty.doubted()
        if doubted is not None:
            found[f"{core.name}, which has just come to stand for its cluster, or for the root"] = doubted
        return found

    def _called(self, connection: Connection) -> str:
        if connection.kind is not ConnectionKind.LINK:
            return f"broker {connection.name}"
        broker = self._core.at.links.get(connection.name, connection.name)
        return f"cluster {connection.name}" + (f" (broker {broker})" if broker != connection.name else "")
