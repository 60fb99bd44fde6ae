"""The picture of a survey: one line per peer, time per event, build time and memory by each variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import peers
from experiments.speed.survey_plan import Plan
from rtfilter.replay.output import Row, save_picture

#: Batch size of the panels that do not vary it.
BATCH = 1000
MEASURES = {"us": "us per event", "build_us": "build, us per box", "bytes": "bytes per box"}


class Column(NamedTuple):
    """Panels below each other that share a variable."""

    title: str
    variable: str
    fixed: Mapping[str, Any]
    """What its rows have."""
    measures: tuple[str, ...]


def columns(plan: Plan) -> list[Column]:
    """What to draw of a plan, without variables that have one value."""
    every, n, found = tuple(MEASURES), plan.default, []
    for name in plan.varied:
        found += [
            Column(name, "subscriptions", {"workload": name, "dimensions": 12, "batch": BATCH}, every),
            Column(name, "dimensions", {"workload": name, "subscriptions": n, "batch": BATCH}, every),
            Column(name, "batch", {"workload": name, "subscriptions": n, "dimensions": 12}, ("us",)),
        ]
    found.append(Column("boxes of one side", "side", {"workload": "sided", "batch": BATCH}, every))
    values = {
        "subscriptions": plan.subscriptions,
        "dimensions": plan.dimensions,
        "batch": plan.batches,
        "side": plan.sides,
    }
    return [column for column in found if len(values[column.variable]) > 1]


def draw(rows: Sequence[Row], plan: Plan, path: Path) -> None:
    """Write the picture."""
    chosen = columns(plan)
    figure = Figure(figsize=(3.6 * len(chosen), 9), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(chosen), squeeze=False)
    for column, below in zip(chosen, grid.T, strict=True):
        found = [row for row in rows if "skipped" not in row and _has(row, column.fixed)]
        below[0].set_title(f"{column.title}, by {column.variable}")
        for (measure, label), axes in zip(MEASURES.items(), below, strict=True):
            if measure in column.measures:
                _panel(axes, found, column.variable, measure)
                axes.set(xlabel=column.variable, ylabel=label)
            else:
                axes.set_axis_off()
    lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=6)
    save_picture(figure, path, dpi=90)


def _has(row: Row, fixed: Mapping[str, Any]) -> bool:
    return all(row[key] == value for key, value in fixed.items())


def _panel(axes: Axes, rows: Sequence[Row], variable: str, measure: str) -> None:
    colors = dict(zip(peers.PEERS, colormaps["tab20"].colors, strict=False))  # type: ignore[attr-defined]
    for peer, color in colors.items():
        own = sorted(
            (row[variable], row[measure]) for row in rows if row["peer"] == peer and row[measure] is not None
        )
        if own:
            axes.plot(
                *zip(*own, strict=True), ".-", color=color, label=peer, lw=3 if peer == peers.OURS else 1
            )
    axes.set(xscale="log", yscale="log")
    values = sorted({row[variable] for row in rows})
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.minorticks_off()
