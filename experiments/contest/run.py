"""Every matcher on every workload: time per event, memory, time to build and to change, operations.

Each cell has a process and a budget of its own. A matcher that gives up gets no larger size. Results
are kept one by one: a run with the same --out goes on, and measures matchers that are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from experiments.arguments import command, positive
from experiments.contest import cell, tables
from experiments.contest.cell import ENTRANTS, FULL, INDEX, QUICK, Case
from experiments.output import content, keep, require_same
from rtfilter.replay import machine
from rtfilter.replay.output import Row

NAME: Final = "contest"
KEPT: Final = Path("experiments/report/contest.json")
PICTURE: Final = KEPT.with_suffix(".png")
PAGE: Final = Path("docs/contest.md")
OF_A_ROW: Final = ("revision", "versions")
"""The properties of a run that may differ within a contest; each row with numbers has its own."""


def contest(
    cases: Iterable[Case], out: Path | None, settings: dict[str, Any], again: Sequence[str] = ()
) -> list[Row]:
    """Return rows of all cases, kept in `out` or measured now; those of matchers in `again` are new."""
    facts = machine.describe()
    here = {key: value for key, value in facts.items() if key not in OF_A_ROW}
    rows = [row for row in _kept(out, here, settings) if row["matcher"] not in again]
    done = {tuple(row[key] for key in INDEX): row for row in rows}
    waiting = [case for case in cases if case.key not in done]
    with tqdm(waiting, unit="cell") as bar:
        for case in bar:
            bar.set_postfix_str(f"{case.matcher}: {case.workload}, {case.subscriptions:,}")
            row = _given_up(case, rows) or cell.run(case)
            rows.append(row | {"revision": facts["revision"]} if "us" in row else row)
            keep(out, NAME, settings, rows, facts)
    return rows


def _kept(out: Path | None, here: dict[str, Any], settings: dict[str, Any]) -> list[Row]:
    if out is None or not out.exists():
        return []
    kept = content(out)
    same = {key: value for key, value in kept["machine"].items() if key not in OF_A_ROW}
    require_same(out, {**kept, "machine": same}, experiment=NAME, machine=here, settings=settings)
    rows: list[Row] = kept["rows"]
    return rows


def _given_up(case: Case, rows: Sequence[Row]) -> Row | None:
    """Return the row of a matcher that has no numbers for fewer subscriptions."""
    for row in rows:
        if (row["matcher"], row["workload"]) == case.key[:2] and row["subscriptions"] < case.subscriptions:
            if "refused" in row:
                return case.row() | {"refused": row["refused"]}
            if "gave_up" in row:
                return case.row() | {"gave_up": row["gave_up"], "since": row["subscriptions"]}
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the contest; see ``--help``."""
    parser = command("contest", __doc__, "quick", "seed", "out")
    add = parser.add_argument
    add("--matchers", nargs="+", choices=ENTRANTS, default=list(ENTRANTS), metavar="NAME")
    add("--workloads", nargs="+", choices=FULL.workloads, metavar="NAME")
    add("--subscriptions", type=positive, nargs="+", help="instead of the plan's")
    add("--again", nargs="+", choices=ENTRANTS, default=[], metavar="NAME", help="measure these anew")
    add("--page", action="store_true", help=f"only write {PAGE} and {PICTURE} from {KEPT}")
    given = parser.parse_args(arguments)
    if given.page:
        kept = content(KEPT)
        tables.draw(kept["rows"], PICTURE)
        PAGE.write_text(tables.filled(PAGE.read_text(encoding="utf-8"), kept), encoding="utf-8")
        return 0
    plan = QUICK if given.quick else FULL
    settings = plan.settings(given.seed)
    plan = plan._replace(
        workloads=tuple(given.workloads or plan.workloads),
        subscriptions=tuple(sorted(given.subscriptions or plan.subscriptions)),
    )
    rows = contest(plan.cases(given.matchers, given.seed), given.out, settings, given.again)
    print(machine.one_line())
    print("one core, a process for each cell, answers compared with another matcher\n")
    print(tables.text(rows))
    return 0
