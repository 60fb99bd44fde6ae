"""The picture of a survey: one line per peer, by subscriptions: time per event, time to build, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments import peers
from rtfilter.replay.output import Row, save_picture

#: Events a call.
BATCH = 1000
APART = 0.052
"""Least distance between the names at the lines, as a share of the panel's height."""


class Panel(NamedTuple):
    """The content of a panel, from the rows of a workload of 12 dimensions."""

    title: str
    workload: str
    measure: str


PANELS = (
    Panel("wide boxes: µs per event", "wide", "us"),
    Panel("narrow boxes: µs per event", "narrow", "us"),
    Panel("wide boxes: µs to build, per box", "wide", "build_us"),
    Panel("wide boxes: bytes per box", "wide", "bytes"),
)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture, 1200 pixels wide."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    for axes, panel in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        fixed = {"workload": panel.workload, "dimensions": 12, "batch": BATCH}
        _panel(axes, [row for row in rows if "skipped" not in row and _has(row, fixed)], panel.measure)
        axes.set_title(panel.title, fontsize=13)
    save_picture(figure, path, dpi=100)


def _has(row: Row, fixed: Mapping[str, Any]) -> bool:
    return all(row[key] == value for key, value in fixed.items())


def _panel(axes: Axes, rows: Sequence[Row], measure: str) -> None:
    colors = dict(zip(peers.PEERS, colormaps["tab20"].colors, strict=False))  # type: ignore[attr-defined]
    axes.set(xscale="log", yscale="log", xlabel="subscriptions")
    ends: list[tuple[str, Any, float, float]] = []
    for peer, color in colors.items():
        own = sorted(
            (row["subscriptions"], row[measure])
            for row in rows
            if row["peer"] == peer and row[measure] is not None
        )
        if own:
            axes.plot(*zip(*own, strict=True), ".-", color=color, lw=3.5 if peer == peers.OURS else 1.5)
            ends.append((peer, color, *own[-1]))
    values = sorted({row["subscriptions"] for row in rows})
    axes.set_xticks(values, [_short(value) for value in values])
    axes.minorticks_off()
    low, high = axes.get_ylim()
    if high < 100 * low:  # few powers of ten
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    axes.tick_params(labelsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    _name(axes, ends)


def _short(value: int) -> str:
    """Return 10,000 as "10 k", 1,000,000 as "1 M"."""
    for unit, name in ((10**6, " M"), (10**3, " k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:,}{name}"
    return f"{value:,}"


def _name(axes: Axes, ends: Sequence[tuple[str, Any, float, float]]) -> None:
    """Write the name of each line right of the panel, at the height of its end, and not over another."""
    place = axes.transData + axes.transAxes.inverted()
    wanted = sorted((float(place.transform((x, y))[1]), peer, color, x, y) for peer, color, x, y in ends)
    heights = spread([height for height, *_ in wanted], APART)
    for height, (_, peer, color, x, y) in zip(heights, wanted, strict=True):
        axes.annotate(
            peer,
            (x, y),
            (1.04, height),
            xycoords="data",
            textcoords="axes fraction",
            va="center",
            fontsize=11,
            fontweight="bold" if peer == peers.OURS else "normal",
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.8,
                "alpha": 0.6,
                "shrinkA": 1,
                "shrinkB": 2,
            },
        )


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Move ascending heights as little as need be so that they are `apart` from each other."""
    groups: list[list[float]] = []  # each: the heights wanted by neighbours that are as near as may be
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _top(groups[-2], apart) + apart > _bottom(groups[-1], apart):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, apart) + apart * place for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float], apart: float) -> float:
    return float(np.mean(group)) - apart * (len(group) - 1) / 2


def _top(group: Sequence[float], apart: float) -> float:
    return float(np.mean(group)) + apart * (len(group) - 1) / 2
