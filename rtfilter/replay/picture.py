"""The picture of replays: mean responses by burst size, and the plans over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rtfilter.basics.extras import needed
from rtfilter.basics.text import plain
from rtfilter.replay.output import save_picture
from rtfilter.replay.report import ReplayReport, size_class


def draw(reports: Sequence[ReplayReport], path: Path) -> None:
    """Draw replays into a picture file, one row of panels each.

    The left panel shows the mean response of each contender by burst size, the right one the plans of the
    adaptive contender (of the first one, if none has that name).

    Parameters
    ----------
    reports : sequence of ReplayReport
    path : Path
        Its suffix chooses the format: .png, .svg or .pdf.

    Raises
    ------
    ModuleNotFoundError
        `matplotlib` is not installed.
    """
    with needed("replay", "a picture"):
        from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2 * len(reports)), layout="constrained")
    axes = figure.subplots(len(reports), 2, squeeze=False)
    for (left, right), report in zip(axes, reports, strict=True):
        _draw_response(left, report)
        _draw_plans(right, report)
    save_picture(figure, path, dpi=110)


def _draw_response(axes: Any, report: ReplayReport) -> None:
    names = report.contenders
    classes = sorted({size_class(row) for row in report.rows})
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        means = []
        for size in classes:
            own = [
                row["response"] for row in report.rows if row["contender"] == name and size_class(row) == size
            ]
            means.append(np.mean(own) * 1e3 if own else np.nan)
        bars = axes.bar(
            np.arange(len(classes)) + (i - (len(names) - 1) / 2) * width, means, width, label=name
        )
        axes.bar_label(bars, [plain(mean, 2, ",") for mean in means], fontsize=7)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(classes)), [f"{size:,}" for size in classes])
    axes.set_xlabel("events in a burst")
    axes.set_ylabel("mean response, ms")
    axes.set_title(f"{report.workload}: {report.index['subscriptions']:,} subscriptions", loc="left")
    axes.margins(y=0.15)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_plans(axes: Any, report: ReplayReport) -> None:
    """Draw each burst of one contender as a dot: its height is the group size, its shape the level."""
    name = "adaptive" if "adaptive" in report.contenders else report.contenders[0]
    own = [row for row in report.rows if row["contender"] == name]
    classes = sorted({size_class(row) for row in own})
    shapes = "osD^vP*X"
    for i, size in enumerate(classes):
        for level in sorted({row["level"] for row in own}):
            rows = [row for row in own if size_class(row) == size and row["level"] == level]
            shift = 1.12 ** (i - (len(classes) - 1) / 2)  # so that classes do not hide each other
            axes.plot(
                [row["burst"] for row in rows],
                [(row["group"] or row["size"]) * shift for row in rows],
                ls="",
                marker=shapes[level % len(shapes)],
                ms=4,
                mew=0,
                alpha=0.75,
                color=f"C{i}",
                label=f"{size:,} events, level {level}",
            )
    axes.set_yscale("log", base=2)
    axes.set_xlabel("burst")
    axes.set_ylabel("events in a group")
    axes.set_title(f"{name}: plans tried and settled on", loc="left")
    axes.legend(fontsize=7, frameon=False, ncols=max(1, len(classes)), loc="upper center")
    axes.margins(y=0.25)
    axes.spines[["top", "right"]].set_visible(False)
