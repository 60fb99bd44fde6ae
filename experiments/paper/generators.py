"""The meaning of "12-d" boxes: the gain of shortest first by generator of boxes and building of their tree.

The paper gives neither. The gain in perfect order is nG/(n+1) (Wang et al.), where G is the Gini coefficient
of the work of the events. It is large if some events meet many more boxes than others do, which is up to the
generator, and if the nodes of the tree follow the boxes, which is up to the building of the tree.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import fmean

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.other_boxes import centred, sided
from experiments.paper import confidence, fig4b
from experiments.paper.confidence import Interval
from experiments.paper.index import Growing, GrowingFilter, growing
from experiments.paper.plans import ARRIVAL, level_of
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import PAPER_CAPACITY, SETTINGS, Setting
from experiments.paper.times import interval
from experiments.paper.timing import compared, measured
from experiments.paper.verdicts import (
    DOES_NOT_APPLY,
    HOLDS,
    NEARLY_HALF,
    NOT_TIMED,
    OBSERVED,
    Claim,
    Finding,
    Three,
    in_cases,
    nearly_half,
)
from experiments.paper.work import by_level
from rtfilter.basics.dtypes import IntArray
from rtfilter.index.tree import RStarTree
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BoxWorkload
from rtfilter.replay.workloads.random_boxes import sparse

GENERATORS = {
    setting.name: setting
    for setting in (
        Setting("wide", "two sorted uniform draws", PAPER_CAPACITY),
        Setting("centred", "uniform centre, uniform half-width", PAPER_CAPACITY, centred),
        Setting("half", "uniform centre, half of the domain", PAPER_CAPACITY, partial(sided, side=0.5)),
        Setting("narrow", "uniform centre, a quarter of the domain", PAPER_CAPACITY, "narrow"),
        Setting("clustered", "centres and events in 20 clusters", PAPER_CAPACITY, "clustered"),
        Setting("sparse", "2 to 5 of 12 attributes constrained", PAPER_CAPACITY,
                partial(sparse, dimensions=12)),
        SETTINGS["transform"]._replace(title="six sorted draws as points of 12"),
        SETTINGS["flights"]._replace(title="alerts on real flights"),
        SETTINGS["weather"]._replace(title="alerts on real weather"),
    )
}  # fmt: skip
"""The generators of subscriptions by name; see `rtfilter.replay.workloads`. The first one gains about as
much as the paper's."""
INSERTED, PACKED = "inserted", "packed"
"""The ways to build a tree: boxes are inserted individually, or packed at once."""
BUILDINGS = (INSERTED, PACKED)
SEEDS = 3
"""Number of seeds, from that of the run on. Times are taken for the first."""
TIMED = 64
"""Events of a batch in time."""
BATCHES = (TIMED, 256)
"""Events of a batch in work units; the same events are cut into batches of either size."""
MATCHED = 500
"""Number of events whose matches are counted."""


def measure(run: Run) -> None:
    """Build the tree in both ways for each generator and seed, and compare its levels."""
    costs = {
        f"{name}, seed {seed}": 1.0 if seed > run.seed else 3.0
        for name in GENERATORS
        for seed in range(run.seed, run.seed + SEEDS)
    }
    for piece in run.pieces(costs):
        name, _, seed = piece.partition(", seed ")
        run.keep(piece, list(cells(run, GENERATORS[name], int(seed))))
        gc.unfreeze()  # `timing.calls` froze objects of an index that is gone now


def cells(run: Run, setting: Setting, seed: int) -> Iterator[Row]:
    """Yield the rows of one generator and seed: of both buildings, in work units and in time."""
    size = run.profile.drawn // setting.divisor
    index = growing(setting, seed)
    index.grow(size)
    points = index.points(0, run.profile.batches * TIMED)
    found = matches(index, setting, seed)
    for building in BUILDINGS:
        if building == PACKED:
            index.repack()
        key = {"generator": setting.name, "building": building, "seed": seed, "size": size}
        run.tell(f"{setting.name}, seed {seed}: {building}, visits")
        visits = index.levels().visits(points)
        units = {}
        for batch in BATCHES:
            count = len(visits) // batch
            units[batch] = in_units(visits[: count * batch].reshape(count, batch, -1))
            yield {"kind": "visits", **key, "matches": found, **units[batch]}
        if isinstance(index, GrowingFilter) and seed == run.seed:
            best = units[TIMED]["judged"]["plan"]
            yield {"kind": "seconds", **key, "units": best, **measured(run, index, TIMED, False, [best])}


