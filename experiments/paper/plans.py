"""Names of plans, and the range of levels that the paper can reach.

The loop of the paper ends at ``Level <= TreeHeight - 1``. Its levels begin at 1 with the root, ours at 0, so
that its last level is our level H - 2: the leaves are never the level of an estimate. What lies outside of
this range is marked in every figure, and the paper is judged by what lies within.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

ARRIVAL = "0/1"
"""The plan that is no batch search: each event from the root, in the order of arrival."""
OUTSIDE = "leaf level, not in the paper"
"""The label of levels outside the paper's range, those of the highest tree."""


def level_of(name: str) -> int:
    """Return the level in the name of a plan, "level/group"."""
    return int(name.partition("/")[0])


def group_of(name: str) -> int:
    """Return the group size in the name of a plan."""
    return int(name.partition("/")[2])


def rung_of(name: str) -> int:
    """Return the place of the group among the group sizes; a whole batch is a group of its size."""
    return round(math.log(group_of(name), 4))


def shown(name: str, grouped: bool) -> str:
    """Return the name of a plan in tables: without groups, only the level."""
    return name if grouped else name.partition("/")[0]


def have_groups(names: Iterable[str]) -> bool:
    """Return whether any plan with one of these names has groups of more than one event."""
    return any(not name.endswith("/1") for name in names)


def last_in_range(height: int) -> int:
    """Return the last level that the paper can reach in a tree of a height."""
    return max(height - 2, 0)


def within(names: Iterable[str], height: int) -> list[str]:
    """Return the plans that the paper can reach in a tree of a height."""
    return [name for name in names if level_of(name) <= last_in_range(height)]


def judged(names: Sequence[str], height: int) -> list[str]:
    """Return the plans by which a claim is judged: those of the paper's range.

    Plans with groups are not the paper's, and their trees have two or three levels; all of them count.
    """
    return list(names) if have_groups(names) else within(names, height)


def mark(axes: Axes, height: int, names: Sequence[str] | None = None) -> None:
    """Shade what is outside of the paper's range, on an axis of levels or of names of plans."""
    first = last_in_range(height) + 0.5
    if names is not None:
        first = sum(level_of(name) <= last_in_range(height) for name in names) - 0.5
    last = (height if names is None else len(names)) - 0.5
    axes.axvspan(first, last, color="0.9", zorder=0, lw=0)
    axes.text(0.1 * first + 0.9 * last, 0.98, OUTSIDE, transform=axes.get_xaxis_transform(), rotation=90,
              ha="center", va="top", fontsize=7, color="0.4")  # fmt: skip
    if names is None:
        axes.set_xticks(range(height))


def mark_best(axes: Axes, heights: Sequence[int]) -> None:
    """Shade the same on a vertical axis of best levels; `heights` are those of the trees in the figure."""
    most = max(heights)
    axes.axhspan(last_in_range(most) + 0.5, most - 0.5, color="0.9", zorder=0, lw=0)
    axes.text(0.01, most - 0.55, OUTSIDE, transform=axes.get_yaxis_transform(), va="top", fontsize=7,
              color="0.4")  # fmt: skip
    axes.set_ylim(-0.5, most - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
