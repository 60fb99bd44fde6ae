"""Hybrid routing beside hierarchical routing: total cost of the tree and average event delay.

Xue and Feng (2005) simulated 100 clusters, each of a designated broker and ten others, in which all
publishers publish one kind of event and all subscribers want it. ``hierarchical`` sends one message to each
interested broker of a cluster, ``hybrid`` one multicast to all. The total cost sums messages of events over
the links of the network that they cross, see `routes.crossed`; subscriptions are separate. The paper
does not say how fast its publishers publish, nor what a broker's work takes: there are several loads, see
`LOADS`. Beyond its simulation, a piece is about clients that look for a broker, see `placement`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from experiments.hybrid import placement
from experiments.hybrid.routes import Floats, Routers, play, whole
from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from experiments.simulation.topology import Topology, embedded, transit_stub, uniform
from rtfilter.basics.text import plain
from rtfilter.replay.output import Row, table

HIERARCHICAL, HYBRID = STRATEGIES = ("hierarchical", "hybrid")


class Load(NamedTuple):
    """The rate of events, and the time that they take.

    Attributes
    ----------
    window : float
        Seconds in which each publisher publishes its event, at a random moment.
    message, delivery : float
        Seconds for which a broker is busy with a message to others, and to a client.
    told : str
        The same in words.
    """

    window: float
    message: float
    delivery: float
    told: str


LOADS = {
    "1 ms": Load(1.0, 1e-3, 0.0, "each publishes once within a second; a message to a broker takes 1 ms"),
    "0.1 ms": Load(1.0, 1e-4, 0.0, "the same, but it takes 0.1 ms"),
    "at once": Load(0.0, 1e-3, 0.0, "all publish at the same moment; a message to a broker takes 1 ms"),
    "clients": Load(1.0, 1e-3, 1e-3, "within a second; messages to brokers and to clients take 1 ms"),
}
"""By name. In the first one, 100 publishers are about as much as the busiest broker of hybrid routing can do,
which sends to at most eight links and to its cluster."""
SHOWN = {"latency": ("1 ms", "0.1 ms", "clients"), "elapsed": ("at once", "1 ms", "clients")}
"""Loads for which each reading of the delay is shown. A claim is judged by all of them: the paper does not
tell its own. If publishers take a second, the time that is used is about that second."""

_FULL = {
    "clusters": 100, "brokers": 11, "links": 730, "children": 8, "publishers": (100, 1000), "runs": 10,
    "subscribers": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "ci": _FULL | {"clusters": 20, "publishers": (20, 200), "runs": 2,
                   "subscribers": (1, 5, 10, 20, 50, 100, 200, 500, 1000)},
    "medium": _FULL | {"runs": 3},
    "full": _FULL,
}  # fmt: skip
SETTINGS = {"own": Setting("own", "clusters of 11 brokers in a transit-stub network")}

PLATEAU = 1000
"""Subscribers above which the paper's curves are flat."""
KNEES = {100: 100, 1000: 50}
"""Subscribers at which the paper's curves of delay part, by number of publishers."""
ABOUT = 2.0
"""A number of subscribers is about another one up to this factor."""
LINEAR = 0.95
"""A curve is about linear if a line explains so much of its variance; partly: nine tenths."""
SUM = "by construction, as the cost of all events is the sum of those of each"
"""Said of claims that this way to count decides before anything is drawn."""
SIMULATED = Finding("a delay, of simulated time", verdicts.DOES_NOT_APPLY)
WHOLE = "message by message"
PLACEMENT = "placement"


def measure(run: Run) -> None:
    """Draw networks, and count and time events in each."""
    pieces = {f"run {number}": 10.0 for number in range(1, run.sizes["runs"] + 1)}
    pieces |= {WHOLE: 3.0, PLACEMENT: 10.0}
    for piece in run.pieces(pieces):
        if piece == WHOLE:
            run.keep(piece, checked(run.sizes, run.seed))
        elif piece == PLACEMENT:
            run.keep(piece, list(placement.measured(run.profile.name, run.seed, STRATEGIES)))
        else:
            run.keep(piece, list(compared(run, int(piece.removeprefix("run ")))))


def world(sizes: dict[str, Any], seed: str) -> tuple[Topology, list[str], list[str], Floats]:
    """Return a network, the brokers of its subscribers and publishers, and the times of publication.

    Fewer subscribers and publishers are the first ones of more.
    """
    rng = Random(f"network {seed}")
    topology = embedded(
        rng, transit_stub(rng, sizes["links"]), sizes["clusters"], sizes["brokers"], sizes["children"]
    )
    subscribers = uniform(Random(f"subscribers {seed}"), topology, max(sizes["subscribers"]))
    publishers = uniform(Random(f"publishers {seed}"), topology, max(sizes["publishers"]))
    moments = Random(f"moments {seed}")
    return topology, subscribers, publishers, np.array([moments.random() for _ in publishers])