def in_units(visits: IntArray) -> Row:
    """Return a row for the visits of b batches of n events at each level, int64 (b, n, H)."""
    found, batch = by_level(visits), visits.shape[1]
    return {
        "batch": batch,
        "visits": float(visits.sum(axis=2).mean()),
        "gains": (1 - found.response.mean(axis=0) / found.random.mean()).tolist(),
        **fig4b.in_units(found, batch),
    }


def matches(index: Growing, setting: Setting, seed: int) -> float:
    """Return the mean number of subscriptions that match an event."""
    if isinstance(index, GrowingFilter):
        return float(index.filter.count(index.events(0, MATCHED)).mean())
    source = setting.source(seed)
    assert isinstance(source, BoxWorkload)
    boxes = RStarTree.bulk_load(*source.subscriptions(0, index.size))
    return float(boxes.count(source.events(0, MATCHED)).mean())


class Cell:
    """All rows of one generator and building.

    Attributes
    ----------
    generator, building : str
    """

    def __init__(self, rows: Sequence[Row], generator: str, building: str) -> None:
        self.generator, self.building = generator, building
        own = [row for row in rows if (row["generator"], row["building"]) == (generator, building)]
        self._visits = [row for row in own if row["kind"] == "visits"]
        self.timed = next((row for row in own if row["kind"] == "seconds"), None)
        """The row with times; None if none were taken."""

    @property
    def name(self) -> str:
        """The generator and the building, as text."""
        return f"{self.generator} {self.building}"

    def of(self, batch: int) -> list[Row]:
        """Return the rows in work units of a batch size, by seed."""
        return sorted((row for row in self._visits if row["batch"] == batch), key=lambda row: row["seed"])

    def gains(self, batch: int) -> list[float]:
        """Return the gain within the range of the paper, by seed."""
        return [row["judged"]["gain"][0] for row in self.of(batch)]

    def gain(self, batch: int) -> Three:
        """Return the mean gain over the seeds, from the lowest to the highest end of their intervals."""
        found = [row["judged"]["gain"] for row in self.of(batch)]
        return fmean(self.gains(batch)), min(low for _, low, _ in found), max(high for _, _, high in found)


def cells_of(rows: Sequence[Row]) -> list[Cell]:
    """Return the generators and buildings of a result, in the order in which they were measured."""
    names = dict.fromkeys((row["generator"], row["building"]) for row in rows)
    return [Cell(rows, *name) for name in names]


def text(rows: Sequence[Row]) -> str:
    """Return the gain by generator, building and seed in work units, and in time, as tables."""
    found = cells_of(rows)
    sizes = {row["generator"]: row["size"] for row in rows}
    drawn = [f"{name}: {GENERATORS[name].title}; {size:,} of them" for name, size in sizes.items()]
    parts = ["\n".join(drawn)]
    for batch in BATCHES:
        columns = {
            "name": f"batches of {batch}", "height": "height", "matches": "matches",
            "visits": "visits", "law": "nG/(n+1)", "level": "level", "share": "share", "gain": "gain by seed",
            "all": "all levels",
        }  # fmt: skip
        parts.append(table([_in_units(cell, batch) for cell in found], columns))
    timed = [_in_time(cell) for cell in found if cell.timed]
    if timed:
        columns = {
            "name": f"time, {TIMED} events", "ms": "arrival, ms", "units": "by units",
            "range": "fastest in range", "all": "fastest of all", "fifo": "fifo", "longest": "longest",
        }  # fmt: skip
        parts.append(table(timed, columns))
    return "\n\n".join(parts)


