"""Near boxes sent to neighbours as one: fewer messages and entries, but events that no client wants.

Bittner (2004) suppresses covered profiles. In addition, a broker can send a neighbour one box around many
near ones, of which at most a share is empty, see `rtfilter.overlay.suppressing`. Here real routers say what
it saves and what it costs, for several such shares. All is counted, so each run finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from experiments.paper.runner import percent
from experiments.simulation.event_messages import EventId, Notify
from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Network
from experiments.simulation.topology import Topology, random_tree
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import Send, SubscriptionId
from rtfilter.replay.output import Row, table

TYPE = "reading"
TYPES = {TYPE: Schema({"x": float, "y": float})}
STRATEGIES = ("profile_forwarding", "hybrid")
SLACKS = (0.0, 0.1, 0.3, 0.6)
TOLD: Mapping[str, Mapping[str, Any]] = {
    "all": {"covering": False}, "covering": {"covering": True},
    **{f"slack {slack:g}": {"covering": True, "slack": slack} for slack in SLACKS},
}  # fmt: skip
"""The router options to compare: neighbours get anything from every subscription to few wide boxes."""
SIZES: dict[str, dict[str, int]] = {
    "ci": {"brokers": 6, "subscriptions": 40, "events": 100, "steps": 16},
    "medium": {"brokers": 8, "subscriptions": 100, "events": 200, "steps": 20},
    "full": {"brokers": 16, "subscriptions": 200, "events": 400, "steps": 30},
}
"""By profile. They are not among those of the experiment: what was kept without them can be continued."""
WIDEST = 4
"""Steps of the widest side of a box."""
AT_HOME = 0.5
"""Share of the boxes that are near the place of their broker; the others are anywhere."""
LEAVE = 4
"""The inverse of the share of subscriptions that leave in the end."""

Box = tuple[int, int, int, int]
"""Least and most x, then y, ends included."""


class Plane(NamedTuple):
    """Boxes and points on a square, at the brokers of a tree of clusters of one broker.

    Attributes
    ----------
    topology : Topology
    boxes : list of (str, Box)
        Brokers and the boxes they want. Ends are whole numbers, so that sides often meet.
    points : list of (str, float, float)
        Brokers and the events published there.
    """

    topology: Topology
    boxes: list[tuple[str, Box]]
    points: list[tuple[str, float, float]]

    def wanted(self, point: tuple[str, float, float]) -> set[str]:
        """Return the brokers at which an event is wanted."""
        _, x, y = point
        return {broker for broker, (a, b, c, d) in self.boxes if a <= x <= b and c <= y <= d}


def plane(brokers: int, subscriptions: int, events: int, steps: int, seed: int) -> Plane:
    """Draw boxes and points on a square of so many steps a side."""
    rng = Random(f"plane {seed}")
    topology = random_tree(rng, brokers)
    places = {broker: (steps * rng.random(), steps * rng.random()) for broker in topology.brokers}

    def side(place: float, near: bool) -> tuple[int, int]:
        width = rng.randint(1, WIDEST)
        low = round(rng.gauss(place, steps / 10)) if near else rng.randint(0, steps - width)
        low = min(max(low, 0), steps - width)
        return low, low + width

    boxes = []
    for _ in range(subscriptions):
        broker, near = rng.choice(topology.brokers), rng.random() < AT_HOME
        x, y = places[broker]
        boxes.append((broker, (*side(x, near), *side(y, near))))
    points = [
        (rng.choice(topology.brokers), steps * rng.random(), steps * rng.random()) for _ in range(events)
    ]
    return Plane(topology, boxes, points)


def counted(world: Plane, strategy: str, told: str) -> tuple[Row, set[tuple[str, int]]]:
    """Return the costs to subscribe, publish and leave, and the pairs of clients and events delivered."""
    topology = world.topology

    def made(name: str, incarnation: int) -> EventRouter:
        router = EventRouter(name, incarnation, TYPES, strategy, **TOLD[told])
        router.place(topology.place(name), 0.0)
        return router

    network = Network(topology, made)
    ids: dict[int, SubscriptionId] = {}
    for number, (broker, box) in enumerate(world.boxes):
        network.ask(float(number), broker, partial(_subscribe, ids, number, box))
    network.run()
    row: Row = {
        "strategy": strategy, "told": told, "network": len(topology.brokers),
        "subscriptions": len(world.boxes), "published": len(world.points),
        "entries": sum(len(network.machine(broker).table) for broker in topology.brokers),
        "subscribing": network.sent(),
    }  # fmt: skip
    sent = in_vain = 0
    for number, point in enumerate(world.points):
        network.messages.clear()
        network.ask(network.env.now, point[0], partial(_publish, number, point))
        network.run()
        sent += network.sent()
        in_vain += _in_vain(network, strategy, world.wanted(point))
    network.messages.clear()
    got = {
        (each.client, each.message.id.number)
        for each in network.deliveries if isinstance(each.message, Notify)
    }  # fmt: skip
    for number, (broker, _) in list(enumerate(world.boxes))[::LEAVE]:
        network.ask(network.env.now, broker, partial(_unsubscribe, ids, number))
        network.run()
    row |= {"leaving": network.sent(), "events": sent, "in vain": in_vain, "receipts": len(got)}
    return row, got


def _in_vain(network: Network, strategy: str, wanted: set[str]) -> int:
    """Return the messages of one event over links behind which no client wants it.

    By hybrid routing an event goes up to the root in any case, so messages to the parent are not counted.
    """
    topology, found = network.topology, 0
    for (_, sender, receiver), count in network.messages.items():
        here, there = topology.cluster_of[sender], topology.cluster_of[receiver]
        up = strategy == "hybrid" and topology.parents.get(here) == there
        beyond = any(topology.path(here, topology.cluster_of[broker])[1:2] == [there] for broker in wanted)
        found += 0 if up or beyond else count
    return found


def _subscribe(
    ids: dict[int, SubscriptionId], number: int, box: Box, router: EventRouter, now: float
) -> list[Send]:
    left, right, low, high = box
    condition = f"x BETWEEN {left} AND {right} AND y BETWEEN {low} AND {high}"
    ids[number], sends = router.subscribe(f"c{number}", TYPE, condition, now)
    return sends


def _unsubscribe(ids: dict[int, SubscriptionId], number: int, router: EventRouter, now: float) -> list[Send]:
    return router.unsubscribe(ids[number], now)


def _publish(number: int, point: tuple[str, float, float], router: EventRouter, now: float) -> list[Send]:
    _, x, y = point
    return router.publish("writer", TYPE, {"x": x, "y": y}, now, EventId("writer", 1, number))[1]


def measured(profile: str, seed: int) -> Iterator[Row]:
    """Yield a row for each strategy, and for each way to send boxes to neighbours."""
    world = plane(**SIZES[profile], seed=seed)
    for strategy in STRATEGIES:
        for told in TOLD:
            yield counted(world, strategy, told)[0]


# -- what is read from the rows ------------------------------------------------------------------------------


def in_vain(row: Row) -> float:
    """Return the share of an event's messages that no client wants."""
    return float(row["in vain"]) / float(row["events"] or 1)


