"""A day in which the load changes: the strategy that a network chooses itself, compared with each fixed one.

Real routers on a tree of brokers, message by message: at night few events match, in the morning subscriptions
come and go, by day most events are for all. Bittner (2004) advises to have several strategies and to choose
by load, and does not try it. A network chooses by a cost, see `experiments.simulation.choosing`: messages,
and a quarter of one for each time that an event is matched against subscriptions of others. The text has
both, and what the day costs if a match is worth half or twice as much as the network thinks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from statistics import mean
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.paper import confidence, verdicts
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.times import interval
from experiments.paper.verdicts import Claim, Finding
from experiments.simulation.choosing import MATCH
from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Network
from experiments.simulation.topology import random_tree
from rtfilter.basics.text import plain
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import Send, SubscriptionId
from rtfilter.replay.output import Row, table

TYPES = {"news": Schema({"topic": int})}
FIXED = ("profile_forwarding", "event_forwarding", "rendezvous", "hybrid")
CHOSEN = "chosen"
HOUR = 60.0
"""Seconds of simulated time that stand for an hour."""
EVERY = 30.0
"""Seconds between two measurements of a network that chooses."""
TOPICS = 200
"""Besides topic 0, which a client at each broker wants."""
OWN = 5
"""Topics that are wanted at each broker all day."""


class Hour(NamedTuple):
    """The load of an hour.

    Attributes
    ----------
    events : int
    popular : float
        Share of the events that are on topic 0. The others are on any topic.
    changes : int
        Subscriptions that come, and go within the hour.
    """

    events: int
    popular: float
    changes: int


DAY = (
    *[Hour(100, 0.02, 5)] * 6,
    *[Hour(150, 0.3, 300)] * 3,
    *[Hour(300, 0.95, 20)] * 8,
    *[Hour(200, 0.4, 60)] * 5,
    *[Hour(100, 0.02, 5)] * 2,
)
"""From midnight to midnight."""


def played(strategy: str, clusters: int, share: float, seed: int) -> Iterator[Row]:
    """Yield a row for each hour: messages between brokers by what they are for, and what clients got.

    Parameters
    ----------
    strategy : str
        One of `FIXED`, or `CHOSEN`.
    clusters : int
    share : float
        Part of the events and changes of `DAY` that happen.
    seed : int
        Of all that is drawn: the same day for all strategies.
    """
    rng = Random(f"day {seed}")
    topology = random_tree(rng, clusters)
    own = {"strategy": FIXED[0], "choose_every": EVERY} if strategy == CHOSEN else {"strategy": strategy}

    def made(name: str, incarnation: int) -> EventRouter:
        return EventRouter(name, incarnation, TYPES, **own)

    network = Network(topology, made, interval=1.0, seed=seed)
    for broker in topology.brokers:
        network.ask(0.0, broker, partial(_place, network))
        for topic in (0, *(rng.randint(1, TOPICS) for _ in range(OWN))):
            network.ask(1.0, broker, partial(_subscribe, {}, 0, topic))
    network.run(HOUR)
    network.messages.clear()
    root = topology.members[topology.root][0]
    before: Counter[str] = Counter()
    got = 0
    for number, hour in enumerate(DAY):
        begin = HOUR * (number + 1)
        _plan(network, rng, hour, begin, share)
        network.run(begin + HOUR)
        now: Counter[str] = Counter()
        for (kind, _, _), count in network.messages.items():
            now[kind] += count
        sent = now - before
        row: Row = {
            "day": strategy,
            "hour": number,
            "events": sent["Event"],
            "choosing": sent["Wave"] + sent["LoadAnswer"],
            "subscriptions": sent.total() - sent["Event"] - sent["Wave"] - sent["LoadAnswer"],
            "receipts": len(network.deliveries) - got,
            "in use": network.machine(root).strategy.name,
        }
        matched = 0 if row["in use"] == "event_forwarding" else sent["Event"] + int(share * hour.events)
        yield row | {"matched": matched}
        before, got = now, len(network.deliveries)


def _plan(network: Network, rng: Random, hour: Hour, begin: float, share: float) -> None:
    brokers = network.topology.brokers
    for _ in range(int(share * hour.events)):
        topic = 0 if rng.random() < hour.popular else rng.randint(1, TOPICS)
        network.ask(begin + HOUR * rng.random(), rng.choice(brokers), partial(_publish, topic))
    ids: dict[int, SubscriptionId] = {}
    for key in range(int(share * hour.changes)):
        at, broker = begin + HOUR / 2 * rng.random(), rng.choice(brokers)
        network.ask(at, broker, partial(_subscribe, ids, key, rng.randint(1, TOPICS)))
        network.ask(at + HOUR / 2 * rng.random(), broker, partial(_unsubscribe, ids, key))


def _place(network: Network, router: EventRouter, now: float) -> list[Send]:
    return router.place(network.topology.place(router.name), now)


def _subscribe(
    ids: dict[int, SubscriptionId], key: int, topic: int, router: EventRouter, now: float
) -> list[Send]:  # fmt: skip
    ids[key], sends = router.subscribe("reader", "news", f"topic = {topic}", now)
    return sends


def _unsubscribe(ids: dict[int, SubscriptionId], key: int, router: EventRouter, now: float) -> list[Send]:
    return router.unsubscribe(ids[key], now)


def _publish(topic: int, router: EventRouter, now: float) -> list[Send]:
    return router.publish("writer", "news", {"topic": topic}, now)[1]


# -- what is read from the rows ------------------------------------------------------------------------------

SIZES: dict[str, dict[str, Any]] = {
    "ci": {"clusters": 8, "share": 0.25, "days": 2}, "medium": {"clusters": 16, "share": 1.0, "days": 3},
    "full": {"clusters": 16, "share": 4.0, "days": 10},
}  # fmt: skip
SETTINGS = {"own": Setting("own", "random trees of brokers, 24 hours")}
NAMES = (*FIXED, CHOSEN)
PRICES = {"cost": MATCH, "messages": 0.0, "cost at half of that for a match": MATCH / 2,
          "cost at twice of that": MATCH * 2}  # fmt: skip
"""Messages that a match stands for. The network itself chooses by the first one."""


def measure(run: Run) -> None:
    """Play days with each strategy, each on a tree and with events of its own."""
    days = {f"day {number}": 1.0 for number in range(1, run.sizes["days"] + 1)}
    for piece in run.pieces(days):
        seed = 1000 * run.seed + int(piece.removeprefix("day "))
        rows: list[Row] = []
        for name in NAMES:
            rows += played(name, run.sizes["clusters"], run.sizes["share"], seed)
            run.advance(1 / len(NAMES))
        run.keep(piece, rows)


def days(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each day."""
    return [
        [row for row in rows if row["piece"] == piece] for piece in dict.fromkeys(r["piece"] for r in rows)
    ]


