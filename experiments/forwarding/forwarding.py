"""Profile forwarding, event forwarding and rendezvous nodes compared, by what Bittner (2004) varies.

The paper measured filter efficiency, network load and memory of a prototype, and gives neither values of
its parameters nor numbers. Here a broker's *work* is counted in steps, see `work`, and efficiency is the
number of events for which the busiest broker makes a million steps. In fewer and smaller worlds real brokers
are timed, see `busy`; there efficiency is events a second of the busiest broker. Messages and memory are
exact, see `identities`. Beyond the paper, a piece is about near boxes that are sent as one, see `boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from scipy.stats import spearmanr

from experiments.forwarding import boxes, busy
from experiments.forwarding.identities import EVENT, PROFILE, RENDEZVOUS, STRATEGIES, Loads, loads
from experiments.forwarding.worlds import Cell, World, building, drawn
from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from rtfilter.basics.text import plain
from rtfilter.replay.output import Row, table

WORD = 64
"""Profiles of a set that one step intersects."""
MESSAGES = (100, 1000, 10_000)
"""Steps for which the work of one message stands, to send it or to take it. Claims are judged by the middle
one: some ten microseconds, where a step takes some ten nanoseconds."""
FACTORS = (0.5, 0.75, 1.0)
"""To take an event may cost event forwarding this part of what it costs the others: its protocol is simple.
The paper does not say how much; the measured part decides, see `busy.fitted`."""
MANY, FEW = 0.6, 0.1
"""Many events match from this share on, few up to this one."""

_CELLS = {
    "brokers": (1, 2, 4, 8, 16, 32), "matching": (0.001, 0.01, 0.1, 0.3, 0.6, 1.0),
    "profiles": (1000, 10_000, 100_000), "types": (1, 10), "locality": (0.0, 0.5, 0.9),
    "covering": (0.0, 0.3, 0.8),
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "ci": {**_CELLS, "brokers": (1, 4, 16), "matching": (0.01, 0.1, 0.6, 1.0), "profiles": (1000, 10_000),
           "locality": (0.5,), "matched": (0.001, 0.1), "events": 200,
           "timed": {"brokers": (1, 4), "matching": (0.1, 0.6, 1.0), "profiles": (50, 100), "floors": 2,
                     "events": 40, "turns": 2}},
    "medium": {**_CELLS, "matched": (0.001, 0.01, 0.1), "events": 400,
               "timed": {"brokers": (1, 4, 8), "matching": (0.01, 0.1, 0.6, 1.0), "profiles": (100, 400),
                         "floors": 8, "events": 100, "turns": 3}},
}  # fmt: skip
SIZES["full"] = SIZES["medium"] | {"events": 1000, "timed": SIZES["medium"]["timed"] | {"turns": 9}}
SETTINGS = {"own": Setting("own", "random trees of brokers, profiles as ranges")}
BUILDING = "building control"
BOXES = "merged boxes"
BUSY = "busy brokers"
USUAL = Cell()
"""The default cell where a single parameter varies."""


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
    pieces = grid | {"matched profiles": some, BUILDING: [], BUSY: [], BOXES: []}
    costs = {name: sum(1000 + cell.profiles * cell.brokers for cell in own) for name, own in pieces.items()}
    costs[BUSY] = costs[BOXES] = sum(costs.values()) // 2
    for piece in run.pieces({name: max(float(cost), 1.0) for name, cost in costs.items()}):
        if piece == BUILDING:
            run.keep(piece, [counted(building(10 * sizes["events"], run.seed))])
            continue
        if piece == BUSY:
            run.keep(piece, list(timed(sizes["timed"], run.seed)))
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
    """Return the costs of each way of forwarding in a world: lists in the order of `STRATEGIES`."""
    found = loads(world)
    matched = world.matches() > 0
    row: Row = {
        "matches": float(world.weights[matched.any(axis=1)].sum()),
        "interested": float((matched.sum(axis=1) * world.weights).sum()),
        "messages": [found[name].messages for name in STRATEGIES],
        "memory": [found[name].memory for name in STRATEGIES],
    }
    for message in MESSAGES:
        busiest = [max(work(found[name], world.attributes, message)) for name in STRATEGIES]
        row[f"efficiency {message}"] = [1e6 / steps for steps in busiest]
    return row


def timed(sizes: Any, seed: int) -> Iterator[Row]:
    """Yield the times of real brokers for an event: a row per world, the last one of building control."""
    cells = [Cell(*own) for own in product(sizes["brokers"], sizes["matching"], sizes["profiles"])]
    worlds = [drawn(cell, sizes["events"], seed) for cell in cells]
    worlds.append(building(10 * sizes["events"], seed, sizes["floors"]))
    names = [*(cell._asdict() for cell in cells), {"floors": sizes["floors"]}]
    for name, found in zip(names, busy.measured(worlds, sizes["turns"]), strict=True):
        yield name | found


def work(own: Loads, attributes: int, message: int) -> list[float]:
    """Return steps of each broker for an event, on average.

    A step compares two values, or intersects 64 profiles of two sets, as filter nodes do: to filter an event
    takes a search among the bounds of each attribute, and for each one a set of all profiles that are held.
    Deliveries to clients are the same for all, and not counted.
    """
    held = own.held
    filtering = attributes * (np.log2(1 + 2 * held) + np.ceil(held / WORD))
    steps = message * (own.handled + own.sent) + (own.filtered * filtering).sum(axis=0)
    return [float(each) for each in steps]


# -- what is read from the rows ------------------------------------------------------------------------------


class Price(NamedTuple):
    """The assumed costs where steps are counted.

    Attributes
    ----------
    message : int
        Steps to send a message, or to take one.
    factor : float
        Steps of event forwarding to take an event, as a share of those of the others.
    """

    message: int
    factor: float


Prices = Mapping[str, Price | None]
"""The prices by name: the claims use the first, and the text reports the others. None: brokers were timed."""
TIMED: Prices = {"": None}


def prices(rows: Sequence[Row]) -> dict[str, Price]:
    """Return the prices that turn counts into efficiency; the middle message cost comes first."""
    measured = busy.fitted(real(rows)).factor
    first, middle, last = MESSAGES
    return {
        "": Price(middle, measured),
        **{f"a message is {steps:,} steps": Price(steps, measured) for steps in (first, last)},
        **{f"the factor is {factor:g}": Price(middle, factor) for factor in FACTORS},
    }


def modelled(rows: Sequence[Row]) -> list[Row]:
    """Return the worlds that were counted, without those where the share of matched profiles varies."""
    return [
        row for row in rows
        if "brokers" in row and "messages" in row and row["piece"] != "matched profiles"
    ]  # fmt: skip


def real(rows: Sequence[Row]) -> list[Row]:
    """Return the worlds in which real brokers were timed."""
    return [row for row in rows if "brokers" in row and "busy" in row]


def several(rows: Sequence[Row]) -> list[Row]:
    """Return the worlds of more than one broker."""
    return [row for row in rows if row["brokers"] > 1]


def efficiency(row: Row, strategy: str, price: Price | None) -> float:
    """Return events for which the busiest broker makes a million steps; or is busy for a second."""
    place = STRATEGIES.index(strategy)
    if price is None:
        return 1e6 / float(max(row["busy"][place]))
    found = float(row[f"efficiency {price.message}"][place])
    if strategy != EVENT:
        return found
    # By event forwarding each broker takes each event once, so that all of them need as much less.
    return 1e6 / (1e6 / found - (1 - price.factor) * price.message)


def best(row: Row, price: Price | None) -> str:
    """Return the most efficient way of forwarding."""
    return max(STRATEGIES, key=lambda name: efficiency(row, name, price))


def series(rows: Sequence[Row], along: str) -> Iterator[list[Row]]:
    """Yield rows in which one parameter alone varies."""
    others = [name for name in Cell._fields if name != along]

    def key(row: Row) -> list[Any]:
        return [row[name] for name in others]

    for _, found in groupby(sorted(rows, key=lambda row: [*key(row), row[along]]), key):
        yield list(found)


Sure = Callable[[Any, Price | None], bool]


def _in(sure: Sure, worlds: Sequence[Any], prices: Prices, more: str = "", many: bool = False) -> Finding:
    """Return in how many worlds something is so, by each price; judged by the first one.

    `many`: whether it is so in more than half of them.
    """
    counts = {told: sum(sure(world, price) for world in worlds) for told, price in prices.items()}
    judged, *others = counts
    varied = ", ".join(f"{counts[told]:,} if {told}" for told in others if counts[told] != counts[judged])
    held = [sure(world, prices[judged]) for world in worlds]
    verdict = verdicts.in_cases([2 * sum(held) > len(held)] if many and held else held)
    found = f"in {counts[judged]:,} of {len(worlds):,} worlds{f' ({varied})' if varied else ''}"
    return Finding(found + more, verdict)


def _exactly(sure: Sequence[bool], more: str = "") -> Finding:
    """Return a finding that does not depend on costs."""
    return Finding(f"in {sum(sure):,} of {len(sure):,} worlds{more}", verdicts.in_cases(sure))


def _is_best(strategy: str, worlds: Sequence[Row], prices: Prices, many: bool = False) -> Finding:
    return _in(lambda row, price: best(row, price) == strategy, worlds, prices, many=many)


def _gain(strategy: str, gains: bool, worlds: Sequence[Row], prices: Prices) -> Finding:
    """Return whether the largest network beats a single broker; or, without `gains`, that none does."""
    lines = [own for own in series(worlds, "brokers") if len(own) > 1]

    def ratio(one: Row, other: Row, price: Price | None) -> float:
        return efficiency(other, strategy, price) / efficiency(one, strategy, price)

    def sure(own: Sequence[Row], price: Price | None) -> bool:
        if gains:
            return ratio(own[0], own[-1], price) > 1
        return all(ratio(own[0], row, price) <= 1 + verdicts.NEGLIGIBLE for row in own)

    judged = next(iter(prices.values()))
    ratios = sorted(ratio(own[0], own[-1], judged) for own in lines)
    peak = max((ratio(own[0], row, judged) for own in lines for row in own), default=1.0)
    most = lines[0][-1]["brokers"] if lines else 0
    more = (
        f"; {most} brokers are {_span(ratios)} times as efficient as one, "
        f"the best number of them up to {plain(peak, 2, ',')} times"
    )
    return _in(sure, lines, prices, more)


def _span(ratios: Sequence[float]) -> str:
    return f"{plain(ratios[0], 2, ',')} to {plain(ratios[-1], 2, ',')}" if ratios else "not known"


def _trend(worlds: Sequence[Row], prices: Prices) -> Finding:
    """Return whether event forwarding gains on profile forwarding as more events match."""

    def sure(own: Sequence[Row], price: Price | None) -> bool:
        curve = [efficiency(row, EVENT, price) / efficiency(row, PROFILE, price) for row in own]
        return float(spearmanr(range(len(curve)), curve).statistic) > verdicts.RISES

    return _in(sure, [own for own in series(several(worlds), "matching") if len(own) > 2], prices)


def _scales(worlds: Sequence[Row], prices: Prices) -> Finding:
    """Return whether many profiles cost event forwarding less of its efficiency than profile forwarding."""
    lines = [own for own in series(several(worlds), "profiles") if len(own) > 1]
    judged = next(iter(prices.values()))

    def kept(own: Sequence[Row], strategy: str, price: Price | None) -> float:
        return efficiency(own[-1], strategy, price) / efficiency(own[0], strategy, price)

    told = "".join(
        f"; {name} keeps {_span(sorted(kept(own, name, judged) for own in lines))}"
        for name in (EVENT, PROFILE)
    )
    return _in(lambda own, price: kept(own, EVENT, price) > kept(own, PROFILE, price), lines, prices, told)


def _where(least: float, most: float, strategy: str, worlds: Sequence[Row], prices: Prices) -> Finding:
    """Return whether a way of forwarding is the best where such a share of events matches."""
    own = [row for row in several(worlds) if least <= row["matching"] <= most]
    return _is_best(strategy, own, prices)


Judge = Callable[[Sequence[Row], Prices], Finding]

EFFICIENT: list[tuple[str, str, Judge]] = [
    (f"where {percent(MANY)} of the events match or more, event forwarding is the most efficient",
     "it is, where many match", partial(_where, MANY, 1.0, EVENT)),
    (f"where {percent(FEW)} match or fewer, profile forwarding is", "otherwise it is",
     partial(_where, 0.0, FEW, PROFILE)),
    ("the more events match, the better event forwarding does beside profile forwarding", "", _trend),
    ("profile forwarding gains efficiency from more brokers", "it alone does", partial(_gain, PROFILE, True)),
    ("event forwarding does not", "it does not", partial(_gain, EVENT, False)),
    ("rendezvous nodes do not", "they do not", partial(_gain, RENDEZVOUS, False)),
    ("profile forwarding is the most efficient in more than half of the worlds", "in many settings",
     lambda worlds, prices: _is_best(PROFILE, several(worlds), prices, many=True)),
    ("event forwarding keeps more of its efficiency when profiles become many",
     "it scales better with profiles", _scales),
    ("rendezvous nodes are never the most efficient", "never better in any configuration",
     lambda worlds, prices: _in(lambda row, price: best(row, price) != RENDEZVOUS, several(worlds), prices)),
]  # fmt: skip
"""Claims on efficiency: what the paper says, and how worlds and prices are judged."""


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's claims, with findings in steps, and in busy time of real brokers."""
    worlds, price = modelled(rows), prices(rows)
    made = [
        Claim(told, paper, judge(worlds, price), judge(real(rows), TIMED)) for told, paper, judge in EFFICIENT
    ]
    (house,) = [row for row in rows if row["piece"] == BUILDING]
    (busy_house,) = [row for row in rows if row["piece"] == BUSY and "brokers" not in row]
    made.append(
        Claim("for building control, profile forwarding is the most efficient", "it is the best",
              *(_house(row, own) for row, own in ((house, price), (busy_house, TIMED))))
    )  # fmt: skip
    made.append(
        Claim("event forwarding takes an event for less than profile forwarding", "a simple protocol",
              Finding("assumed: each of the factors beside the counts", verdicts.DOES_NOT_APPLY),
              _simple(real(rows)))
    )  # fmt: skip
    exact = _on_loads(several(worlds), house)
    return made + [Claim(told, paper, finding, verdicts.NOT_TIMED) for told, paper, finding in exact]