def compared(run: Run, number: int) -> Iterator[Row]:
    """Yield a row for each strategy, number of subscribers and number of publishers."""
    topology, subscribers, publishers, moments = world(dict(run.sizes), f"{run.seed} {number}")
    for strategy in STRATEGIES:
        routers = Routers(topology, strategy)
        done = 0
        for count in run.sizes["subscribers"]:
            routers.subscribe(subscribers[done:count], done)
            done = count
            routes = routers.routes(publishers)
            interested = set(subscribers[:count])
            for some in run.sizes["publishers"]:
                row: Row = {
                    "run": number, "strategy": strategy, "publishers": some, "subscribers": count,
                    "clusters": len({topology.cluster_of[broker] for broker in interested}),
                    "brokers": len(interested), "subscription messages": sum(routers.sent.values()),
                }  # fmt: skip
                for name, load in LOADS.items():
                    times = load.window * moments[:some]
                    played = play(routes.first(some), times, load.message, load.delivery)
                    row |= {
                        "cost": played.cost, "receipts": played.receipts,
                        f"latency {name}": played.delay / played.receipts,
                        f"elapsed {name}": (played.last - times.min()) / played.receipts,
                    }  # fmt: skip
                yield row
            run.advance(0.5 / len(run.sizes["subscribers"]))


