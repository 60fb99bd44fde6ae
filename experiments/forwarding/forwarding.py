"""Profile forwarding, event forwarding and rendezvous nodes compared, by what Bittner (2004) varies.

The paper measured filter efficiency, network load and memory of a prototype, and gives neither values of
its parameters nor numbers. Here a broker's *work* is counted in steps, see `work`, and efficiency is the
number of events for which the busiest broker makes a million steps. Messages and memory are exact, see
`identities`. Beyond the paper, a piece is about near boxes that are told as one, see `boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from scipy.stats import spearmanr

from experiments.forwarding import boxes
from experiments.forwarding.identities import EVENT, PROFILE, RENDEZVOUS, STRATEGIES, Loads, loads
from experiments.forwarding.worlds import Cell, World, building, drawn
from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from rtfilter.replay.output import Row, table
from rtfilter.text import plain

WORD = 64
"""Profiles of a set that one step intersects."""
MESSAGES = (100, 1000, 10_000)
"""Steps for which the work of one message stands, to send it or to take it. Claims are judged by the middle
one: some ten microseconds, where a step takes some ten nanoseconds."""
SIMPLE = 0.5
"""To take an event costs event forwarding this part of it: it need not be asked where it goes."""
MANY, FEW = 0.6, 0.1
"""Many events match from this share on, few up to this one."""

_CELLS = {
    "brokers": (1, 2, 4, 8, 16, 32), "matching": (0.001, 0.01, 0.1, 0.3, 0.6, 1.0),
    "profiles": (1000, 10_000, 100_000), "types": (1, 10), "locality": (0.0, 0.5, 0.9),
    "covering": (0.0, 0.3, 0.8),
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "ci": {**_CELLS, "brokers": (1, 4, 16), "matching": (0.01, 0.1, 0.6, 1.0), "profiles": (1000, 10_000),
           "locality": (0.5,), "matched": (0.001, 0.1), "events": 200},
    "medium": {**_CELLS, "matched": (0.001, 0.01, 0.1), "events": 400},
}  # fmt: skip
SIZES["full"] = SIZES["medium"] | {"events": 1000}
SETTINGS = {"own": Setting("own", "random trees of brokers, profiles as ranges")}
BUILDING = "building control"
BOXES = "merged boxes"
USUAL = Cell()
"""What is shown where one thing varies."""


def measure(run: Run) -> None:
    """Draw each world, and count what brokers do."""
    sizes = run.sizes
    grid = {
        f"{profiles} profiles, {types} types": [
            Cell(brokers, matching, profiles, types, locality, covering)
            for brokers, matching, locality, covering in product(
                sizes["brokers"], sizes["matching"], sizes["locality"], sizes["covering"]
            )
        ]
        for profiles, types in product(sizes["profiles"], sizes["types"])
    }
    some = [
        Cell(sizes["brokers"][-2], matching, sizes["profiles"][1], matched=matched)
        for matched, matching in product(sizes["matched"], sizes["matching"])
    ]
    pieces = grid | {"matched profiles": some, BUILDING: [], BOXES: []}
    costs = {name: sum(1000 + cell.profiles * cell.brokers for cell in own) for name, own in pieces.items()}
    costs[BOXES] = sum(costs.values()) // 2
    for piece in run.pieces({name: max(float(cost), 1.0) for name, cost in costs.items()}):
        if piece == BUILDING:
            run.keep(piece, [counted(building(10 * sizes["events"], run.seed))])
            continue
        if piece == BOXES:
            run.keep(piece, list(boxes.measured(run.profile.name, run.seed)))
            continue
        rows = []
        for cell in pieces[piece]:
            rows.append(cell._asdict() | counted(drawn(cell, sizes["events"], run.seed)))
            run.advance(1 / len(pieces[piece]))
        run.keep(piece, rows)


def counted(world: World) -> Row:
    """What each way of forwarding costs in a world: lists in the order of `STRATEGIES`."""
    found = loads(world)
    matched = world.matches() > 0
    row: Row = {
        "matches": float(world.weights[matched.any(axis=1)].sum()),
        "interested": float((matched.sum(axis=1) * world.weights).sum()),
        "messages": [found[name].messages for name in STRATEGIES],
        "memory": [found[name].memory for name in STRATEGIES],
    }
    for message in MESSAGES:
        busiest = [max(work(found[name], name, world.attributes, message)) for name in STRATEGIES]
        row[f"efficiency {message}"] = [1e6 / steps for steps in busiest]
    return row


def work(own: Loads, strategy: str, attributes: int, message: int) -> list[float]:
    """Steps of each broker for an event, on average.

    A step compares two values, or intersects 64 profiles of two sets, as filter nodes do: to filter an event
    takes a search among the bounds of each attribute, and for each one a set of all profiles that are held.
    What clients are told of is the same for all, and not counted.
    """
    held = own.held
    filtering = attributes * (np.log2(1 + 2 * held) + np.ceil(held / WORD))
    take = message * (SIMPLE if strategy == EVENT else 1.0)
    steps = take * own.handled + (own.filtered * filtering).sum(axis=0) + message * own.sent
    return [float(each) for each in steps]


# -- what is read from the rows ------------------------------------------------------------------------------


def grid(rows: Sequence[Row]) -> list[Row]:
    """The rows of more than one broker, without those where the share of matched profiles varies."""
    return [row for row in rows if row.get("brokers", 1) > 1 and row["piece"] != "matched profiles"]


def efficiency(row: Row, strategy: str, message: int = MESSAGES[1]) -> float:
    """Events for which the busiest broker makes a million steps."""
    return float(row[f"efficiency {message}"][STRATEGIES.index(strategy)])


def best(row: Row, message: int = MESSAGES[1]) -> str:
    """The most efficient way of forwarding."""
    return max(STRATEGIES, key=lambda name: efficiency(row, name, message))


def series(rows: Sequence[Row], along: str) -> Iterator[list[Row]]:
    """Rows in which one parameter alone varies."""
    others = [name for name in Cell._fields if name != along]
    own = [row for row in rows if "brokers" in row and row["piece"] != "matched profiles"]

    def key(row: Row) -> list[Any]:
        return [row[name] for name in others]

    for _, found in groupby(sorted(own, key=lambda row: [*key(row), row[along]]), key):
        yield list(found)


def _in(
    sure: Callable[[Row, int], bool], rows: Sequence[Row], more: str = "", many: bool = False
) -> Finding:  # fmt: skip
    """Whether something is so in all worlds, in some, or in none; judged at the middle cost of a message.

    `many`: whether it is so in more than half of them.
    """
    counts = {message: sum(sure(row, message) for row in rows) for message in MESSAGES}
    told = ", ".join(
        f"{counts[message]:,} if a message is {message:,} steps" for message in (MESSAGES[0], MESSAGES[2])
    )
    verdict = verdicts.above([(float(sure(row, MESSAGES[1])),) * 3 for row in rows], 0.5)
    if many:
        verdict = verdicts.HOLDS if 2 * counts[MESSAGES[1]] > len(rows) else verdicts.FAILS
    return Finding(f"in {counts[MESSAGES[1]]:,} of {len(rows):,} worlds ({told}){more}", verdict)


def _exactly(sure: Sequence[bool], more: str = "") -> Finding:
    """The same for what no cost changes."""
    verdict = verdicts.above([(float(each),) * 3 for each in sure], 0.5)
    return Finding(f"in {sum(sure):,} of {len(sure):,} worlds{more}", verdict)


def _gain(rows: Sequence[Row], strategy: str, gains: bool) -> Finding:
    """Whether the most brokers are more efficient than one; or not, but for what is negligible."""
    found = [own for own in series(rows, "brokers") if len(own) > 1]

    def sure(pair: Row, message: int) -> bool:
        more = efficiency(pair["last"], strategy, message) / efficiency(pair["first"], strategy, message)
        return more > 1 if gains else more <= 1 + verdicts.NEGLIGIBLE

    pairs = [{"first": own[0], "last": own[-1]} for own in found]
    ratios = sorted(efficiency(p["last"], strategy) / efficiency(p["first"], strategy) for p in pairs)
    most = pairs[0]["last"]["brokers"] if pairs else 0
    peak = max(max(efficiency(row, strategy) for row in own) / efficiency(own[0], strategy) for own in found)
    more = (
        f"; {most} brokers are {_span(ratios)} times as efficient as one, "
        f"the best number of them up to {plain(peak, 2, ',')} times"
    )
    return _in(sure, pairs, more)


def _span(ratios: Sequence[float]) -> str:
    return f"{plain(ratios[0], 2, ',')} to {plain(ratios[-1], 2, ',')}" if ratios else "not known"


def _trend(rows: Sequence[Row]) -> Finding:
    """Whether event forwarding does the better beside profile forwarding, the more events match."""
    found = [own for own in series(grid(rows), "matching") if len(own) > 2]

    def rank(own: Sequence[Row], message: int) -> float:
        curve = [efficiency(row, EVENT, message) / efficiency(row, PROFILE, message) for row in own]
        return float(spearmanr(range(len(curve)), curve).statistic)

    return _in(lambda own, message: rank(own["rows"], message) > verdicts.RISES, [{"rows": r} for r in found])


def _scales(rows: Sequence[Row]) -> Finding:
    """Whether event forwarding keeps more of its efficiency than profile forwarding with many profiles."""
    found = [own for own in series(grid(rows), "profiles") if len(own) > 1]

    def kept(own: Row, strategy: str, message: int) -> float:
        first, *_, last = own["rows"]
        return efficiency(last, strategy, message) / efficiency(first, strategy, message)

    lines = [{"rows": own} for own in found]
    told = "".join(
        f"; {name} keeps {_span(sorted(kept(own, name, MESSAGES[1]) for own in lines))}"
        for name in (EVENT, PROFILE)
    )
    return _in(lambda own, m: kept(own, EVENT, m) > kept(own, PROFILE, m), lines, told)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The paper's claims, with what was found."""
    worlds = grid(rows)
    many = [row for row in worlds if row["matching"] >= MANY]
    few = [row for row in worlds if row["matching"] <= FEW]
    one, other, third = (STRATEGIES.index(name) for name in (PROFILE, EVENT, RENDEZVOUS))
    (house,) = [row for row in rows if row["piece"] == BUILDING]
    found: list[tuple[str, str, Finding]] = [
        (f"where {percent(MANY)} of the events match or more, event forwarding is the most efficient",
         "it is, where many match", _in(lambda row, m: best(row, m) == EVENT, many)),
        (f"where {percent(FEW)} match or fewer, profile forwarding is", "otherwise it is",
         _in(lambda row, m: best(row, m) == PROFILE, few)),
        ("the more events match, the better event forwarding does beside profile forwarding", "",
         _trend(rows)),
        ("profile forwarding gains efficiency from more brokers", "it alone does",
         _gain(rows, PROFILE, True)),
        ("event forwarding does not", "it does not", _gain(rows, EVENT, False)),
        ("rendezvous nodes do not", "they do not", _gain(rows, RENDEZVOUS, False)),
        ("profile forwarding sends no more messages than the others", "in many settings the least load",
         _exactly([row["messages"][one] <= min(row["messages"]) * (1 + 1e-4) for row in worlds])),
        ("profile forwarding is the most efficient in more than half of the worlds", "in many settings",
         _in(lambda row, m: best(row, m) == PROFILE, worlds, many=True)),
        ("profile forwarding holds more profiles than the others", "much memory",
         _exactly([row["memory"][one] > max(row["memory"][1:]) for row in worlds],
                  _times(worlds, "memory", one, other, "event forwarding"))),
        ("event forwarding keeps more of its efficiency when profiles become many",
         "it scales better with profiles", _scales(rows)),
        ("event forwarding sends the most messages", "its load is always very high",
         _exactly([row["messages"][other] >= max(row["messages"]) for row in worlds],
                  _times(worlds, "messages", other, one, "profile forwarding"))),
        ("event forwarding holds the fewest profiles, each once", "its memory is optimal",
         _exactly([row["memory"][other] == min(row["memory"]) == row["profiles"] for row in worlds])),
        ("rendezvous nodes are never the most efficient", "never better in any configuration",
         _in(lambda row, m: best(row, m) != RENDEZVOUS, worlds)),
        ("rendezvous nodes never send the fewest messages", "never better in any configuration",
         _exactly([row["messages"][third] > min(row["messages"]) for row in worlds])),
        ("rendezvous nodes never hold the fewest profiles", "never better in any configuration",
         _exactly([row["memory"][third] > min(row["memory"]) for row in worlds])),
        ("for building control, profile forwarding is the most efficient", "it is the best",
         _in(lambda row, m: best(row, m) == PROFILE, [house], "; " + ", ".join(
             f"{name} {plain(efficiency(house, name), 3, ',')}" for name in STRATEGIES))),
        ("for building control, profile forwarding sends the fewest messages", "it is the best",
         _exactly([house["messages"][one] == min(house["messages"])], "; " + ", ".join(
             f"{name} {plain(count, 3, ',')}" for name, count in
             zip(STRATEGIES, house["messages"], strict=True)))),
    ]  # fmt: skip
    return [Claim(told, paper, finding, verdicts.NOT_TIMED) for told, paper, finding in found]


