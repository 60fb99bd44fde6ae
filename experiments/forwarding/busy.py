"""Busy time of real brokers for each event, by each way of forwarding.

All brokers of a world run in one process, one message after the other. Each is a whole `EventBroker`
that filters by filter nodes; only its place in the tree is fixed, and messages go as bytes from queue to
queue, without sockets. A broker is busy while it reads a message, works on it, and writes messages to other
brokers. Deliveries are not written: they are the same for all ways of forwarding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import process_time
from typing import Any, Final, NamedTuple

import numpy as np

from experiments.forwarding.identities import EVENT, PROFILE, RENDEZVOUS, STRATEGIES, Tree, nodes
from experiments.forwarding.worlds import Floats, World
from experiments.simulation.event_messages import EventId, codec
from experiments.simulation.event_router import EventBroker, EventRouter
from experiments.simulation.topology import Topology
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_machine import Out
from rtfilter.overlay.codec import encoded
from rtfilter.overlay.membership import Contact, Membership
from rtfilter.overlay.membership.contacts import Dispatch
from rtfilter.overlay.strategies import Rendezvous
from rtfilter.replay.output import Row, table

MATCHER: Final = "filter-nodes"
CELLS: Final = ("busy", "filtering", "handled", "sent", "told")
"""The measurements of each broker, by strategy."""


class Fixed(Membership):
    """The membership of a broker whose place never changes."""

    def __init__(self, topology: Topology, name: str) -> None:
        super().__init__(Contact(name, topology.cluster_of[name]))
        self.place = topology.place(name)
        self._linked = {broker: Contact(broker, cluster) for cluster, broker in self.place.links.items()}

    @property
    def contacts(self) -> dict[str, Contact]:
        """The brokers that it is linked to."""
        return self._linked

    def tick(self, now: float) -> list[Dispatch]:
        """Return no messages."""
        del now
        return []


class Brokers:
    """The brokers of a world that holds its profiles, and what each of them has done so far.

    Parameters
    ----------
    world : World
        With clusters of one broker.
    strategy : str
        One of `STRATEGIES`.

    Attributes
    ----------
    busy, filtering : (brokers,) float array
        Seconds of each broker since `publish` was asked first, and the part of them in its table.
    handled, sent, told : (brokers,) float array
        Events that it took, that it sent to other brokers, and that it had for its client.
    """

    def __init__(self, world: World, strategy: str) -> None:
        self.world, self.names = world, world.topology.brokers
        self._order = {name: at for at, name in enumerate(self.names)}
        self._types = {f"t{kind}": _schema(world) for kind in range(world.number)}
        self._codec = codec()
        self._published = 0
        self.reset()
        where = nodes(Tree(world.parents), world.number)
        at = {kind: world.topology.clusters[node] for kind, node in zip(self._types, where, strict=True)}
        self._brokers = [self._made(name, strategy, at) for name in self.names]
        for place, (name, broker) in enumerate(zip(self.names, self._brokers, strict=True)):
            self._settle(place, partial(broker.tick, 0.0))  # so that it knows its place
            for other in world.topology.place(name).links.values():
                self._settle(place, partial(broker.linked, other, 0.0))
        sizes = (world.high - world.low).sum(axis=1)
        for number in np.argsort(-sizes, kind="stable").tolist():  # covering profiles come first
            self._settle(int(world.home[number]), partial(self._subscribe, number))
        self.reset()

    def _subscribe(self, number: int) -> Sequence[Out]:
        home, kind = int(self.world.home[number]), f"t{self.world.wanted[number]}"
        return self._brokers[home].subscribe(f"c{home}", kind, _condition(self.world, number), 0.0)[1]

    def _made(self, name: str, strategy: str, at: Mapping[str, str]) -> EventBroker:
        way = Rendezvous(at) if strategy == RENDEZVOUS else f"{strategy}_forwarding"
        router = EventRouter(
            name, 1, self._types, way, covering=True, matchers=dict.fromkeys(self._types, MATCHER)
        )
        router.table.match = self._timed(self._order[name], router.table.match)  # type: ignore[method-assign]
        return EventBroker(router, Fixed(self.world.topology, name))

    def _timed(self, at: int, match: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            begin = process_time()
            found = match(*given)
            self.filtering[at] += self._weight * (process_time() - begin)
            return found

        return timed

    def reset(self) -> None:
        """Set all counts to 0."""
        self.busy, self.filtering, self.handled, self.sent, self.told = np.zeros((5, len(self.names)))
        self._weight = 1.0

    def publish(self) -> None:
        """Publish each event of the world once; what is done for it counts as often as the event is."""
        world = self.world
        for number, (at, kind) in enumerate(zip(world.at.tolist(), world.types.tolist(), strict=True)):
            name = f"t{kind}"
            given = zip(self._types[name].names, world.values[number].tolist(), strict=False)
            event = dict.fromkeys(self._types[name].names, 0.0) | dict(given)
            self._published += 1
            id = EventId("writer", 1, self._published)
            self._weight = float(world.weights[number])
            self._settle(at, partial(self._brokers[at].publish, "writer", name, event, 0.0, id))

    def _settle(self, at: int, work: Callable[[], Sequence[Out]]) -> None:
        """Run the work of a broker, and then of all receivers of its messages."""
        waiting = deque([(at, work)])
        while waiting:
            at, work = waiting.popleft()
            begin = process_time()
            sends = work()
            letters = [
                (self._order[one.to.name], encoded(one.message)) for one in sends if isinstance(one, Dispatch)
            ]
            self.busy[at] += self._weight * (process_time() - begin)
            self.told[at] += self._weight * (len(sends) - len(letters))
            self.handled[at] += self._weight
            self.sent[at] += self._weight * len(letters)
            waiting.extend((to, partial(self._read, at, to, data)) for to, data in letters)

    def _read(self, sender: int, receiver: int, data: bytes) -> Sequence[Out]:
        name = self.names[sender]
        cluster = self.world.topology.cluster_of[name]
        return self._brokers[receiver].receive(self._codec.decoded(data), name, cluster, 0.0)


def _schema(world: World) -> Schema:
    return Schema({f"v{at}": float for at in range(world.attributes)})


def _condition(world: World, number: int) -> str:
    """Return the condition of a profile as SQL; its constraints on attributes not drawn always hold."""
    ends = zip(world.low[number].tolist(), world.high[number].tolist(), strict=True)
    drawn = [f"v{at} >= {low!r} AND v{at} <= {high!r}" for at, (low, high) in enumerate(ends)]
    return " AND ".join([*drawn, *(f"v{at} >= 0" for at in range(len(drawn), world.attributes))])


def measured(worlds: Sequence[World], repeats: int) -> list[Row]:
    """Return microseconds for which each broker is busy for an event, and what it did: lists by `STRATEGIES`.

    Worlds and ways of forwarding take turns, after a turn that is not timed. Times are medians of the turns.
    """
    made = [[Brokers(world, strategy) for strategy in STRATEGIES] for world in worlds]
    turns: list[list[list[Floats]]] = [[[] for _ in own] for own in made]
    for turn in range(repeats + 1):
        for place, own in enumerate(made):
            for way, brokers in enumerate(own):
                brokers.reset()
                brokers.publish()
                if turn:
                    turns[place][way].append(1e6 * np.array([brokers.busy, brokers.filtering]))
    rows = []
    for world, own, times in zip(worlds, made, turns, strict=True):
        busy, filtering = np.median(times, axis=1).swapaxes(0, 1).tolist()
        rows.append(
            {
                "busy": busy,
                "filtering": filtering,
                "handled": [brokers.handled.tolist() for brokers in own],
                "sent": [brokers.sent.tolist() for brokers in own],
                "told": [brokers.told.tolist() for brokers in own],
                "published": np.bincount(world.at, world.weights, world.brokers).tolist(),
            }
        )
    return rows


class Costs(NamedTuple):
    """The costs of brokers besides filtering, in microseconds.

    Attributes
    ----------
    profile, event : float
        To take an event, by profile forwarding and by event forwarding.
    publish : float
        More than that for an event of a client, which is checked.
    send, tell : float
        To send an event to another broker, and to find the deliveries to a client.
    """

    profile: float
    event: float
    publish: float
    send: float
    tell: float

    @property
    def factor(self) -> float:
        """The time to take an event by event forwarding, as a multiple of that by profile forwarding."""
        return self.event / self.profile


def fitted(rows: Sequence[Row]) -> Costs:
    """Return the costs that explain the busy times of all brokers best, by least squares."""
    lines, times = [], []
    for row in rows:
        for strategy in (PROFILE, EVENT):
            cells = [row[name][STRATEGIES.index(strategy)] for name in CELLS]
            for published, (busy, filtering, handled, *others) in zip(
                row["published"], zip(*cells, strict=True), strict=True
            ):
                lines.append(
                    [handled * (strategy == PROFILE), handled * (strategy == EVENT), published, *others]
                )
                times.append(busy - filtering)
    found, *_ = np.linalg.lstsq(np.array(lines), np.array(times), rcond=None)
    return Costs(*found.tolist())


def spread(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the least and the most that the factor is if one of the worlds is left out."""
    found = [fitted([other for other in rows if other is not row]).factor for row in rows]
    return min(found), max(found)


