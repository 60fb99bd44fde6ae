"""The results of the contest: the fastest matchers, and every number, as text and on ``docs/contest.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments import output
from rtfilter.basics.text import plain
from rtfilter.replay.output import Row, save_picture, table

TIE: Final = 1.1
"""The factor of the least time up to which a matcher counts as equally fast: the machine's noise."""


class Best(NamedTuple):
    """The fastest matchers in a cell of the map."""

    matchers: list[str]
    """From the fastest on, all that are as fast."""
    us: float
    """Of the first."""
    then: str | None
    """The fastest of the others."""
    times: float | None
    """The time of the first slower matcher, as a multiple of the least time."""


def measured(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with numbers."""
    return [row for row in rows if "us" in row]


def sizes(rows: Sequence[Row]) -> list[int]:
    """Return all numbers of subscriptions, ascending."""
    return sorted({row["subscriptions"] for row in rows})


def batches(rows: Sequence[Row]) -> list[str]:
    """Return all batch sizes, as JSON has them, descending."""
    return sorted({batch for row in measured(rows) for batch in row["us"]}, key=int, reverse=True)


def workloads(rows: Sequence[Row]) -> list[str]:
    """Return all workloads, in order."""
    return list(dict.fromkeys(row["workload"] for row in rows))


def best(rows: Sequence[Row], workload: str, size: int, batch: str) -> Best | None:
    """Return the fastest matchers on a workload of a size; None without measurements."""
    found = sorted(
        (row["us"][batch], row["matcher"])
        for row in measured(rows)
        if (row["workload"], row["subscriptions"]) == (workload, size) and batch in row["us"]
    )
    if not found:
        return None
    least = found[0][0]
    first = [name for us, name in found if us <= TIE * least]
    rest = found[len(first) :]
    return Best(first, least, rest[0][1] if rest else None, rest[0][0] / least if rest else None)


def calls(batch: str) -> str:
    """Return the number of events per call, as text."""
    return "one event a call" if batch == "1" else f"{int(batch):,} events a call"


def fastest(rows: Sequence[Row]) -> str:
    """Return the map: a table for each batch size, workloads by sizes."""
    return "\n\n".join(f"{calls(batch).capitalize()}:\n\n{_map(rows, batch)}" for batch in batches(rows))


def _map(rows: Sequence[Row], batch: str) -> str:
    lines = []
    for workload in workloads(rows):
        line: Row = {"workload": workload}
        for size in sizes(rows):
            own = best(rows, workload, size, batch)
            if own is not None:
                line[str(size)] = _told(own)
        lines.append(line)
    return output.markdown(lines, {"workload": "workload"} | {str(n): f"{n:,}" for n in sizes(rows)})


def _told(own: Best) -> str:
    first = f"**{', '.join(own.matchers)}** {plain(own.us, 3, ',')}"
    return first if own.times is None else f"{first} ({own.then} {plain(own.times, 2, ',')} times)"


def wins(rows: Sequence[Row]) -> str:
    """Return how often each matcher is fastest or equally fast, with its time relative to the fastest."""
    counted: dict[str, Row] = {}
    for matcher in dict.fromkeys(row["matcher"] for row in rows):
        own = [row for row in measured(rows) if row["matcher"] == matcher]
        line: Row = {"matcher": matcher, "cells": len(own)}
        for batch in batches(rows):
            ratios, first = [], 0
            for row in own:
                top = best(rows, row["workload"], row["subscriptions"], batch)
                if top is not None and batch in row["us"]:
                    ratios.append(row["us"][batch] / top.us)
                    first += matcher in top.matchers
            line[f"first_{batch}"] = first
            line[f"ratio_{batch}"] = float(sorted(ratios)[len(ratios) // 2]) if ratios else None
        counted[matcher] = line
    columns = {"matcher": "matcher", "cells": "cells"}
    for batch in batches(rows):
        columns |= {
            f"first_{batch}": f"fastest, {calls(batch)}",
            f"ratio_{batch}": "median of its time over the fastest's",
        }
    firsts = [f"first_{batch}" for batch in batches(rows)]
    order = sorted(counted.values(), key=lambda line: -sum(line[key] for key in firsts))
    return output.markdown(order, columns)


def every(rows: Sequence[Row]) -> str:
    """Return a table of all numbers for each workload."""
    columns = _columns(rows)
    return "\n\n".join(
        f"### {workload}\n\n{output.markdown(lines(rows, workload), columns)}" for workload in workloads(rows)
    )


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    columns = {"matcher": "matcher"}
    for batch in batches(rows):
        columns |= {f"{batch} {n}": f"{n:,}" for n in sizes(rows)}
    first, *others = batches(rows) or ["1"]
    top = sizes(rows)
    if top:
        columns[f"{first} {top[0]}"] = f"µs, {calls(first)}: {top[0]:,}"
        for batch in others:
            columns[f"{batch} {top[0]}"] = f"{calls(batch)}: {top[0]:,}"
    return columns | {
        "largest": "at most",
        "bytes": "bytes",
        "build_us": "build, µs",
        "subscribe_us": "subscribe, µs",
        "subscribe_most_us": "longest",
        "unsubscribe_us": "unsubscribe, µs",
        "unsubscribe_most_us": "longest",
        "visits": "operations",
        "unit": "",
        "why": "then",
    }


def lines(rows: Sequence[Row], workload: str) -> list[Row]:
    """Return a line for each matcher: times by size, and costs at its largest size; the fastest first."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["workload"] != workload:
            continue
        line = found.setdefault(row["matcher"], {"matcher": row["matcher"]})
        if "us" not in row:
            line.setdefault("why", _why(row))
            continue
        for batch, us in row["us"].items():
            line[f"{batch} {row['subscriptions']}"] = us
        if row["subscriptions"] >= line.get("largest", 0):
            line |= {"largest": row["subscriptions"]}
            line |= {key: row[key] for key in COSTS}
    order = batches(rows)
    return sorted(found.values(), key=lambda line: _place(line, order))


COSTS: Final = (
    "bytes", "build_us", "subscribe_us", "subscribe_most_us", "unsubscribe_us", "unsubscribe_most_us",
    "visits", "unit",
)  # fmt: skip


def _place(line: Mapping[str, Any], order: Sequence[str]) -> tuple[float, float]:
    """Return the sort key of a line: largest size first, and at equal sizes the fastest first."""
    largest = line.get("largest", 0)
    times = [line[f"{batch} {largest}"] for batch in order if f"{batch} {largest}" in line]
    return -largest, times[0] if times else 0.0


def _why(row: Row) -> str:
    if "refused" in row:
        return f"refused: {row['refused'].partition(';')[0].partition(', but only')[0]}"
    if "gave_up" in row:
        return f"gave up at {row.get('since', row['subscriptions']):,}: {row['gave_up']}"
    return f"failed: {row['failed']}"


def failures(rows: Sequence[Row]) -> str:
    """Return a line for everything that went wrong."""
    wrong = [row for row in rows if "failed" in row]
    if not wrong:
        return "All answers were right, and nothing crashed."
    return "\n".join(
        f"- {row['matcher']}, {row['workload']}, {row['subscriptions']:,}: {row['failed']}" for row in wrong
    )


PARTS: Final[Mapping[str, output.Maker]] = {
    "fastest": fastest,
    "wins": wins,
    "workloads": every,
    "failures": failures,
}
"""The parts of the page, by name."""


def settings(kept: Mapping[str, Any]) -> str:
    """Return the settings and the extent of a result's measurements, as text."""
    own, rows = kept["settings"], kept["rows"]
    what = f"This page has {len(measured(rows))} cells of up to {max(sizes(rows)):,} subscriptions."
    limits = f"at most {own['ask_seconds']:g} s to answer and {own['build_seconds']:g} s to build"
    return f"{what} Times are medians of {own['repeats']} rounds; a cell takes {limits}."


def filled(page: str, kept: Mapping[str, Any]) -> str:
    """Return the page with new parts."""
    return output.filled(page, kept, {**PARTS, "settings": lambda _: settings(kept)})


def text(rows: Sequence[Row]) -> str:
    """Return all numbers, for a terminal."""
    parts = [f"{name}\n{table(lines(rows, name), _columns(rows))}" for name in workloads(rows)]
    return "\n\n".join([*parts, failures(rows)])


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