def _times(rows: Sequence[Row], cell: str, one: int, other: int, name: str) -> str:
    ratios = sorted(row[cell][one] / row[cell][other] for row in rows if row[cell][other])
    return f"; {_span(ratios)} times those of {name}"


def usual(rows: Sequence[Row], **given: Any) -> list[Row]:
    """Rows of the usual world, but for what is given; None lets it vary."""
    wanted = _usual(rows)._replace(**given)._asdict()
    return [
        row for row in rows
        if row["piece"] != "matched profiles" and "brokers" in row
        and all(value is None or row[name] == value for name, value in wanted.items())
    ]  # fmt: skip


def _usual(rows: Sequence[Row]) -> Cell:
    """The usual world, with the fewest types."""
    return USUAL._replace(brokers=max(b for row in rows if (b := row.get("brokers", 1)) <= USUAL.brokers))


def text(rows: Sequence[Row]) -> str:
    """Efficiency, messages and memory where one parameter varies, and what was the best where."""
    own = _usual(rows)
    parts = [
        table([_line(row, along) for row in usual(rows, **{along: None})], _columns(along))
        for along in ("matching", "brokers", "profiles", "types", "locality", "covering")
    ]
    varied = [row for row in rows if row["piece"] == "matched profiles" and row["matching"] == own.matching]
    parts.append(table([_line(row, "matched") for row in varied], _columns("matched")))
    house = [row for row in rows if row["piece"] == BUILDING]
    parts.append(table([_line(row | {"building": "control"}, "building") for row in house],
                       _columns("building")))  # fmt: skip
    parts.append(table(list(_winners(rows)), {"matching": "most efficient in worlds", **{
        name: name for name in STRATEGIES}}))  # fmt: skip
    notes = (
        f"Where it does not vary: {own.brokers} brokers, {percent(own.matching)} of the events match, "
        f"{own.profiles:,} profiles, {own.types} type,\nlocality {own.locality:g}, "
        f"covering {own.covering:g}.\nEfficiency: events for which the busiest broker makes a million steps, "
        f"a message being {MESSAGES[1]:,}.\nPW: profile forwarding, EW: event forwarding, "
        "RK: rendezvous nodes."
    )
    return "\n\n".join(part for part in (*parts, notes, boxes.text(merged(rows))) if part)