def brief(rows: Sequence[Row]) -> str:
    """Return the gain in the largest batches by generator and building, in work and time, as one table."""
    lines: dict[str, Row] = {}
    for cell in cells_of(rows):
        line = lines.setdefault(cell.generator, {"boxes": GENERATORS[cell.generator].title})
        line[cell.building] = percent(fmean(cell.gains(BATCHES[-1])))
        if cell.timed:
            line[f"{cell.building} in time"] = _in_time(cell)["range"].partition(": ")[2]
    columns = ("boxes", "inserted", "packed", "inserted in time", "packed in time")
    return table(list(lines.values()), {key: key for key in columns})


def _in_units(cell: Cell, batch: int) -> Row:
    own = cell.of(batch)
    return {
        "name": cell.name,
        "height": _joined(row["height"] for row in own),
        "matches": fmean(row["matches"] for row in own),
        "visits": fmean(row["visits"] for row in own),
        "law": fmean(row["law"] for row in own),
        "level": _joined(level_of(row["judged"]["plan"]) for row in own),
        "share": percent(fmean(row["judged"]["share"][0] for row in own)),
        "gain": " ".join(percent(gain).removesuffix(" %") for gain in cell.gains(batch)) + " %",
        "all": percent(fmean(row["best"]["gain"][0] for row in own)),
    }


def _joined(values: Iterable[int]) -> str:
    return ", ".join(str(value) for value in sorted(set(values)))


def _in_time(cell: Cell) -> Row:
    assert cell.timed is not None
    judged, best = compared(cell.timed, "judged"), compared(cell.timed, "best")
    return {
        "name": cell.name,
        "ms": 1e3 * best["random"][0],
        "units": f"{level_of(cell.timed['units'])}: {percent(_by_units(cell.timed)[0])}",
        "range": f"{level_of(judged['plan'])}: {interval(judged['gain'])}",
        "all": f"{level_of(best['plan'])}: {interval(best['gain'])}",
        "fifo": percent(best["fifo"][0]),
        "longest": percent(best["longest"][0]),
    }