def _house(row: Row, prices: Prices) -> Finding:
    judged = next(iter(prices.values()))
    efficient = [f"{name} {plain(efficiency(row, name, judged), 3, ',')}" for name in STRATEGIES]
    found = _is_best(PROFILE, [row], prices)
    return found._replace(ours=f"{found.ours}; {', '.join(efficient)}")


def _simple(rows: Sequence[Row]) -> Finding:
    """Return whether the measured factor is clearly below 1, whichever world is left out."""
    factor, (least, most) = busy.fitted(rows).factor, busy.spread(rows)
    told = f"for {factor:.2f} of the time, {least:.2f} to {most:.2f} if any world is left out"
    return Finding(told, verdicts.HOLDS if most < 1 - verdicts.NEGLIGIBLE else verdicts.FAILS)


def _on_loads(worlds: Sequence[Row], house: Row) -> list[tuple[str, str, Finding]]:
    """Return claims on messages and memory, which are exact."""
    one, other, third = (STRATEGIES.index(name) for name in (PROFILE, EVENT, RENDEZVOUS))
    return [
        ("profile forwarding sends no more messages than the others", "in many settings the least load",
         _exactly([row["messages"][one] <= min(row["messages"]) * (1 + 1e-4) for row in worlds])),
        ("profile forwarding holds more profiles than the others", "much memory",
         _exactly([row["memory"][one] > max(row["memory"][1:]) for row in worlds],
                  _times(worlds, "memory", one, other, "event forwarding"))),
        ("event forwarding sends the most messages", "its load is always very high",
         _exactly([row["messages"][other] >= max(row["messages"]) for row in worlds],
                  _times(worlds, "messages", other, one, "profile forwarding"))),
        ("event forwarding holds the fewest profiles, each once", "its memory is optimal",
         _exactly([row["memory"][other] == min(row["memory"]) == row["profiles"] for row in worlds])),
        ("rendezvous nodes never send the fewest messages", "never better in any configuration",
         _exactly([row["messages"][third] > min(row["messages"]) for row in worlds])),
        ("rendezvous nodes never hold the fewest profiles", "never better in any configuration",
         _exactly([row["memory"][third] > min(row["memory"]) for row in worlds])),
        ("for building control, profile forwarding sends the fewest messages", "it is the best",
         _exactly([house["messages"][one] == min(house["messages"])], "; " + ", ".join(
             f"{name} {plain(count, 3, ',')}" for name, count in
             zip(STRATEGIES, house["messages"], strict=True)))),
    ]  # fmt: skip


