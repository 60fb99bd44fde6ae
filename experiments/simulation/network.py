"""Machines of brokers that exchange messages in simulated time.

Each broker is a queue and one server: it reads messages in the order of their arrival, and takes a fixed time
for each message that it sends. Then the message is on its way for the latency of the link. Messages from one
broker to another one never overtake each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol

import simpy

from experiments.simulation.topology import LAN, Topology
from rtfilter.overlay.broker_names import (
    BrokerMessage,
    BrokerPlace,
    Connection,
    ConnectionKind,
    Send,
    link,
    member,
)


class Machine(Protocol):
    """A pure state machine, of which a broker consists."""

    def receive(self, message: Any, source: Any, now: float) -> list[Send]:
        """Process a message, and return messages to send."""

    def tick(self, now: float) -> list[Send]:
        """Process the passage of time, and return messages to send."""


Work = Callable[[Any, float], Iterable[Send]]
"""The work of a broker, called with its state machine and the time."""


class SimulatedCosts(NamedTuple):
    """The durations of operations, in seconds.

    Attributes
    --------
    message : float
        Time that a broker needs for each message to another broker, or to its whole cluster.
    delivery : float
        Time that it needs for each message to a client.
    lan : float
        Latency of a message within a cluster.
    """

    message: float = 0.0
    delivery: float = 0.0
    lan: float = LAN


FREE = SimulatedCosts()


class Losses(NamedTuple):
    """The share of lost messages: of multicasts for each receiver separately, and of all others."""

    multicast: float = 0.0
    unicast: float = 0.0


NO_LOSSES = Losses()


class SimulatedDelivery(NamedTuple):
    """A message to a client.

    Attributes
    --------
    broker, client : str
    message : BrokerMessage
    at : float
        Seconds from the start.
    """

    broker: str
    client: str
    message: BrokerMessage
    at: float


class Parcel(NamedTuple):
    """The receivers of a message, each with its connection to the sender, and the line of the message.

    Attributes
    --------
    receivers : mapping of str to connection
        By the receiver's name.
    line : str
        The receiver's name, or the name of the own cluster.
    many : bool
        True if it is a multicast.
    """

    receivers: Mapping[str, Any]
    line: str
    many: bool = False


class Station:
    """A broker: its machine while it lives, and its queue."""

    def __init__(self, name: str, env: simpy.Environment) -> None:
        self.name = name
        self.incarnation = 0
        self.machine: Any = None
        self.inbox: simpy.Store = simpy.Store(env)
        self.running: list[simpy.Process] = []


class Network:
    """A simulated network.

    Parameters
    --------
    topology : Topology
    make : callable
        Makes the machine of a broker from its name and incarnation, which counts from 1.
    costs : SimulatedCosts
    losses : Losses
    interval : float, optional
        Seconds between the ticks of a broker. Without it there are no ticks, and `run` ends after the last
        message.
    jitter : float
        Longest random addition to a link's latency, in seconds.
    seed : int
        Seed of losses, jitter and the first ticks.

    Attributes
    --------
    env : simpy.Environment
        The simulated time.
    messages : Counter
        Number of sent messages, by kind, sender, and receiver or the own cluster. A multicast counts
        once.
    lost : Counter
        Number of lost messages, by kind.
    deliveries : list of SimulatedDelivery
    """

    def __init__(
        self, topology: Topology, make: Callable[[str, int], Machine], *, costs: SimulatedCosts = FREE,
        losses: Losses = NO_LOSSES, interval: float | None = None, jitter: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.topology = topology
        self.costs, self.losses, self.interval, self.jitter = costs, losses, interval, jitter
        self.env = simpy.Environment()
        self.messages: Counter[tuple[str, str, str]] = Counter()
        self.lost: Counter[str] = Counter()
        self.deliveries: list[SimulatedDelivery] = []
        self.hear: Callable[[SimulatedDelivery], None] = self.deliveries.append
        """The receiver of messages to clients; it may be replaced."""
        self._make = make
        self._rng = Random(seed)
        self._cut: Counter[frozenset[str]] = Counter()
        self._places: dict[str, BrokerPlace] = {}
        self._latest: dict[tuple[str, str], float] = {}
        self.stations = {name: Station(name, self.env) for name in self._names()}
        for station in self.stations.values():
            self._start(station)

    # -- for subclasses --------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return self.topology.brokers

    def _parcel(self, sender: Station, to: Any) -> Parcel:
        """Return the receivers of a router's message, by the router's place in the topology."""
        if sender.name not in self._places:
            self._places[sender.name] = self.topology.place(sender.name)
        return parcel(self._places[sender.name], to)

    def _take(self, message: BrokerMessage, source: Any, machine: Any, now: float) -> Iterable[Send]:
        """Process a message by a machine, and return its messages."""
        sends: Iterable[Send] = machine.receive(message, source, now)
        return sends

    # -- control ---------------------------------------------------------------------------------------------

    def machine(self, broker: str) -> Any:
        """Return the machine of a broker; None while it is crashed."""
        return self.stations[broker].machine

    def ask(self, at: float, broker: str, work: Work) -> None:
        """Make a client ask a broker for something at a moment; the request waits in the broker's queue."""
        self._later(at - self.env.now, lambda: self._put(self.stations[broker], work))

    def suffer(self, faults: Iterable[Fault]) -> None:
        """Run a schedule of faults."""
        for fault in faults:
            self._later(fault.at - self.env.now, partial(self._fail, fault))

    def _fail(self, fault: Fault) -> None:
        if fault.what is What.CUT:
            self.cut(fault.names)
        elif fault.what is What.HEAL:
            self.heal(fault.names)
        else:
            for broker in sorted(fault.names):
                (self.crash if fault.what is What.CRASH else self.restart)(broker)

    def crash(self, broker: str) -> None:
        """Stop a broker at once."""
        station = self.stations[broker]
        for process in station.running:
            process.interrupt()
        station.running, station.machine = [], None
        station.inbox = simpy.Store(self.env)

    def restart(self, broker: str) -> None:
        """Start a broker again, without state."""
        if self.stations[broker].machine is None:
            self._start(self.stations[broker])

    def cut(self, clusters: frozenset[str]) -> None:
        """Cut clusters off from all others. Clusters that are cut off twice must heal twice."""
        self._cut[clusters] += 1

    def heal(self, clusters: frozenset[str]) -> None:
        """End a cut."""
        self._cut[clusters] -= 1
        self._cut += Counter()  # without zeros

    def run(self, until: float | None = None) -> None:
        """Run the simulation until a moment, or without one until nothing happens any more."""
        self.env.run(until)

    def sent(self, *kinds: str) -> int:
        """Return the number of messages, of some kinds or of all, that brokers have sent to each other."""
        return sum(count for (kind, *_), count in self.messages.items() if not kinds or kind in kinds)

    # -- how it works ----------------------------------------------------------------------------------------

    def _start(self, station: Station) -> None:
        station.incarnation += 1
        station.machine = self._make(station.name, station.incarnation)
        station.running = [self.env.process(self._serve(station))]
        if self.interval is not None:
            station.running.append(self.env.process(self._tick(station, self.interval)))

    def _serve(self, station: Station) -> Generator[simpy.Event, Any, None]:
        try:
            while True:
                work: Work = yield station.inbox.get()
                for send in work(station.machine, self.env.now):
                    yield from self._send(station, send)
        except simpy.Interrupt:
            return

    def _tick(self, station: Station, interval: float) -> Generator[simpy.Event, Any, None]:
        try:
            yield self.env.timeout(self._rng.uniform(0, interval))
            while True:
                self._put(station, lambda machine, now: machine.tick(now))
                yield self.env.timeout(interval)
        except simpy.Interrupt:
            return

    def _send(self, station: Station, send: Send) -> Generator[simpy.Event, Any, None]:
        to, message = send
        if isinstance(to, Connection) and to.kind is ConnectionKind.CLIENT:
            if self.costs.delivery:
                yield self.env.timeout(self.costs.delivery)
            self.hear(SimulatedDelivery(station.name, to.name, message, self.env.now))
            return
        if self.costs.message:
            yield self.env.timeout(self.costs.message)
        receivers, line, many = self._parcel(station, to)
        kind = type(message).__name__
        self.messages[kind, station.name, line] += 1
        lost = self.losses.multicast if many else self.losses.unicast
        for receiver, source in receivers.items():
            if (lost and self._rng.random() < lost) or self._apart(station.name, receiver):
                self.lost[kind] += 1
            else:
                self._transmit(station.name, receiver, message, source, many)

    def _transmit(
        self, sender: str, receiver: str, message: BrokerMessage, source: Any, many: bool = False
    ) -> None:
        seconds = self.latency(sender, receiver)
        if self.jitter:  # later, but never before the previous one
            seconds += self._rng.uniform(0, self.jitter)
            latest = self._latest.get((sender, receiver), 0.0)
            seconds = max(seconds, latest - self.env.now)
            self._latest[sender, receiver] = self.env.now + seconds

        def arrive() -> None:
            if self.stations[receiver].machine is None or self._apart(sender, receiver):
                self.lost[type(message).__name__] += 1
            else:
                self._put(self.stations[receiver], partial(self._take, message, source))

        self._later(seconds, arrive)

    def latency(self, sender: str, receiver: str) -> float:
        """Return the seconds from one broker to another one."""
        one, other = self.cluster_of(sender), self.cluster_of(receiver)
        return self.costs.lan if one == other else self.topology.latencies[one, other]

    def cluster_of(self, name: str) -> str:
        """Return the cluster of a broker."""
        return self.topology.cluster_of[name]

    def _apart(self, sender: str, receiver: str) -> bool:
        if not self._cut:
            return False
        one, other = self.cluster_of(sender), self.cluster_of(receiver)
        return any((one in clusters) != (other in clusters) for clusters in self._cut)

    def _put(self, station: Station, work: Work) -> None:
        if station.machine is not None:
            station.inbox.put(work)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        timeout = self.env.timeout(seconds)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: act())


