"""Whole brokers in simulated time: connections are made by the first message, and may be cut or lost."""

from collections import Counter
from heapq import heappop, heappush
from itertools import count

from experiments.simulation.event_router import EventBroker, EventRouter
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import Send
from rtfilter.overlay.membership import Contact, Membership, MembershipSettings, RendezvousPoint
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, Audience

TYPES = {"trade": Schema({"x": float})}
DELAY = 0.001


def cluster_of(name):
    """The cluster of a broker: "a2" is of "a"."""
    return name.rstrip("0123456789")


class Network:
    """Brokers, each of a cluster by its name, and a rendezvous point; `router` is more of each `EventRouter`.

    Attributes
    ----------
    told : list of (str, str, Message)
        What brokers have sent to clients: the broker, the client, and the message.
    lost : set of str
        Kinds of multicasts that nobody hears.
    cut : set of frozenset of str
        Pairs of brokers that do not reach each other.
    """

    def __init__(self, *names, strategy="hybrid", **router):
        self.now, self.strategy, self._router = 0.0, strategy, router
        self.point = RendezvousPoint()
        self.brokers, self.incarnations = {}, Counter()
        self.up, self.cut, self.lost = set(), set(), set()
        self.told, self.sent = [], Counter()
        self._queue, self._count = [], count()
        for name in names:
            self.start(name)

    def start(self, name):
        """Start a broker, or start it again."""
        self.incarnations[name] += 1
        incarnation = self.incarnations[name]
        membership = Membership(
            Contact(name, cluster_of(name), f"at {name}"),
            MembershipSettings(children=2),
            seed=len(self.brokers),
            incarnation=incarnation,
        )
        self.brokers[name] = EventBroker(
            EventRouter(name, incarnation, TYPES, self.strategy, **self._router), membership
        )

    def crash(self, name):
        """Let a broker be gone, and the others see that its connections are."""
        del self.brokers[name]
        for pair in [pair for pair in self.up if name in pair]:
            self.disconnect(*pair)

    def disconnect(self, one, other):
        """Lose a connection; what is on its way is lost."""
        pair = frozenset((one, other))
        self._queue = [item for item in self._queue if frozenset(item[2:4]) != pair or item[5]]
        self._queue.sort()
        self.up.discard(pair)
        for name, peer in ((one, other), (other, one)):
            if name in self.brokers:
                self.do(name, self.brokers[name].lost(peer, self.now))

    def separate(self, one, other):
        """Let two brokers not reach each other."""
        self.cut.add(frozenset((one, other)))
        self.disconnect(one, other)

    def run(self, seconds):
        """Let time pass."""
        end = self.now + seconds
        tick = self.now
        while self.now < end:
            if self._queue and self._queue[0][0] <= tick:
                self.now, _, source, to, message, multicast = heappop(self._queue)
                self._arrive(source, to, message, multicast)
            else:
                self.now = tick
                tick += 0.05
                for name, broker in list(self.brokers.items()):
                    self.do(name, broker.tick(self.now))

    def do(self, name, out):
        """Send what a broker wants sent."""
        for one in out:
            self.sent[type(one.message).__name__] += 1
            if isinstance(one, Send):
                self.told.append((name, one.to.name, one.message))
            elif one.to.audience is Audience.CLUSTER:
                for other in self.brokers:
                    if other != name and cluster_of(other) == cluster_of(name):
                        self._post(name, other, one.message, True)
            else:
                to = RENDEZVOUS_POINT if one.to.audience is Audience.RENDEZVOUS else one.to.name
                self._post(name, to, one.message, False)

    def _post(self, source, to, message, multicast):
        heappush(self._queue, (self.now + DELAY, next(self._count), source, to, message, multicast))

    def _arrive(self, source, to, message, multicast):
        pair = frozenset((source, to))
        if pair in self.cut or (multicast and type(message).__name__ in self.lost):
            return
        if to == RENDEZVOUS_POINT:
            self.do("", self.point.receive(message, source, self.now))
        elif to in self.brokers and (source in self.brokers or not source):
            if source and not multicast and pair not in self.up:
                self.up.add(pair)
                for name, peer in ((source, to), (to, source)):
                    self.do(name, self.brokers[name].linked(peer, self.now))
            self.do(to, self.brokers[to].receive(message, source, source and cluster_of(source), self.now))

    # -- clients -------------------------------------------------------------------------------------

    def subscribe(self, broker, client, condition):
        """Subscribe, and return the id."""
        id, out = self.brokers[broker].subscribe(client, "trade", condition, self.now)
        self.do(broker, out)
        return id

    def publish(self, broker, x, id):
        """Publish an event with a value."""
        self.do(broker, self.brokers[broker].publish("publisher", "trade", {"x": x}, self.now, id))

    def alerts(self):
        """Which clients were notified of which value, since this was asked last."""
        found = Counter(
            (client, message.values["x"]) for _, client, message in self.told if hasattr(message, "values")
        )
        self.told.clear()
        return found
