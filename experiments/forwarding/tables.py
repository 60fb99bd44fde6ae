"""The routing table of a broker beside one that has an index for each connection.

A neighbour gets an event if a client behind it wants it, so a search among its subscriptions may stop at the
first hit. One index of all connections cannot stop there: it finds all that match, and then looks whose they
are. It is searched once, however.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Final

import numpy as np

from experiments.arguments import command, positive
from experiments.output import keep
from experiments.simulation.matching_table import MatchingTable
from experiments.timing import rounds
from rtfilter import EventFilter, Schema
from rtfilter.index import ready
from rtfilter.overlay.broker_names import Connection, SubscriptionId, link
from rtfilter.overlay.routing_messages import RouterSubscription
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table

TYPE: Final = "flight"
SCHEMA: Final = Schema({"x": float, "y": float})
EVENTS: Final = 200
COLUMNS: Final = {
    "connections": "connections",
    "subscriptions": "subscriptions",
    "share": "share that match",
    "one": "one index, µs",
    "each": "one for each, µs",
    "ratio": "each / one",
}
Event = Mapping[str, Any]


def boxes(count: int, share: float, rng: np.random.Generator) -> list[str]:
    """Return conditions over the unit square; an event anywhere in it matches about that share of them."""
    root = np.sqrt(share)
    side = root / (1 - root) if share < 1 else 1.0
    low = rng.uniform(-side, 1, (count, 2)) if share < 1 else np.zeros((count, 2))
    return [f"x BETWEEN {x} AND {x + side} AND y BETWEEN {y} AND {y + side}" for x, y in low.tolist()]


def made(conditions: Sequence[str], connections: int) -> tuple[MatchingTable, dict[Connection, EventFilter]]:
    """Return both tables; the subscriptions come from the connections in turn."""
    one = MatchingTable({TYPE: SCHEMA})
    parts: dict[Connection, list[str]] = {link(f"b{number}"): [] for number in range(connections)}
    for number, condition in enumerate(conditions):
        connection = link(f"b{number % connections}")
        one.add(RouterSubscription(SubscriptionId("b", 1, number), TYPE, condition), connection)
        parts[connection].append(condition)
    each = {connection: EventFilter(SCHEMA, max_unbounded=None) for connection in parts}
    for connection, own in each.items():
        own.subscribe_many(parts[connection])
    return one, each


def match_one(one: MatchingTable, events: Sequence[Event]) -> list[set[Connection]]:
    """Return the connections of each event, by the index of all."""
    return [set(one.match(TYPE, event)) for event in events]


def match_each(each: Mapping[Connection, EventFilter], events: Sequence[Event]) -> list[set[Connection]]:
    """Return the same, by an index for each connection that stops at its first hit."""
    found: list[set[Connection]] = []
    for event in events:
        read = SCHEMA.read(event)  # once for all
        found.append({connection for connection, own in each.items() if own.match_batch(read).any[0]})
    return found


def measure(connections: int, subscriptions: int, share: float, repeats: int, seed: int) -> Row:
    """Return a row of the result."""
    rng = np.random.default_rng(seed)
    ready.load()  # so that all are trees from the first
    one, each = made(boxes(subscriptions, share, rng), connections)
    events = [{"x": x, "y": y} for x, y in rng.uniform(0, 1, (EVENTS, 2)).tolist()]
    if match_one(one, events) != match_each(each, events):
        raise RuntimeError("the two tables answer differently")
    times = rounds(
        {"one": partial(match_one, one, events), "each": partial(match_each, each, events)}, repeats
    )
    middle = {name: median(seconds) / EVENTS * 1e6 for name, seconds in times.items()}
    ratio = median(b / a for a, b in zip(times["one"], times["each"], strict=True))
    return {
        "connections": connections,
        "subscriptions": subscriptions,
        "share": share,
        **middle,
        "ratio": ratio,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("tables", __doc__, "seed", "out")
    add = parser.add_argument
    add("--connections", type=positive, nargs="+", default=[2, 8, 32], help="(%(default)s)")
    add("--subscriptions", type=positive, default=10_000, help="of all (%(default)s)")
    share_help = "of the subscriptions that match an event (%(default)s)"
    add("--shares", type=float, nargs="+", default=[0.0001, 0.01, 0.1, 1.0], help=share_help)
    add("--repeats", type=positive, default=7, help="rounds (%(default)s)")
    given = parser.parse_args(arguments)
    rows = [
        measure(connections, given.subscriptions, share, given.repeats, given.seed)
        for connections in given.connections
        for share in given.shares
    ]
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    keep(given.out, "tables", settings, rows)
    print(machine.one_line() + "\n")
    print(table(rows, COLUMNS))
    return 0