def merged(rows: Sequence[Row]) -> list[Row]:
    """The rows about near boxes that are told as one."""
    return [row for row in rows if row["piece"] == BOXES]


def _line(row: Row, along: str) -> Row:
    line: Row = {along: str(row[along])}
    for cell in ("efficiency", "messages", "memory"):
        values = row[f"efficiency {MESSAGES[1]}" if cell == "efficiency" else cell]
        line |= {f"{cell} {name}": value for name, value in zip(STRATEGIES, values, strict=True)}
    return line


def _columns(along: str) -> dict[str, str]:
    short = dict(zip(STRATEGIES, ("PW", "EW", "RK"), strict=True))
    titles = {"efficiency": "eff.", "messages": "msgs", "memory": "held"}
    return {along: along} | {
        f"{cell} {name}": f"{title} {code}" for cell, title in titles.items() for name, code in short.items()
    }


def _winners(rows: Sequence[Row]) -> Iterator[Row]:
    for share in sorted({row["matching"] for row in grid(rows)}):
        own = [row for row in grid(rows) if row["matching"] == share]
        yield {"matching": f"{percent(share, 1)} match"} | {
            name: sum(best(row) == name for row in own) for name in STRATEGIES
        }


NUMBERS = FuncFormatter(lambda value, _: f"{value:,.10g}")
PER = "events per million steps"
LABELS = {PROFILE: "profile forwarding", EVENT: "event forwarding", RENDEZVOUS: "rendezvous nodes"}


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw efficiency by share of matching events and by brokers, as the paper does; messages and memory.

    Merged boxes are in the last line.
    """
    counts = sorted({row["profiles"] for row in grid(rows)})
    figure = Figure(figsize=(9, 11.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(4, 3, squeeze=False)
    efficient = f"efficiency {MESSAGES[1]}"
    for place, profiles in enumerate(counts[:3]):
        _curves(panels[0][place], usual(rows, profiles=profiles, matching=None), "matching", efficient)
        _curves(panels[1][place], usual(rows, profiles=profiles, brokers=None), "brokers", efficient)
        panels[0][place].set(title=f"{profiles:,} profiles", xlabel="share of matching events", xscale="log")
        panels[1][place].set(title=f"{profiles:,} profiles", xlabel="brokers")
        panels[1][place].set_xscale("log", base=2)
        panels[1][place].xaxis.set_major_formatter(NUMBERS)
    _curves(panels[2][0], usual(rows, matching=None), "matching", "messages")
    _curves(panels[2][1], usual(rows, profiles=None), "profiles", "memory")
    panels[0][0].set_ylabel(PER)
    panels[1][0].set_ylabel(PER)
    panels[2][0].set(xlabel="share of matching events", ylabel="messages an event", xscale="log")
    panels[2][1].set(xlabel="profiles", ylabel="profiles held", xscale="log")
    house = [row for row in rows if row["piece"] == BUILDING]
    for row in house:
        panels[2][2].bar([LABELS[name].split()[0] for name in STRATEGIES], row[efficient],
                         color=[f"C{at}" for at in range(3)])  # fmt: skip
    panels[2][2].tick_params(axis="x", labelsize=8)
    panels[2][2].set(title=BUILDING, ylabel=PER, yscale="log")
    _plain(panels[2][2])
    boxes.draw(merged(rows), panels[3])
    for axes in panels[3]:
        _plain(axes)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _curves(axes: Axes, rows: Sequence[Row], along: str, cell: str) -> None:
    for place, (name, mark) in enumerate(zip(STRATEGIES, "os^", strict=True)):
        heights = [row[cell][place] for row in rows]
        axes.plot([row[along] for row in rows], heights, f"{mark}-", markersize=4, label=LABELS[name])
    axes.set_yscale("log")
    _plain(axes)


def _plain(axes: Axes) -> None:
    """Write the numbers of a logarithmic axis, without powers."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(NUMBERS)
    axes.yaxis.set_minor_locator(NullLocator())


EXPERIMENT = Experiment(
    "forwarding", "ways of forwarding compared", measure, text, claims, draw, SETTINGS, SIZES
)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