def text(rows: Sequence[Row]) -> str:
    """Return busy times of each world, and what brokers need beside filtering."""
    lines: list[Row] = []
    for row in rows:
        line = {name: str(row[name]) for name in ("brokers", "profiles", "matching")}
        for name, own in zip(STRATEGIES, row["busy"], strict=True):
            line |= {f"most {name}": f"{max(own):.1f}", f"all {name}": f"{sum(own):,.0f}"}
        lines.append(line)
    short = dict(zip(STRATEGIES, ("PW", "EW", "RK"), strict=True))
    columns = {"brokers": "us busy an event: brokers", "profiles": "profiles", "matching": "matching"}
    columns |= {f"most {name}": f"busiest {code}" for name, code in short.items()}
    columns |= {f"all {name}": f"all {code}" for name, code in short.items()}
    costs, (least, most) = fitted(rows), spread(rows)
    notes = (
        "Real brokers of one process, filter nodes in Python: CPU time of the busiest one, and of all.\n"
        f"To take an event needs {costs.profile:.0f} us by profile forwarding, {costs.event:.0f} us by event "
        f"forwarding, without filtering.\nSo the factor is {costs.factor:.2f}, {least:.2f} to {most:.2f} if "
        f"any world is left out. An event of a client needs {costs.publish:.0f} us more,\n"
        f"sending to a broker {costs.send:.0f} us, finding out what a client is told {costs.tell:.0f} us."
    )
    return f"{table(lines, columns)}\n\n{notes}"
