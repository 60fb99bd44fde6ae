"""Routers and brokers that route events, too. Servers send events as deliveries of their logs instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.simulation.choosing import Choosing
from experiments.simulation.event_forwarding import Forwarding
from experiments.simulation.event_messages import Acknowledge, Event, EventId, LoadAnswer
from experiments.simulation.matching_table import MatchingTable
from rtfilter.events.schema import Schema
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.broker_machine import Broker, Out
from rtfilter.overlay.broker_names import (
    BrokerPlace,
    Connection,
    ConnectionKind,
    Send,
    SubscriptionId,
    client,
)
from rtfilter.overlay.membership import Membership
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Answer, RouterSubscriptions, Wave
from rtfilter.overlay.strategies import Strategy


class EventRouter(Router):
    """A router that routes events, too, and may choose the strategy by the load.

    With `grace`, clients also get a message when all receivers have an event. An acknowledged event has
    reached all subscriptions that were confirmed before it was published, if failures heal and messages
    arrive within that time. An event without an acknowledgement must be sent again, under its id and as
    another attempt.

    Parameters
    ----------
    name, incarnation, types, strategy, **others
        See `Router`.
    choose_every : float, optional
        Seconds between measurements, after each of which the root chooses the cheapest strategy.
    matchers : mapping of str to Factory, optional
        The matcher of each event type, which must take all subscriptions; see `EventFilter`. Brokers may have
        different ones. Covering uses an index of its own.
    """

    def __init__(
        self, name: str, incarnation: int, types: Mapping[str, Schema], strategy: str | Strategy = "hybrid",
        *, choose_every: float | None = None, matchers: Mapping[str, Factory] | None = None, **others: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, incarnation, types, strategy, **others)
        self._published, core = 0, self._core
        self.table: MatchingTable = MatchingTable(types, matchers)
        core.table = self.table
        choosing = self._switching = self._choosing = Choosing(core, self._spreading, choose_every)
        forwarding = self._forwarding = Forwarding(core, self.table, choosing)
        self._parts |= {
            Event: forwarding.take,
            Acknowledge: forwarding.acknowledging.hear,
            RouterSubscriptions: self._take_subscriptions,
            Wave: choosing.take,
            Answer: choosing.hear,
            LoadAnswer: choosing.hear,
        }

    def subscribe(self, *given: Any, **named: Any) -> tuple[SubscriptionId, list[Send]]:
        """See `Router.subscribe`."""
        made = super().subscribe(*given, **named)
        self._choosing.note(changes=1)
        return made

    def unsubscribe(self, id: SubscriptionId, now: float) -> list[Send]:
        """See `Router.unsubscribe`."""
        own = [one for one in self.table.connections(id) if one.kind is ConnectionKind.CLIENT]
        self._choosing.note(changes=len(own))
        return super().unsubscribe(id, now)

    def publish(
        self,
        client_name: str,
        type: str,
        event: Mapping[str, Any],
        now: float,
        id: EventId | None = None,
        attempt: int = 1,
    ) -> tuple[EventId, list[Send]]:
        """Publish an event of a client; return its id and the messages to send.

        Parameters
        ----------
        id : EventId, optional
            The id from the first attempt, at any broker, if the client sends an event again.
        attempt : int
            Number of attempts to send it, including this one.

        Raises
        ------
        ValueError, EventError
            The type is unknown, or the event cannot be read.
        """
        self.table.schema(type).read([event])
        core = self._core
        core.now = now
        if id is None:
            self._published += 1
            id = EventId(self.name, core.incarnation, self._published)
        sent = Event(id, type, dict(event), attempt, self.strategy.rises, core.epoch)
        self._forwarding.take(sent, client(client_name))
        return id, self._flush()

    def place(self, new: BrokerPlace, now: float) -> list[Send]:
        """See `Router.place`."""
        old = self.at
        sends = super().place(new, now)
        self._forwarding.certainty.moved(old)
        return sends

    def _doubt(self) -> None:
        super()._doubt()
        self._forwarding.certainty.doubt()

    def _take_subscriptions(self, message: RouterSubscriptions, source: Connection) -> None:
        if message.last:
            self._forwarding.certainty.unheard.discard(source)
        self._spreading.take_subscriptions(message, source)

    def tick(self, now: float) -> list[Send]:
        """See `Router.tick`; begin a due measurement."""
        sends = super().tick(now)
        self._choosing.tick()
        return sends + self._flush()

    @property
    def uncertain(self) -> int:
        """Number of subscriptions whose connection was lost."""
        return len(self._uncertainty)


class EventBroker(Broker):
    """A broker that routes events, too."""

    def __init__(self, router: EventRouter, membership: Membership) -> None:
        super().__init__(router, membership)
        self.router: EventRouter = router

    def publish(
        self, client: str, type: str, event: Mapping[str, Any], now: float, id: EventId, attempt: int = 1
    ) -> list[Out]:
        """See `EventRouter.publish`."""
        return self._routed(self.router.publish(client, type, event, now, id, attempt)[1], now)
