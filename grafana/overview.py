"""Draws a part of the dashboard without Grafana: each panel shows what a Prometheus answers to its queries.

``python grafana/overview.py http://127.0.0.1:9090 overview.png`` draws the last half hour.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from panels import ROWS, VARIABLES, Panel
from rtfilter.basics.text import plain

Series = dict[str, Any]
Answer = tuple[str, Series]
SHOWN = ("Mean response by batch size", "Events", "Group", "Updates")
"""Titles of the panels in the picture."""
COLUMNS = 2
"""Panels in a row of it."""
POINTS = 120
"""Points of a line."""
_LABEL = re.compile(r"{{(\w+)}}")


class Prometheus:
    """A Prometheus, asked over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def get(self, path: str, **parameters: object) -> Any:
        """The answer of ``/api/v1/<path>``. Raises `RuntimeError` with the reason if there is none."""
        url = f"{self.url}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise RuntimeError(f"{self.url} does not answer {path}: {error.read().decode()}") from None
        except (OSError, ValueError) as error:  # unreachable, or no Prometheus
            raise RuntimeError(f"{self.url} does not answer {path}: {error}") from None

    def now(self, query: str) -> list[Series]:
        """Present values of a query."""
        found: list[Series] = self.get("query", query=query)["result"]
        return found

    def over(self, query: str, start: float, end: float) -> list[Series]:
        """Values of a query at `POINTS` times from start to end."""
        step = max((end - start) / POINTS, 1.0)
        found: list[Series] = self.get("query_range", query=query, start=start, end=end, step=step)["result"]
        return found


def filled(query: str, rate: str) -> str:
    """A query with the variables that Grafana would fill in: all jobs, instances and filters."""
    query = query.replace("$__rate_interval", rate)
    for name in VARIABLES:
        query = query.replace(f"${name}", ".*")
    return query


def legend(text: str, labels: Mapping[str, str]) -> str:
    """A legend with the labels of a series."""
    return _LABEL.sub(lambda found: labels.get(found[1], ""), text)


def answers(server: Prometheus, panel: Panel, rate: str, start: float, end: float) -> list[Answer]:
    """All series of a panel from start to end, with their legends."""
    return [
        (legend(text, series["metric"]), series)
        for text, query in panel.queries.items()
        for series in server.over(filled(query, rate), start, end)
    ]


def draw(
    axes: Axes, panel: Panel, found: Sequence[Answer], start: float, end: float, colors: dict[str, str]
) -> None:
    """Draw a panel; one without data says "no data". `colors` are those of names, and new ones are added."""
    axes.set_title(panel.title, fontsize=13)
    axes.tick_params(labelsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    if not found:
        axes.text(0.5, 0.5, "no data", ha="center", transform=axes.transAxes, color="grey")
        axes.set(xticks=[], yticks=[])
        return
    unit, scale = {
        "s": ("ms", 1e3),
        "bytes": ("MB", 1e-6),
        "ops": ("a second", 1),
        "percentunit": ("%", 100),
    }.get(panel.unit, ("", 1))
    axes.set_ylabel(unit, fontsize=11)
    if panel.kind == "number":
        value = _last(found[0][1])
        axes.text(0.5, 0.5, f"{plain(value * 1e3, 3)} ms", ha="center", va="center", fontsize=22)
        axes.set(xticks=[], yticks=[], ylabel="")
        return
    if panel.kind == "bars":
        ordered = sorted(found, key=lambda one: one[0])
        axes.bar([name for name, _ in ordered], [_last(series) for _, series in ordered])
        return
    axes.set_xlim(_dates([start, end]))
    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if panel.kind == "heatmap":
        _heatmap(axes, found)
        return
    ends: list[tuple[float, float, str, Any]] = []
    for name, series in sorted(found, key=lambda one: (len(one[0]), one[0])):
        times, values = np.array(series["values"], float).T
        color = colors.setdefault(name, f"C{len(colors)}")
        axes.plot(_dates(times), values * scale, linewidth=2, color=color)
        ends.append((values[-1] * scale, _dates(times[-1]), name, color))
    positive = [float(v) * scale for _, series in found for _, v in series["values"] if float(v) > 0]
    axes.set_ylim(0, 1.1 * max(positive, default=1.0))
    axes.yaxis.set_major_formatter(lambda value, _: plain(value, 3, ","))
    axes.set_xlim(_dates([start, end + (end - start) / 6]))  # room for the names
    apart, above = 0.06 * axes.get_ylim()[1], -math.inf
    for height, moment, name, color in sorted(ends):
        above = max(height, above + apart, apart / 2)  # not on the axis
        axes.annotate(f" {name}", (moment, above), fontsize=11, va="center", color=color)


def _last(series: Series) -> float:
    return float(series["values"][-1][1])


def _heatmap(axes: Axes, found: Sequence[Answer]) -> None:
    bounds = sorted(found, key=lambda one: float(one[0].replace("+Inf", "inf")))
    times = sorted({float(t) for _, series in found for t, _ in series["values"]})
    counts = np.zeros((len(bounds), len(times)))
    for row, (_, series) in enumerate(bounds):
        for t, value in series["values"]:
            counts[row, times.index(float(t))] = float(value)
    cells = np.diff(counts, axis=0, prepend=0).clip(0)
    used = np.flatnonzero(cells.sum(axis=1))
    if not len(used):
        return
    low, high = used[0], used[-1] + 1
    edges = [0.0, *(float(name.replace("+Inf", "inf")) for name, _ in bounds)]
    edges[0], edges[-1] = edges[1] / 2.5, edges[-2] * 2.5
    step = times[1] - times[0] if len(times) > 1 else 1.0
    axes.pcolormesh(
        _dates([*times, times[-1] + step]),
        edges[low : high + 1],
        np.ma.masked_equal(cells[low:high], 0),
        norm=LogNorm(),
    )
    axes.set_yscale("log")


def _dates(times: Any) -> Any:
    """Seconds since 1970 as dates of matplotlib, in UTC."""
    return np.asarray(times, float) / 86_400


def overview(server: Prometheus, minutes: float, rate: str) -> Figure:
    """Draw the panels `SHOWN` over the last `minutes`."""
    end = time.time()
    start = end - 60 * minutes
    panels = {panel.title: panel for row in ROWS for panel in row.panels}
    lines = math.ceil(len(SHOWN) / COLUMNS)
    figure = Figure((6.0 * COLUMNS, 3.6 * lines), layout="constrained")
    colors: dict[str, str] = {}
    for axes, title in zip(figure.subplots(lines, COLUMNS).ravel(), SHOWN, strict=True):
        found = answers(server, panels[title], rate, start, end)
        draw(axes, panels[title], found, start, end, colors)
    return figure


def main(arguments: list[str] | None = None) -> int:
    """Draw; see ``--help``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("url", help="of a Prometheus, such as http://127.0.0.1:9090")
    parser.add_argument("out", type=Path, help="picture: .png or .svg")
    parser.add_argument("--minutes", type=float, default=30.0, help="until now (%(default)g)")
    parser.add_argument("--rate", default="1m", help="time over which rates are taken (%(default)s)")
    given = parser.parse_args(arguments)
    if not given.out.parent.is_dir():
        print(f"error: there is no folder {given.out.parent}", file=sys.stderr)
        return 2
    try:
        figure = overview(Prometheus(given.url), given.minutes, given.rate)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    figure.savefig(given.out, dpi=100)
    return 0


if __name__ == "__main__":
    sys.exit(main())