def parcel(place: BrokerPlace, to: Connection) -> Parcel:
    """Return the receivers of a message that a router at a place sends."""
    if to.kind is ConnectionKind.LINK:
        receiver = place.links[to.name]
        return Parcel({receiver: link(place.cluster)}, receiver)
    if to.kind is ConnectionKind.MEMBER:
        return Parcel({to.name: member(place.broker)}, to.name)
    others = sorted(place.members - {place.broker})
    return Parcel(dict.fromkeys(others, member(place.broker)), place.cluster, many=True)


class What(StrEnum):
    """The kinds of faults of a broker or of clusters."""

    CRASH = "crash"
    """A broker stops; its state, its queue and the messages on their way to it are lost."""
    RETURN = "return"
    """It starts again, as a higher incarnation without state."""
    CUT = "cut"
    """Clusters and all others no longer reach each other; messages between them are lost."""
    HEAL = "heal"
    """The same clusters and all others reach each other again."""


class Fault(NamedTuple):
    """A fault at a moment.

    Attributes
    ----------
    at : float
        Seconds from the start.
    what : What
    names : frozenset of str
        Names of brokers that crash or return, or of clusters of which a cut separates all others, or
        separated.
    """

    at: float
    what: What
    names: frozenset[str]


def drawn(
    rng: Random, topology: Topology, count: int, begin: float, end: float, longest: float, spare: int = 0
) -> list[Fault]:
    """Return a schedule of crashes and cuts that all end; the same seed gives the same one.

    Parameters
    ----------
    rng : random.Random
    topology : Topology
    count : int
        Number of faults; each broker crashes at most once, and each cluster is cut off at most once.
    begin, end : float
        Seconds from the start between which faults begin.
    longest : float
        Most seconds until a fault ends.
    spare : int
        Number of brokers of each cluster that never crash.

    Returns
    -------
    list of Fault
        In order of time.
    """
    brokers = [broker for own in topology.members.values() for broker in rng.sample(own, len(own))[spare:]]
    victims: list[tuple[What, What, str]] = [
        *((What.CRASH, What.RETURN, broker) for broker in brokers),
        *((What.CUT, What.HEAL, cluster) for cluster in topology.clusters),
    ]
    found = []
    for first, then, name in rng.sample(victims, min(count, len(victims))):
        at = rng.uniform(begin, end)
        found.append(Fault(at, first, frozenset({name})))
        found.append(Fault(at + rng.uniform(0, longest), then, frozenset({name})))
    return sorted(found, key=lambda fault: fault.at)