def total(rows: Sequence[Row], strategy: str, *cells: str) -> float:
    """Return the sum of some cells of a strategy."""
    return float(sum(row[cell] for row in rows if row["day"] == strategy for cell in cells))


def cost(rows: Sequence[Row], strategy: str, price: float = MATCH) -> float:
    """Return all messages between brokers, and matches at a price in messages."""
    return total(rows, strategy, "events", "subscriptions", "choosing") + price * total(
        rows, strategy, "matched"
    )


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's advice, with what was found by cost and by messages alone."""
    found = []
    for name, price in PRICES.items():
        costs = [{each: cost(day, each, price) for each in NAMES} for day in days(rows)]
        best = Counter(min(FIXED, key=own.__getitem__) for own in costs)
        ratio = confidence.mean([own[CHOSEN] / min(own[each] for each in FIXED) for own in costs], 0)
        others = {each: mean(own[CHOSEN] / own[each] for own in costs) for each in FIXED}
        told = (
            f"{interval(ratio)} of the best fixed one ({', '.join(_words(each) for each in best)}); of "
            + ", ".join(f"{_words(each)} {percent(share)}" for each, share in others.items())
        )
        verdict = verdicts.HOLDS if ratio.high < 1 else verdicts.FAILS if ratio.low >= 1 else verdicts.PARTLY
        found.append(
            Claim(f"a network that chooses has less {name} in a day than with any fixed strategy",
                  "several strategies, selected by load", Finding(told, verdict), verdicts.NOT_TIMED)
        )  # fmt: skip
    return found


def _words(strategy: str) -> str:
    return strategy.replace("_", " ")


def text(rows: Sequence[Row]) -> str:
    """Return messages of a day, by what they are for, and what was in use when on the first one."""
    first, *others = days(rows)
    count = 1 + len(others)
    lines = []
    for name in NAMES:
        line: Row = {"strategy": _words(name), "cost": cost(rows, name), "messages": cost(rows, name, 0.0)}
        line |= {
            cell: total(rows, name, cell) for cell in ("events", "subscriptions", "choosing", "receipts")
        }
        lines.append(
            {key: value if key == "strategy" else plain(value / count, 6, ",") for key, value in line.items()}
        )
    chosen = [row for row in first if row["day"] == CHOSEN]
    parts = [table(lines, {name: name for name in lines[0]})]
    before = [None, *(row["in use"] for row in chosen)]
    changes = [
        f"{row['hour']}:00 {_words(row['in use'])}"
        for row, old in zip(chosen, before, strict=False) if row["in use"] != old
    ]  # fmt: skip
    notes = (
        f"Means of {count} days. Cost: messages, and {MATCH} for each match against subscriptions of\n"
        "others. Receipts may differ by events that are under way while a subscription comes or goes.\n"
        f"Chosen on the first day, at the end of the hour from:\n{'; '.join(changes)}."
    )
    return "\n\n".join([*parts, notes])


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the mean cost of each hour by strategy."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    hours = range(len(DAY))
    for place, name in enumerate(NAMES):
        own = [[row for row in rows if row["hour"] == hour] for hour in hours]
        means = [cost(found, name) / len(days(rows)) for found in own]
        axes.step(hours, means, where="mid", label=_words(name),
                  color="black" if name == CHOSEN else f"C{place}", linestyle="--" if name == CHOSEN else "-",
                  linewidth=2 if name == CHOSEN else 1.2)  # fmt: skip
    axes.set(title=title, xlabel="hour", ylabel="messages and matches, as messages", yscale="log")
    axes.legend(fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "day", "a day of changing load, with each strategy", measure, text, claims, draw, SETTINGS, SIZES
)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
