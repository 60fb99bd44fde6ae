"""The tables of the pages that are made of the kept result beside event-ruler and quamina."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from experiments import pages
from experiments.output import REPORT
from rtfilter.replay.output import Row
from rtfilter.text import plain

PAGES: Final = (Path("docs/performance.md"), Path("README.md"))
"""Pages with some of these tables, from the root of the checkout."""
KEPT: Final = REPORT / "ruler.json"
WHO: Final = {
    "rtfilter, 1000 a call": "rtfilter, batch",
    "rtfilter, one a call": "rtfilter, one a call",
    "event-ruler": "event-ruler",
    "quamina": "quamina",
}
NAMES: Final = {
    "exact": "equal, one attribute",
    "exact, 2": "equal, two",
    "exact, 3": "equal, three",
    "ignore case": "equal but for case",
    "prefix, ignore case": "prefix but for case",
    "suffix, ignore case": "suffix but for case",
    "numeric": "one range",
    "numeric, 2": "two ranges",
    "numeric, 12": "twelve ranges",
    "all": "all of these kinds",
}
"""Plainer names of kinds."""
SHORT: Final = ("exact, 3", "wildcard", "numeric, 2")
"""The kinds of the short table."""


def times(count: int, kinds: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the time of everyone for an event with so many patterns, by kind; all kinds if none is named."""
    lines: dict[str, Row] = {}
    for row in rows:
        if row["rules"] == count and (row["kind"] in kinds or not kinds):
            line = lines.setdefault(row["kind"], _line(row))
            if "us" in row:
                line[row["who"]] = plain(row["us"], 2, ",")
    return pages.markdown(list(lines.values()), {"kind": f"{count:,} event patterns", **WHO})


def costs(count: int, rows: Sequence[Row]) -> str:
    """Return time and memory for each of so many patterns, by kind, of rtfilter and event-ruler."""
    lines: dict[str, Row] = {}
    for row in rows:
        who = "ours" if row["who"] == "rtfilter, 1000 a call" else row["who"]
        if row["rules"] == count and who in ("ours", "event-ruler"):
            line = lines.setdefault(row["kind"], _line(row))
            line[f"load {who}"] = plain(row["load_us"], 2, ",")
            line[f"kB {who}"] = plain(row["bytes"] / 1000, 2, ",")
    columns = {
        "kind": f"each of {count:,} event patterns",
        "load ours": "µs to add: rtfilter", "load event-ruler": "event-ruler",
        "kB ours": "kB: rtfilter", "kB event-ruler": "event-ruler",
    }  # fmt: skip
    return pages.markdown(list(lines.values()), columns)


def _line(row: Row) -> Row:
    return {"kind": NAMES.get(row["kind"], row["kind"])}


PARTS: Final[Mapping[str, pages.Maker]] = {
    "patterns-few": partial(times, 5, ()),
    "patterns-thousand": partial(times, 1000, ()),
    "patterns-many": partial(times, 100_000, ()),
    "patterns-costs": partial(costs, 100_000),
    "patterns-short": partial(times, 1000, SHORT),
}
"""Makers of the tables, by the names on the pages."""


def filled(page: str, kept: Mapping[str, Any]) -> str:
    """Return a page with new tables; see `experiments.pages`."""
    return pages.filled(page, kept, PARTS)
