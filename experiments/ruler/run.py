"""JSON events against event patterns: rtfilter beside event-ruler and quamina, from JSON text to ids.

All take turns on the same events, each in a process of its own on one core; their answers are compared.
Times are CPU seconds. The peers are built from checkouts that you name: ``--ruler DIR``
(github.com/aws/event-ruler; Java 17, and Jackson from Debian) and ``--quamina DIR``
(github.com/timbray/quamina; Go). Without them, rtfilter is measured alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from matplotlib.figure import Figure
from tqdm import tqdm

from experiments import ResultError, output
from experiments.arguments import above_zero, command, positive
from experiments.output import REPORT, content, keep, kept_rows
from experiments.ruler import worlds
from experiments.ruler.own import WAYS
from experiments.ruler.peers import Program, build_quamina, build_ruler
from experiments.timing import one_core
from rtfilter.basics.text import plain
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table

NAME: Final = "ruler"
OURS: Final = tuple(f"rtfilter, {way}" for way in WAYS)
PEERS: Final = ("event-ruler", "quamina")
COUNTS: Final = (5, 1000, 100_000)
COLUMNS: Final = {
    "kind": "kind",
    "rules": "rules",
    "who": "who",
    "us": "µs an event",
    "of_ruler": "of event-ruler's",
    "of_quamina": "of quamina's",
    "load_us": "µs a rule",
    "bytes": "bytes a rule",
    "note": "",
}
PROBE: Final = 200
"""Events of a program's first answer."""
LEAST: Final = 0.1
"""Seconds that a turn takes at least."""
QUARTER: Final = 0.25
"""Seconds that its other answers take, about, until it is warm."""

Start = Callable[[], Program]


def measured(kind: str, count: int, starts: Mapping[str, Start], given: argparse.Namespace) -> list[Row]:
    """Return a row for everyone on one kind and number of rules.

    Raises
    ------
    ResultError
        Two of them find different matches.
    """
    with TemporaryDirectory() as folder:
        patterns = worlds.patterns(kind, count, given.seed)
        events = worlds.events(kind, given.events, given.seed)
        files = {"event": Path(folder, "event.jsonl"), "quamina": Path(folder, "quamina.jsonl")}
        _write(files["event"], patterns)
        of_quamina = [worlds.for_quamina(pattern) for pattern in patterns]
        _write(files["quamina"], [one for one in of_quamina if one is not None])
        _write_lines(Path(folder, "events.jsonl"), events)
        rows: dict[str, Row] = {}
        running: dict[str, Program] = {}
        try:
            for who, start in starts.items():
                rows[who] = row = {"kind": kind, "rules": count, "who": who}
                if who == "quamina" and None in of_quamina:
                    row["note"] = "has no such rules"
                    continue
                file = files["quamina" if who == "quamina" else "event"]
                loaded = _load(who, start, file, Path(folder, "events.jsonl"), given.limit, row)
                if loaded is not None:
                    running[who] = loaded
            _take_turns(running, rows, len(events), given)
        finally:
            for program in running.values():
                program.close()
        return list(rows.values())


def _write(path: Path, patterns: Sequence[worlds.Pattern]) -> None:
    _write_lines(path, [json.dumps(pattern).encode() for pattern in patterns])


def _write_lines(path: Path, lines: Sequence[bytes]) -> None:
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def _load(who: str, start: Start, rules: Path, events: Path, limit: float, row: Row) -> Program | None:
    """Start a program and give it rules and events; what that took goes into its row."""
    program = start()
    try:
        loaded = program.ask(rules=str(rules), limit=limit, kind=row["kind"])
        program.ask(events=str(events))
    except ResultError as error:
        row["note"] = str(error)
        program.close()
        return None
    row["load_us"] = 1e6 * loaded["seconds"] / loaded["rules"]
    row["bytes"] = loaded["bytes"] / loaded["rules"]
    if loaded["rules"] < row["rules"]:
        row["note"] = f"{loaded['rules']:,} rules added in {limit:.0f} s"
        program.close()
        return None
    return program


def _take_turns(
    running: Mapping[str, Program], rows: Mapping[str, Row], events: int, given: argparse.Namespace
) -> None:
    """Ask all for the same events, round after round."""
    if not running:
        return
    slowest = max(_warmed(program, who, events, given.warm) for who, program in running.items())
    last = max(1, min(events, int(given.seconds / slowest)))
    times: dict[str, list[float]] = {who: [] for who in running}
    for _ in range(given.rounds):
        found = {}
        for who, program in running.items():
            found[who], each = _timed(program, who, last)
            times[who].append(1e6 * each)
        first = next(iter(found.values()))
        for who, counts in found.items():
            if counts != first:
                raise ResultError(f"{who} finds other matches than {next(iter(found))}: {rows[who]}")
    for who, taken in times.items():
        rows[who] |= {"us": median(taken), "events": last, "matches": sum(first.values()) / last}
        for peer, key in zip(PEERS, ("of_ruler", "of_quamina"), strict=True):
            if peer in times and peer != who:
                rows[who][key] = median(a / b for a, b in zip(taken, times[peer], strict=True))


def _timed(program: Program, who: str, last: int) -> tuple[Any, float]:
    """Ask a program as often as its clock needs; returns what it finds once, and its seconds for an event."""
    spent, asked = 0.0, 0
    while spent < LEAST:
        answer = _ask(program, who, last)
        spent += answer["seconds"]
        asked += last
    return answer["counts"], spent / asked