def _by_units(row: Row) -> Interval:
    """Return the gain in time of the level that is best in work units."""
    return confidence.faster(row["times"][row["units"]], row["times"][ARRIVAL])


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return for which boxes and trees the gain is nearly 50 %, and the effect of generator and building.

    In work units the gain is that of the largest batches. In both it is that of the best level within the
    range of the paper.
    """
    found = cells_of(rows)
    most = max(BATCHES)
    units = {cell.name: cell.gain(most) for cell in found}
    time: dict[str, Three] = {
        cell.name: compared(cell.timed, "judged")["gain"] for cell in found if cell.timed
    }
    first = found[0]
    own = nearly_half(units[first.name])
    return [
        Claim(
            f"the gain is nearly 50 % at most: {GENERATORS[first.generator].title}, {first.building}",
            "nearly 50 %",
            Finding(f"{interval(units[first.name])} at {most} events, {len(first.of(most))} seeds", own),
            Finding(f"{interval(time[first.name])} at {TIMED} events", nearly_half(time[first.name]))
            if first.name in time
            else NOT_TIMED,
        ),
        Claim(
            "the gain is nearly 50 % at most, however boxes are drawn and the tree was built",
            "not said",
            _everywhere(units),
            _everywhere(time),
        ),
        Claim(
            "the gain by how boxes are drawn, inserted one by one",
            "not asked",
            _observed({cell.generator: units[cell.name][0] for cell in found if cell.building == INSERTED}),
            _observed(
                {
                    cell.generator: time[cell.name][0]
                    for cell in found
                    if cell.building == INSERTED and cell.name in time
                }
            ),
        ),
        Claim(
            "the gain by how the tree was built: packed less inserted",
            "not asked",
            _observed(_packed(units)),
            _observed(_packed(time)),
        ),
    ]


def _everywhere(gains: dict[str, Three]) -> Finding:
    """Return in how many cases the gain is surely nearly 50 %, and in which."""
    if not gains:
        return NOT_TIMED
    where = [name for name, gain in gains.items() if nearly_half(gain) == HOLDS]
    values = [value for value, _, _ in gains.values()]
    told = f"{percent(min(values))} to {percent(max(values))}; surely for {len(where)} of {len(gains)}"
    return Finding(
        told + (f": {', '.join(where)}" if where else ""), in_cases([name in where for name in gains])
    )


def _packed(gains: dict[str, Three]) -> dict[str, float]:
    """Return the gain of a packed tree less that of one that was inserted into, by generator."""
    names = (name.removesuffix(f" {PACKED}") for name in gains if name.endswith(PACKED))
    return {name: gains[f"{name} {PACKED}"][0] - gains[f"{name} {INSERTED}"][0] for name in names}


def _observed(values: dict[str, float], points: bool = False) -> Finding:
    if not values:
        return Finding(NOT_TIMED.ours, DOES_NOT_APPLY)
    told = [
        f"{name} {100 * value:+.0f}" if points else f"{name} {percent(value)}"
        for name, value in values.items()
    ]
    return Finding(", ".join(told) + (" points" if points else ""), OBSERVED)


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the gain by generator, inserted and packed side by side, in work units and in time."""
    found = cells_of(rows)
    names = list(dict.fromkeys(cell.generator for cell in found))
    figure = Figure(figsize=(11, 2 + 0.5 * len(names)), layout="constrained")
    figure.suptitle(title)
    units, time = figure.subplots(1, 2, sharey=True)
    for cell in found:
        place = names.index(cell.generator) + (-0.18 if cell.building == INSERTED else 0.18)
        color = "tab:blue" if cell.building == INSERTED else "tab:orange"
        gains = cell.gains(TIMED)
        units.plot(
            gains, [place] * len(gains), "o", color=color, ms=5, alpha=0.7, label=f"{cell.building}, a seed"
        )
        law = fmean(row["law"] for row in cell.of(TIMED))
        units.plot(law, place, "|", color=color, ms=12, mew=2, label=f"{cell.building}, nG/(n+1)")
        if cell.timed:
            _bars(time, cell.timed, place, color, cell.building)
    untimed = [names.index(cell.generator) for cell in found if not cell.timed and cell.building == PACKED]
    for place in untimed:
        time.text(0.005, place, "not timed", va="center", fontsize=8)
    units.set_yticks(range(len(names)), [GENERATORS[name].title for name in names])
    units.invert_yaxis()
    units.set_xlabel(f"gain in work units, batches of {TIMED}")
    time.set_xlabel(f"gain in time, batches of {TIMED}, one seed")
    handles: dict[str, Artist] = {}
    for axes in (units, time):
        axes.axvspan(*NEARLY_HALF, color="tab:green", alpha=0.15, lw=0, label='"nearly 50 %"')
        axes.axvline(0, color="k", lw=0.8)
        axes.grid(axis="x", alpha=0.3)
        axes.xaxis.set_major_formatter(lambda value, _: percent(value))
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), fontsize=8, loc="outside lower center", ncols=4)
    return figure


def _bars(axes: Axes, row: Row, place: float, color: str, building: str) -> None:
    """Draw the gain of the fastest levels with their intervals, and of other orders at that of all levels."""
    kinds = (("judged", -0.07, "o", color, "in the paper's range"), ("best", 0.07, "D", "white", "of all"))
    for which, offset, mark, fill, what in kinds:
        value, low, high = compared(row, which)["gain"]
        axes.errorbar(
            value, place + offset, xerr=[[value - low], [high - value]], fmt=mark, color=color, mfc=fill,
            ms=5, label=f"{building}, fastest {what}",
        )  # fmt: skip
    best = compared(row, "best")
    for order, mark, what in (("fifo", "x", "arrival order"), ("longest", "+", "longest first")):
        label = f"{building}, same level, {what}"
        axes.plot(best[order][0], place + 0.07, mark, color=color, ms=6, label=label)


EXPERIMENT = Experiment("generators", "gain by how boxes are drawn and indexed", measure, text, claims, draw)
SETTING_NAMES = ("paper",)
main = partial(main, EXPERIMENT, SETTING_NAMES)