def text(rows: Sequence[Row]) -> str:
    """Return entries and messages by way to send boxes; nothing without rows."""
    if not rows:
        return ""
    columns = ("entries", "subscribing", "leaving", "events", "receipts")
    lines = [
        {"strategy": row["strategy"].replace("_", " "), "told": row["told"],
         "in vain": percent(in_vain(row), 1), **{name: f"{row[name]:,}" for name in columns}}
        for row in rows
    ]  # fmt: skip
    counts = f"{rows[0]['network']} brokers, {rows[0]['subscriptions']} boxes, {rows[0]['published']} events"
    notes = (
        f"{counts}. Neighbours are told all subscriptions, or with covering those that\n"
        "no other one covers; with slack, also boxes of which at most that share is empty. Entries: of all\n"
        "tables. Subscribing, leaving, events: messages between brokers, leaving those of one in\n"
        f"{LEAVE} subscriptions. In vain: messages of events over links beyond which nobody wants them."
    )
    shown = ("strategy", "told", "entries", "subscribing", "leaving", "events", "in vain", "receipts")
    return f"{table(lines, {name: name for name in shown})}\n\n{notes}"


def draw(rows: Sequence[Row], panels: Sequence[Axes]) -> None:
    """Draw entries, messages, and entries against accuracy, each in a panel."""
    entries, messages, accuracy = panels
    for strategy, colour in zip(STRATEGIES, ("C0", "C3"), strict=True):
        own = [row for row in rows if row["strategy"] == strategy]
        names = [row["told"].removeprefix("slack ") for row in own]
        sizes, shares = [row["entries"] for row in own], [100 * in_vain(row) for row in own]
        look: dict[str, Any] = {"color": colour, "markersize": 4}
        word = strategy.replace("_", " ")
        entries.plot(names, sizes, "o-", label=word, **look)
        messages.plot(names, [row["subscribing"] for row in own], "o-", label=f"{word}: subscribing", **look)
        messages.plot(names, [row["events"] for row in own], "s--", label=f"{word}: events", **look)
        accuracy.plot(shares, sizes, "o-", label=word, **look)
    entries.set(title="what neighbours are told", xlabel="all, covering, or slack", ylabel="entries")
    messages.set(title="what neighbours are told", xlabel="all, covering, or slack", ylabel="messages")
    accuracy.set(title="tables and accuracy", xlabel="event messages in vain, %", ylabel="entries")
    for axes in panels:
        axes.set_yscale("log")
        axes.legend(fontsize=6, loc="upper right")
    messages.set_ylim(top=10 * messages.get_ylim()[1])  # room for the legend
    for axes in (entries, messages):
        axes.tick_params(axis="x", labelsize=7)