def _warmed(program: Program, who: str, events: int, seconds: float) -> float:
    """Run a program for some seconds, in which Java compiles; return its seconds for one event."""
    count, spent, each = min(PROBE, events), 0.0, 0.0
    while not spent or spent < seconds:
        each = max(_ask(program, who, count)["seconds"], 1e-6) / count
        spent += each * count
        count = max(1, min(events, int(QUARTER / each)))
    return each


def _ask(program: Program, who: str, last: int) -> dict[str, Any]:
    """Ask for the first events, so many of them."""
    return program.ask(first=0, last=last, way=who.removeprefix("rtfilter, "))


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture: time per event of everyone, by kind and number of rules."""
    counts = sorted({row["rules"] for row in rows})
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    names = list(dict.fromkeys(row["who"] for row in rows))
    figure = Figure(figsize=(9.6, 1.2 + 0.42 * len(kinds)), layout="constrained")
    panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    for axes, count in zip(panels, counts, strict=True):
        for place, name in enumerate(names):
            own = [row for row in rows if (row["who"], row["rules"]) == (name, count) and "us" in row]
            height = [kinds.index(row["kind"]) + 0.12 * (place - (len(names) - 1) / 2) for row in own]
            axes.plot([row["us"] for row in own], height, "o", color=f"C{place}", label=name)
        axes.set(xscale="log", title=f"{count:,} rules", xlabel="µs an event")
        axes.set_yticks(range(len(kinds)), kinds)
        axes.grid(axis="x", alpha=0.3)
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(names))
    save_picture(figure, path, dpi=100)


def main(arguments: list[str] | None = None) -> int:
    """Measure; see ``--help``."""
    parser = command("ruler", __doc__, "seed", "out", "figure")
    add = parser.add_argument
    for name, program in (("--ruler", "event-ruler"), ("--quamina", "quamina")):
        add(name, type=Path, metavar="DIR", help=f"a checkout of {program}")
    add("--kinds", nargs="+", choices=worlds.NAMES, default=list(worlds.NAMES), metavar="KIND")
    add("--rules", nargs="+", type=positive, default=list(COUNTS), metavar="N")
    add("--events", type=positive, default=20_000, help="at most (%(default)s)")
    add("--seconds", type=above_zero, default=2.0, help="for a turn (%(default)s)")
    add("--rounds", type=positive, default=5, help="turns that count (%(default)s)")
    add("--warm", type=above_zero, default=5.0, help="seconds before them (%(default)s)")
    add("--limit", type=above_zero, default=120.0, help="seconds to add rules (%(default)s)")
    add("--page", action="store_true", help=f"only write tables of pages from {KEPT}")
    given = parser.parse_args(arguments)
    if given.page:
        for page in PAGES:
            page.write_text(filled(page.read_text("utf-8"), content(KEPT)), "utf-8")
        return 0
    settings = {key: getattr(given, key) for key in ("events", "seconds", "rounds", "warm", "limit", "seed")}
    rows = kept_rows(given.out, NAME, settings)
    done = {(row["kind"], row["rules"]) for row in rows}
    cells = [(kind, count) for kind in given.kinds for count in given.rules if (kind, count) not in done]
    with TemporaryDirectory() as folder, one_core(), tqdm(cells, unit="cell") as bar:
        starts = _starts(given, Path(folder))
        for kind, count in bar:
            bar.set_postfix_str(f"{kind}, {count:,}")
            rows += measured(kind, count, starts, given)
            keep(given.out, NAME, settings, rows)
    print(machine.one_line())
    print("one core, CPU time, medians of turns; answers compared\n")
    print(table(rows, COLUMNS))
    if given.figure is not None:
        draw(rows, given.figure)
    return 0


def _starts(given: argparse.Namespace, folder: Path) -> dict[str, Start]:
    """Return what starts each program."""
    own = [sys.executable, "-m", "experiments.ruler.own"]
    starts: dict[str, Start] = {who: lambda: Program("rtfilter", own, {}) for who in OURS}
    if given.ruler is not None:
        ruler = build_ruler(given.ruler, folder)
        starts["event-ruler"] = lambda: Program("event-ruler", ruler, {})
    if given.quamina is not None:
        quamina = build_quamina(given.quamina, folder)
        starts["quamina"] = lambda: Program("quamina", quamina, {"GOMAXPROCS": "1"})
    return starts


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
    return output.markdown(list(lines.values()), {"kind": f"{count:,} event patterns", **WHO})


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
    return output.markdown(list(lines.values()), columns)


def _line(row: Row) -> Row:
    return {"kind": NAMES.get(row["kind"], row["kind"])}


PARTS: Final[Mapping[str, output.Maker]] = {
    "patterns-few": partial(times, 5, ()),
    "patterns-thousand": partial(times, 1000, ()),
    "patterns-many": partial(times, 100_000, ()),
    "patterns-costs": partial(costs, 100_000),
    "patterns-short": partial(times, 1000, SHORT),
}
"""Makers of the tables, by the names on the pages."""


def filled(page: str, kept: Mapping[str, Any]) -> str:
    """Return a page with new tables; see `experiments.output`."""
    return output.filled(page, kept, PARTS)
