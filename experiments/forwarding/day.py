"""A day in which the load changes: the strategy that a network chooses itself, compared with each fixed one.

Real routers on a tree of brokers, message by message: at night few events match, in the morning subscriptions
come and go, by day most events are for all. Bittner (2004) advises to have several strategies and to choose
by load, and does not try it. A network chooses by a cost, see `rtfilter.overlay.cheapest`: messages, and a
quarter of one for each time that an event is matched against subscriptions of others. The text has both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from experiments.simulation.network import Network
from experiments.simulation.topology import random_tree
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_messages import Send
from rtfilter.overlay.broker_names import SubscriptionId
from rtfilter.overlay.cheapest import MATCH
from rtfilter.overlay.router import Router
from rtfilter.replay.output import Row, table
from rtfilter.text import plain

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

    def made(name: str, incarnation: int) -> Router:
        return Router(name, incarnation, TYPES, **own)

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
            "choosing": sent["Wave"] + sent["Answer"],
            "subscriptions": sent.total() - sent["Event"] - sent["Wave"] - sent["Answer"],
            "receipts": len(network.deliveries) - got,
            "in use": network.machine(root).strategy.name,
        }
        matched = 0 if row["in use"] == "event_forwarding" else sent["Event"] + int(share * hour.events)
        yield row | {"cost": sent.total() + MATCH * matched}
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


def _place(network: Network, router: Router, now: float) -> list[Send]:
    return router.place(network.topology.place(router.name), now)


def _subscribe(
    ids: dict[int, SubscriptionId], key: int, topic: int, router: Router, now: float
) -> list[Send]:  # fmt: skip
    ids[key], sends = router.subscribe("reader", "news", f"topic = {topic}", now)
    return sends


def _unsubscribe(ids: dict[int, SubscriptionId], key: int, router: Router, now: float) -> list[Send]:
    return router.unsubscribe(ids[key], now)


def _publish(topic: int, router: Router, now: float) -> list[Send]:
    return router.publish("writer", "news", {"topic": topic}, now)[1]


# -- what is read from the rows ------------------------------------------------------------------------------

SIZES: dict[str, dict[str, Any]] = {
    "ci": {"clusters": 8, "share": 0.25}, "medium": {"clusters": 16, "share": 1.0},
    "full": {"clusters": 16, "share": 4.0},
}  # fmt: skip
SETTINGS = {"own": Setting("own", "a random tree of brokers, 24 hours")}
NAMES = (*FIXED, CHOSEN)


def measure(run: Run) -> None:
    """Play the day with each strategy."""
    for piece in run.pieces(dict.fromkeys(NAMES, 1.0)):
        run.keep(piece, list(played(piece, run.sizes["clusters"], run.sizes["share"], run.seed)))


def total(rows: Sequence[Row], strategy: str, *cells: str) -> float:
    """Return the sum of some cells over the day."""
    return float(sum(row[cell] for row in rows if row["day"] == strategy for cell in cells))


def messages(rows: Sequence[Row], strategy: str) -> float:
    """Return all messages between brokers."""
    return total(rows, strategy, "events", "subscriptions", "choosing")


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's advice, with what was found by cost and by messages alone."""
    found = []
    for name, of in (("cost", partial(total, rows)), ("messages", partial(messages, rows))):
        fixed = {each: of(each, "cost") if name == "cost" else of(each) for each in FIXED}
        own = of(CHOSEN, "cost") if name == "cost" else of(CHOSEN)
        best = min(fixed, key=lambda each: fixed[each])
        ratio = own / fixed[best]
        told = f"{percent(ratio)} of the best fixed one, {_words(best)}; of the others " + ", ".join(
            f"{_words(each)} {percent(own / value)}" for each, value in fixed.items() if each != best
        )
        verdict = verdicts.HOLDS if ratio < 1 else verdicts.FAILS
        found.append(
            Claim(f"a network that chooses has less {name} in a day than with any fixed strategy",
                  "several strategies, selected by load", Finding(told, verdict), verdicts.NOT_TIMED)
        )  # fmt: skip
    return found


def _words(strategy: str) -> str:
    return strategy.replace("_", " ")


def text(rows: Sequence[Row]) -> str:
    """Return messages of the day, by what they are for, and what was in use when."""
    lines = [
        {"strategy": _words(name), "cost": plain(total(rows, name, "cost"), 6, ","),
         "messages": plain(messages(rows, name), 6, ","),
         **{cell: plain(total(rows, name, cell), 6, ",")
            for cell in ("events", "subscriptions", "choosing", "receipts")}}
        for name in NAMES
    ]  # fmt: skip
    columns = ("strategy", "cost", "messages", "events", "subscriptions", "choosing", "receipts")
    chosen = [row for row in rows if row["day"] == CHOSEN]
    parts = [table(lines, {name: name for name in columns})]
    before = [None, *(row["in use"] for row in chosen)]
    changes = [
        f"{row['hour']}:00 {_words(row['in use'])}"
        for row, old in zip(chosen, before, strict=False) if row["in use"] != old
    ]  # fmt: skip
    notes = (
        f"Cost: messages, and {MATCH} for each match against subscriptions of others. Receipts may differ\n"
        "by events that are under way while a subscription comes or goes.\n"
        f"Chosen, at the end of the hour from:\n{'; '.join(changes)}."
    )
    return "\n\n".join([*parts, notes])


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the cost of each hour by strategy."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(NAMES):
        own = [row for row in rows if row["day"] == name]
        axes.step([row["hour"] for row in own], [row["cost"] for row in own], where="mid", label=_words(name),
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
