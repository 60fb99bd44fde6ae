"""The picture of the contest: the fastest matchers, workloads by numbers of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.contest.tables import batches, best, calls, sizes, workloads
from rtfilter.replay.output import Row, save_picture
from rtfilter.text import plain

WIDTH, LINE = 9.6, 0.5
"""Inches: of the picture, and of each workload."""
LONG = 16
"""Letters of a name that are not broken."""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, 960 pixels wide: the size at which a page shows it."""
    columns = batches(rows)
    figure = Figure(figsize=(WIDTH, 1.2 + LINE * len(workloads(rows))), layout="constrained")
    panels = figure.subplots(1, max(1, len(columns)), sharey=True, squeeze=False)[0]
    colors = _colors(rows)
    for axes, batch in zip(panels, columns, strict=False):
        _panel(axes, rows, batch, colors)
    figure.suptitle("the fastest matcher, and its µs per event, by number of subscriptions", fontsize=11)
    save_picture(figure, path, dpi=100)


def _colors(rows: Sequence[Row]) -> dict[str, tuple[float, float, float]]:
    """Return a colour for each matcher that wins a cell, by number of wins; light colours come last."""
    won: dict[str, int] = {}
    for batch in batches(rows):
        for workload in workloads(rows):
            for size in sizes(rows):
                own = best(rows, workload, size, batch)
                if own is not None:
                    won[own.matchers[0]] = won.get(own.matchers[0], 0) + 1
    palette = colormaps["tab20"].colors  # type: ignore[attr-defined]
    chosen = [to_rgb(color) for color in (*palette[1::2], *palette[::2])]
    names = sorted(won, key=lambda name: -won[name])
    return {name: chosen[place % len(chosen)] for place, name in enumerate(names)}


def _panel(
    axes: Axes, rows: Sequence[Row], batch: str, colors: dict[str, tuple[float, float, float]]
) -> None:
    names, columns = workloads(rows), sizes(rows)
    for line, workload in enumerate(names):
        for column, size in enumerate(columns):
            own = best(rows, workload, size, batch)
            if own is None:
                continue
            name = own.matchers[0]
            shown = name if len(name) <= LONG else "-\n".join(name.rsplit("-", 1))
            axes.add_patch(Rectangle((column, line), 1, 1, facecolor=colors[name], edgecolor="white", lw=2))
            axes.text(column + 0.5, line + 0.36, shown, ha="center", va="center", fontsize=8, linespacing=0.9)
            us = plain(own.us, 2, ",")
            axes.text(column + 0.5, line + 0.8, us, ha="center", va="center", fontsize=8, color="0.25")
    axes.set(xlim=(0, len(columns)), ylim=(len(names), 0), title=calls(batch))
    axes.title.set_fontsize(10)
    axes.set_xticks([column + 0.5 for column in range(len(columns))], [f"{size:,}" for size in columns])
    axes.set_yticks([line + 0.5 for line in range(len(names))], names)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
