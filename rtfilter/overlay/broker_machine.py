"""A broker: routing and membership together, still without sockets or a clock.

Messages of routing to a cluster go to its present designated broker, and membership numbers the multicasts,
so that they arrive completely. Routing knows a link only while there is a connection to that broker: messages
on their way are lost when a connection ends, so the link is a new one afterwards, and both ends send each
other all their subscriptions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rtfilter.basics.errors import RTFilterError
from rtfilter.overlay.broker_names import (
    BrokerMessage,
    BrokerPlace,
    Connection,
    ConnectionKind,
    Send,
    SubscriptionId,
    link,
    member,
)
from rtfilter.overlay.membership import Contact, Membership
from rtfilter.overlay.membership.contacts import Audience, Dispatch, MembershipMessage, to_broker
from rtfilter.overlay.membership.multicast import Missed
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import RoutingMessage

Out = Dispatch | Send
"""An outgoing message: to brokers, the cluster or the rendezvous point, or, as a `Send`, to a client."""
_log = logging.getLogger(__name__)


class Broker:
    """The broker: its router and its membership in the network.

    Attributes
    ----------
    place : BrokerPlace
        The place as routing knows it: without brokers that have no connection.
    """

    def __init__(self, router: Router, membership: Membership) -> None:
        self.router, self.membership = router, membership
        self._up: set[str] = set()
        self.place = router.at

    # -- clients -------------------------------------------------------------------------------------

    def subscribe(
        self, client: str, type: str, condition: str, now: float, id: SubscriptionId | None = None
    ) -> tuple[SubscriptionId, list[Out]]:
        """See `Router.subscribe`."""
        id, sends = self.router.subscribe(client, type, condition, now, id)
        return id, self._routed(sends, now)

    def unsubscribe(self, id: SubscriptionId, now: float) -> list[Out]:
        """See `Router.unsubscribe`."""
        return self._routed(self.router.unsubscribe(id, now), now)

    def switch(self, strategy: str, now: float) -> list[Out]:
        """See `Router.switch`."""
        return self._routed(self.router.switch(strategy, now), now)

    # -- brokers -------------------------------------------------------------------------------------

    def linked(self, broker: str, now: float) -> list[Out]:
        """Note that there is a connection to a broker, and return the messages that follow."""
        self._up.add(broker)
        return self._moved(now)

    def lost(self, broker: str, now: float) -> list[Out]:
        """Note that the connection to a broker has ended, and return the messages that follow."""
        self._up.discard(broker)
        return self._moved(now)

    def receive(self, message: BrokerMessage, broker: str, cluster: str, now: float) -> list[Out]:
        """Process a message of a broker of a cluster; for the rendezvous point, both names are empty.

        Raises `ValueError` for a message that brokers do not send each other.
        """
        if isinstance(message, MembershipMessage):
            return self._taken(self.membership.receive(message, broker, now), now)
        if not isinstance(message, RoutingMessage):
            raise ValueError(f"brokers do not send each other {type(message).__name__}")
        source = self._source(broker, cluster)
        return [] if source is None else self._routed(self.router.receive(message, source, now), now)

    def tick(self, now: float) -> list[Out]:
        """Run the ticks of membership and routing."""
        out = self._taken(self.membership.tick(now), now)
        return out + self._routed(self.router.tick(now), now)

    # ------------------------------------------------------------------------------------------------

    def _source(self, broker: str, cluster: str) -> Connection | None:
        """Return the connection of a broker for routing; None if it does not stand for its cluster."""
        if cluster == self.place.cluster:
            return member(broker)
        return link(cluster) if self.place.links.get(cluster) == broker else None

    def _taken(self, dispatches: Sequence[Dispatch], now: float) -> list[Out]:
        """Pass on the messages of membership, then give routing the new place, if it has changed."""
        out: list[Out] = []
        for one in dispatches:
            if isinstance(one.message, Missed):
                out += self._missed(one.message.sender, now)
            elif one.to.audience is Audience.ROUTER:
                out += self._multicast(one.message, one.to.name, now)
            else:
                out.append(one)
        return out + self._moved(now)

    def _multicast(self, message: BrokerMessage, broker: str, now: float) -> list[Out]:
        """Pass on a multicast of a member, or drop it if the router refuses it: others wait behind it."""
        try:
            return self._routed(self.router.receive(message, member(broker), now), now)
        except (RTFilterError, TypeError, ValueError) as error:
            _log.warning("a multicast of %s is dropped: %s", broker, error)
            return []

    def _missed(self, broker: str, now: float) -> list[Out]:
        """Treat lost multicasts of a member like a lost connection to it."""
        return self.lost(broker, now) + self.linked(broker, now) if broker in self._up else []

    def _moved(self, now: float) -> list[Out]:
        place = self._reached(self.membership.place)
        if place == self.place:
            return []
        self.place = place
        return self._routed(self.router.place(place, now), now)

    def _reached(self, place: BrokerPlace) -> BrokerPlace:
        """Return a place without brokers that have no connection."""
        if not place.leads:
            return place if place.designated in self._up else place._replace(designated="")
        links = {cluster: broker for cluster, broker in place.links.items() if broker in self._up}
        return place._replace(
            members=place.members & (self._up | {place.broker}),
            links=links,
            parent=place.parent if place.parent in links else "",
        )

    def _routed(self, sends: Iterable[Send], now: float) -> list[Out]:
        """Return the messages of routing with the brokers that receive them."""
        out: list[Out] = []
        contacts = self.membership.contacts
        for one in sends:
            match one.to.kind:
                case ConnectionKind.CLIENT:
                    out.append(one)
                case ConnectionKind.CLUSTER:
                    out += self.membership.multicast(one.message, now)
                case ConnectionKind.LINK:
                    out += _to(contacts.get(self.place.links.get(one.to.name, "")), one.message)
                case ConnectionKind.MEMBER:
                    out += _to(contacts.get(one.to.name), one.message)
        return out


def _to(contact: Contact | None, message: BrokerMessage) -> list[Dispatch]:
    return [] if contact is None else [Dispatch(to_broker(contact), message)]