def _times(rows: Sequence[Row], cell: str, one: int, other: int, name: str) -> str:
    ratios = sorted(row[cell][one] / row[cell][other] for row in rows if row[cell][other])
    return f"; {_span(ratios)} times those of {name}"


def usual(rows: Sequence[Row], **given: Any) -> list[Row]:
    """Return rows of the usual world, but for what is given; None lets it vary."""
    wanted = _usual(rows)._replace(**given)._asdict()
    return [
        row for row in modelled(rows)
        if all(value is None or row[name] == value for name, value in wanted.items())
    ]  # fmt: skip


def _usual(rows: Sequence[Row]) -> Cell:
    """Return the usual world, with the fewest types."""
    return USUAL._replace(brokers=max(b for row in modelled(rows) if (b := row["brokers"]) <= USUAL.brokers))


def text(rows: Sequence[Row]) -> str:
    """Return efficiency, messages and memory where one parameter varies, and what was the best where."""
    own, price = _usual(rows), prices(rows)[""]
    parts = [
        table([_line(row, along, price) for row in usual(rows, **{along: None})], _columns(along))
        for along in ("matching", "brokers", "profiles", "types", "locality", "covering")
    ]
    varied = [row for row in rows if row["piece"] == "matched profiles" and row["matching"] == own.matching]
    parts.append(table([_line(row, "matched", price) for row in varied], _columns("matched")))
    house = [row for row in rows if row["piece"] == BUILDING]
    parts.append(table([_line(row | {"building": "control"}, "building", price) for row in house],
                       _columns("building")))  # fmt: skip
    by_factor = {f"{EVENT} {factor:g}": f"{EVENT} at {factor:g}" for factor in FACTORS}
    parts.append(table(list(_winners(rows, price)), {"matching": "most efficient in worlds", **{
        name: name for name in STRATEGIES}, **by_factor}))  # fmt: skip
    notes = (
        f"Where it does not vary: {own.brokers} brokers, {percent(own.matching)} of the events match, "
        f"{own.profiles:,} profiles, {own.types} type,\nlocality {own.locality:g}, "
        f"covering {own.covering:g}.\nEfficiency: events for which the busiest broker makes a million steps, "
        f"a message being {MESSAGES[1]:,}.\nPW: profile forwarding, EW: event forwarding, "
        "RK: rendezvous nodes.\nEvent at 0.5: where event forwarding would be the most efficient if it took "
        "an event for half\nof what the others need."
    )
    return "\n\n".join(
        part for part in (*parts, notes, busy.text(real(rows)), boxes.text(merged(rows))) if part
    )