def checked(sizes: Any, seed: int) -> list[Row]:
    """Return rows that say whether the same comes of a network in which each message is really routed."""
    topology, subscribers, publishers, moments = world(dict(sizes), f"{seed} 1")
    count = sizes["subscribers"][len(sizes["subscribers"]) // 2]
    load = LOADS["clients"]
    some, times = publishers[: sizes["publishers"][0]], load.window * moments[: sizes["publishers"][0]]
    rows = []
    for strategy in STRATEGIES:
        routers = Routers(topology, strategy)
        routers.subscribe(subscribers[:count])
        short = play(routers.routes(some), times, load.message, load.delivery)
        long = whole(topology, strategy, subscribers[:count], some, times, load.message, load.delivery)
        rows.append({
            "whole": strategy, "publishers": len(some), "subscribers": count, "messages": long.messages,
            "cost": long.cost, "same": short[:3] == long[:3],
            "apart": abs(short.delay - long.delay) / long.delay,
        })  # fmt: skip
    return rows


# -- what is read from the rows ------------------------------------------------------------------------------


class Curve(NamedTuple):
    """Means over all runs by number of subscribers, with their intervals.

    Attributes
    ----------
    at : list of int
        Numbers of subscribers.
    means, halves : list of float
        Means, and half of the widths of their 95 % confidence intervals.
    """

    at: list[int]
    means: list[float]
    halves: list[float]


def curve(rows: Sequence[Row], strategy: str, publishers: int, cell: str) -> Curve:
    """Return the curve of one quantity."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row.get("strategy"), row["publishers"]) == (strategy, publishers):
            found.setdefault(row["subscribers"], []).append(row[cell])
    return Curve(list(found), [mean(own) for own in found.values()], [_half(own) for own in found.values()])


def _half(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return quantile * stdev(values) / math.sqrt(len(values))


def all_publishers(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of publishers, ascending."""
    return sorted({row["publishers"] for row in rows if "strategy" in row})


def plateau(own: Curve) -> int:
    """Return the least number of subscribers from which on all means are within 5 % of the last."""
    near = [abs(value - own.means[-1]) <= verdicts.NEGLIGIBLE * own.means[-1] for value in own.means]
    first = len(near) - next((at for at, is_near in enumerate(reversed(near)) if not is_near), len(near))
    return own.at[first]


def knee(one: Curve, other: Curve) -> int | None:
    """Return the least number of subscribers from which the first stays more than 5 % above the other."""
    above = [a > (1 + verdicts.NEGLIGIBLE) * b for a, b in zip(one.means, other.means, strict=True)]
    first = len(above) - next((at for at, is_above in enumerate(reversed(above)) if not is_above), len(above))
    return one.at[first] if first < len(one.at) else None


def is_at(found: int | None, wanted: int) -> str:
    """Return the verdict that curves part at a number of subscribers; partly if they part near it."""
    if found is None:
        return verdicts.FAILS
    near = max(found / wanted, wanted / found) <= ABOUT
    return verdicts.HOLDS if found == wanted else verdicts.PARTLY if near else verdicts.FAILS


def _until(found: int, wanted: int) -> str:
    """Return the verdict that a number of subscribers is at most another; partly if it is about that."""
    return (
        verdicts.HOLDS if found <= wanted else verdicts.PARTLY if found <= ABOUT * wanted else verdicts.FAILS
    )


def linear(own: Curve, end: int) -> float:
    """Return the share of a curve's variance up to a number of subscribers that a line explains."""
    points = [(at, value) for at, value in zip(own.at, own.means, strict=True) if at <= end]
    if len(points) < 3:
        return 1.0
    fitted = stats.linregress(*zip(*points, strict=True))
    return float(fitted.rvalue) * float(fitted.rvalue)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's claims on the total cost and on the delay, by both readings."""
    some = all_publishers(rows)
    found = [Claim(*each, verdicts.NOT_TIMED) for each in _on_cost(rows, some)]
    for cell, told in (("latency", "mean latency"), ("elapsed", "time used by receipts")):
        found += [
            Claim(claim, paper, SIMULATED, finding)
            for claim, paper, finding in _on_delay(rows, some, cell, told)
        ]
    same = "routing each message gives the same as following routes"
    return [*found, Claim(same, "", _same(rows), verdicts.NOT_TIMED)]


Three = tuple[str, str, Finding]


def _on_cost(rows: Sequence[Row], some: Sequence[int]) -> Iterator[Three]:
    curves = {
        (strategy, count): curve(rows, strategy, count, "cost")
        for strategy in STRATEGIES for count in some
    }  # fmt: skip
    for strategy in STRATEGIES:
        flat = [plateau(curves[strategy, count]) for count in some]
        yield (
            f"cost: {strategy} routing is flat above about {PLATEAU:,} subscribers", "both are",
            Finding(f"within 5 % of the end from {_each(flat, some)} subscribers on",
                    verdicts.of_cases(_until(at, PLATEAU) for at in flat)),
        )  # fmt: skip
    knees = [knee(curves[HIERARCHICAL, count], curves[HYBRID, count]) for count in some]
    never = Finding("the curves do not part", verdicts.FAILS)
    parts = [_surely(rows, count, at, "cost") for count, at in zip(some, knees, strict=True) if at]
    yield (
        "cost: above a critical point hybrid routing is cheaper", "it is",
        Finding(f"more than 5 % from {_each(knees, some)} subscribers on; {'; '.join(t for t, _ in parts)}",
                verdicts.of_cases(verdict for _, verdict in parts)) if parts else never,
    )  # fmt: skip
    last = [[curves[strategy, count].means[-1] for strategy in STRATEGIES] for count in some]
    gaps = [one - other for one, other in last]
    yield (
        "cost: the gap grows with the number of publishers", "it does",
        Finding(f"{SUM}: at the end {_each([plain(gap, 3, ',') for gap in gaps], some)} links crossed, "
                f"{_each([plain(one / other, 3) for one, other in last], some)} times as many",
                verdicts.HOLDS if gaps == sorted(set(gaps)) else verdicts.FAILS),
    )  # fmt: skip
    end = min(at or PLATEAU for at in knees)
    shares = [linear(own, end) for own in curves.values()]
    yield (
        "cost: below the critical point both grow about linearly", "they do",
        Finding(f"up to {end} subscribers a line explains {percent(min(shares))} to {percent(max(shares))}",
                verdicts.rather_above([(s, s, s) for s in shares], 0.9, LINEAR)),
    )  # fmt: skip
    yield (
        "cost: more publishers move the critical point to fewer subscribers", "they do",
        Finding(f"{SUM}, so it cannot: it is at {_each(knees, some)} subscribers",
                verdicts.HOLDS if knees[-1] and knees[0] and knees[-1] < knees[0] else verdicts.FAILS),
    )  # fmt: skip


def _on_delay(rows: Sequence[Row], some: Sequence[int], cell: str, reading: str) -> Iterator[Three]:
    curves = {
        (strategy, load, count): curve(rows, strategy, count, f"{cell} {load}")
        for strategy in STRATEGIES for load in SHOWN[cell] for count in some
    }  # fmt: skip
    for count, wanted in zip(some, KNEES.values(), strict=False):
        knees = {
            load: knee(*(curves[strategy, load, count] for strategy in STRATEGIES)) for load in SHOWN[cell]
        }
        told = ", ".join(f"{load}: {_told(at)}" for load, at in knees.items())
        yield (
            f"delay, {reading}: with {count:,} publishers the curves part at {wanted} subscribers",
            f"at {wanted}",
            Finding(f"more than 5 % from these subscribers on: {told}",
                    verdicts.of_cases(is_at(at, wanted) for at in knees.values())),
        )  # fmt: skip
    after = [(load, *_surely(rows, count, 0, f"{cell} {load}")) for load in SHOWN[cell] for count in some]
    yield (
        f"delay, {reading}: hybrid routing is never slower", "equal, then lower",
        Finding("; ".join(f"{load}, {told}" for load, told, _ in after),
                verdicts.of_cases(verdict for *_, verdict in after)),
    )  # fmt: skip
    for strategy, shapes in SHAPES.items():
        own = [curves[strategy, load, count] for load in SHOWN[cell] for count in some]
        for claim, (paper, has) in shapes.items():
            sure = [has(one) for one in own]
            heights = "" if paper == verdicts.PART else f"; {_heights(rows, some, cell, strategy)}"
            yield (
                f"delay, {reading}: {strategy} routing {claim}", paper,
                Finding(f"{sum(sure)} of {len(sure)} curves{heights}", verdicts.in_cases(sure)),
            )  # fmt: skip


def _heights(rows: Sequence[Row], some: Sequence[int], cell: str, strategy: str) -> str:
    """Return the beginning, the peak and the end of the curves of all loads."""
    told = []
    for name in SHOWN[cell]:
        for count in some:
            own = curve(rows, strategy, count, f"{cell} {name}")
            peak = int(np.argmax(own.means))
            parts = (own.means[0], own.means[peak], own.means[-1])
            told.append(
                f"{name}, {count:,}: {' to '.join(plain(1000 * value, 3, ',') for value in parts)} ms, "
                f"the most at {own.at[peak]:,}"
            )
    return "; ".join(told)


def _grows(own: Curve) -> bool:
    """Return whether a curve never falls by more than a negligible share, and ends above its beginning."""
    least = np.maximum.accumulate(own.means)
    return bool((np.array(own.means) >= (1 - verdicts.NEGLIGIBLE) * least).all()) and (
        own.means[-1] > (1 + verdicts.NEGLIGIBLE) * own.means[0]
    )


def _steep(own: Curve) -> bool:
    """Return whether a curve grows, and its second half, by subscribers, rises more than the first."""
    middle = float(np.interp(own.at[-1] / 2, own.at, own.means))
    return _grows(own) and own.means[-1] - middle > middle - own.means[0] > 0


def _rises_first(own: Curve) -> bool:
    return max(own.means) > (1 + verdicts.NEGLIGIBLE) * own.means[0]


def _falls_later(own: Curve) -> bool:
    return own.means[-1] < (1 - verdicts.NEGLIGIBLE) * max(own.means)


def _peaks(own: Curve) -> bool:
    return _rises_first(own) and _falls_later(own)


SHAPES: dict[str, dict[str, tuple[str, Callable[[Curve], bool]]]] = {
    HIERARCHICAL: {
        "gets slower ever more steeply": ("it grows ever more steeply", _steep),
        "gets slower": (verdicts.PART, _grows),
    },
    HYBRID: {
        "rises to a peak, then falls": ("it does", _peaks),
        "rises at first": (verdicts.PART, _rises_first),
        "falls in the end": (verdicts.PART, _falls_later),
    },
}
"""The paper's claims about curves of the delay: each claim as a whole, then its parts."""


def _surely(rows: Sequence[Row], count: int, begin: int, cell: str) -> tuple[str, str]:
    """Return in how many runs and places hybrid routing costs no more, from `begin` subscribers on.

    Times of a place may differ by a thousandth, as the order of messages is another one.
    """
    place = {
        (row["strategy"], row["run"], row["subscribers"]): row[cell]
        for row in rows if row.get("strategy") and row["publishers"] == count
    }  # fmt: skip
    pairs = [
        (value, place[HYBRID, number, at])
        for (strategy, number, at), value in place.items()
        if strategy == HIERARCHICAL and at >= begin
    ]
    least = [other <= 1.001 * one for one, other in pairs]
    ratio = max(one / other for one, other in pairs)
    return (
        f"{count:,} publishers: in {sum(least)} of {len(least)} cases, up to {plain(ratio, 3)} times",
        verdicts.in_cases(least),
    )


def _same(rows: Sequence[Row]) -> Finding:
    own = [row for row in rows if "whole" in row]
    told = "; ".join(
        f"{row['whole']}, {row['subscribers']:,} subscribers and {row['publishers']:,} publishers: "
        f"{row['messages']:,} messages over {row['cost']:,} links, delays apart by {row['apart']:.0e}"
        for row in own
    )  # fmt: skip
    good = all(row["same"] and row["apart"] < 1e-9 for row in own)
    return Finding(told, verdicts.HOLDS if good else verdicts.FAILS)


def _told(at: int | None) -> str:
    return "nowhere" if at is None else f"{at:,}"


def _each(values: Sequence[Any], some: Sequence[int]) -> str:
    told = [value if isinstance(value, str) else _told(value) for value in values]
    return " and ".join(f"{value} ({count:,} publishers)" for value, count in zip(told, some, strict=True))


def text(rows: Sequence[Row]) -> str:
    """Return messages and delays by subscribers, and how many clusters and brokers are interested."""
    parts = []
    for count in all_publishers(rows):
        cells = ["cost", *(f"{kind} {name}" for kind, shown in SHOWN.items() for name in shown)]
        curves = {(s, cell): curve(rows, s, count, cell) for s in STRATEGIES for cell in cells}
        for kind in UNITS:
            columns: dict[str, str] = {"subscribers": f"PUB {count}: {UNITS[kind]}"}
            lines: list[Row] = [{"subscribers": f"{at:,}"} for at in curves[HYBRID, "cost"].at]
            for cell in [cell for cell in cells if cell.startswith(kind)]:
                for strategy in STRATEGIES:
                    name = f"{SHORT[strategy]} {cell.removeprefix(kind).strip()}".strip()
                    columns[name] = name
                    own = curves[strategy, cell]
                    factor = FACTORS[kind]
                    for line, value, half in zip(lines, own.means, own.halves, strict=True):
                        line[name] = f"{plain(factor * value, 3, ',')} ±{half / value:.0%}"
            if kind == "cost":
                for cell in ("clusters", "brokers", "subscription messages"):
                    columns[cell] = cell.replace("subscription messages", "for subscriptions")
                    for line, value in zip(lines, curve(rows, HYBRID, count, cell).means, strict=True):
                        line[cell] = plain(value, 4, ",")
            parts.append(table(lines, columns))
    loads = "\n".join(f"{name}: {load.told}." for name, load in LOADS.items())
    notes = (
        "hr: hierarchical routing, hrm: hybrid routing; means of all runs, with 95 % intervals.\n"
        "Links crossed: by all messages of events between brokers; a local network is one link.\n"
        "Clusters and brokers: those with a subscriber. For subscriptions: messages between brokers.\n"
        "PUB: number of publishers.\n"
        f"{loads}"
    )
    looking = placement.text([row for row in rows if row["piece"] == PLACEMENT])
    return "\n\n".join(part for part in (*parts, notes, looking) if part)


SHORT = {HIERARCHICAL: "hr", HYBRID: "hrm"}
UNITS = {"cost": "links crossed", "latency": "latency, ms", "elapsed": "time by receipts, ms"}
FACTORS = {"cost": 1.0, "latency": 1e3, "elapsed": 1e3}


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw cost and both readings of the delay by subscribers, a column for each number of publishers."""
    some = all_publishers(rows)
    figure = Figure(figsize=(9, 9.5), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(3, len(some), squeeze=False, sharex=True)
    for column, count in enumerate(some):
        for line, kind in enumerate(UNITS):
            axes: Axes = panels[line][column]
            loads = ("",) if kind == "cost" else SHOWN[kind][:2]
            for strategy, colour, mark in ((HIERARCHICAL, "C0", "o"), (HYBRID, "C1", "s")):
                for load, style in zip(loads, ("-", "--"), strict=False):
                    own = curve(rows, strategy, count, f"{kind} {load}".strip())
                    axes.errorbar(
                        own.at, FACTORS[kind] * np.array(own.means), FACTORS[kind] * np.array(own.halves),
                        color=colour, marker=mark, markersize=4, linestyle=style,
                        label=f"{strategy}, {load}".rstrip(", "),
                    )  # fmt: skip
            axes.set(xscale="log", yscale="log" if kind == "elapsed" else "linear")
            if not column:
                axes.set_ylabel(UNITS[kind])
        panels[0][column].set_title(f"{count:,} publishers")
        panels[-1][column].set_xlabel("subscribers")
    for line in panels:
        line[0].legend(fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "hybrid", "hybrid and hierarchical routing", measure, text, claims, draw, SETTINGS, SIZES
)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