def merged(rows: Sequence[Row]) -> list[Row]:
    """Return the rows about near boxes that are sent as one."""
    return [row for row in rows if row["piece"] == BOXES]


def _line(row: Row, along: str, price: Price) -> Row:
    line: Row = {along: str(row[along])}
    for cell in ("efficiency", "messages", "memory"):
        values = _values(row, cell, price)
        line |= {f"{cell} {name}": value for name, value in zip(STRATEGIES, values, strict=True)}
    return line


def _values(row: Row, cell: str, price: Price) -> list[float]:
    """Return the efficiency, or what else is known, of each way of forwarding."""
    if cell == "efficiency":
        return [efficiency(row, name, price) for name in STRATEGIES]
    return list(row[cell])


def _columns(along: str) -> dict[str, str]:
    short = dict(zip(STRATEGIES, ("PW", "EW", "RK"), strict=True))
    titles = {"efficiency": "eff.", "messages": "msgs", "memory": "held"}
    return {along: along} | {
        f"{cell} {name}": f"{title} {code}" for cell, title in titles.items() for name, code in short.items()
    }


def _winners(rows: Sequence[Row], price: Price) -> Iterator[Row]:
    worlds = several(modelled(rows))
    for share in sorted({row["matching"] for row in worlds}):
        own = [row for row in worlds if row["matching"] == share]
        yield {"matching": f"{percent(share, 1)} match"} | {
            name: sum(best(row, price) == name for row in own) for name in STRATEGIES
        } | {
            f"{EVENT} {factor:g}": sum(best(row, Price(price.message, factor)) == EVENT for row in own)
            for factor in FACTORS
        }  # fmt: skip


NUMBERS = FuncFormatter(lambda value, _: f"{value:,.10g}")
PER = "events per million steps"
LABELS = {PROFILE: "profile forwarding", EVENT: "event forwarding", RENDEZVOUS: "rendezvous nodes"}


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw efficiency by share of matching events and by brokers, as the paper does; messages and memory.

    Merged boxes are in the last line.
    """
    counts, price = sorted({row["profiles"] for row in modelled(rows)}), prices(rows)[""]
    figure = Figure(figsize=(9, 11.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(4, 3, squeeze=False)
    for place, profiles in enumerate(counts[:3]):
        _curves(
            panels[0][place], usual(rows, profiles=profiles, matching=None), "matching", "efficiency", price
        )
        _curves(
            panels[1][place], usual(rows, profiles=profiles, brokers=None), "brokers", "efficiency", price
        )
        panels[0][place].set(title=f"{profiles:,} profiles", xlabel="share of matching events", xscale="log")
        panels[1][place].set(title=f"{profiles:,} profiles", xlabel="brokers")
        panels[1][place].set_xscale("log", base=2)
        panels[1][place].xaxis.set_major_formatter(NUMBERS)
    _curves(panels[2][0], usual(rows, matching=None), "matching", "messages", price)
    _curves(panels[2][1], usual(rows, profiles=None), "profiles", "memory", price)
    panels[0][0].set_ylabel(PER)
    panels[1][0].set_ylabel(PER)
    panels[2][0].set(xlabel="share of matching events", ylabel="messages an event", xscale="log")
    panels[2][1].set(xlabel="profiles", ylabel="profiles held", xscale="log")
    house = [row for row in rows if row["piece"] == BUILDING]
    for row in house:
        panels[2][2].bar([LABELS[name].split()[0] for name in STRATEGIES],
                         _values(row, "efficiency", price), color=[f"C{at}" for at in range(3)])  # fmt: skip
    panels[2][2].tick_params(axis="x", labelsize=8)
    panels[2][2].set(title=BUILDING, ylabel=PER, yscale="log")
    _plain(panels[2][2])
    boxes.draw(merged(rows), panels[3])
    for axes in panels[3]:
        _plain(axes)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _curves(axes: Axes, rows: Sequence[Row], along: str, cell: str, price: Price) -> None:
    for place, (name, mark) in enumerate(zip(STRATEGIES, "os^", strict=True)):
        heights = [_values(row, cell, price)[place] for row in rows]
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
