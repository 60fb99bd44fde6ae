"""Compare two kept results, of `bench` or of `peers`: what became faster or slower, beyond noise.

A row's times are divided by those of a yardstick, a peer that was timed in turns with it, so that the speed
of the machine cancels. A row differs when the ranges of its rounds do not overlap and its medians differ by
more than a tenth. The exit status is 1 when something is slower.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from experiments import peers
from rtfilter.replay.output import Row, table

#: Medians that differ by less are never called different: runs differ in more than their rounds show.
LEAST = 0.1
#: Rounds of a row at least: fewer have no range to speak of.
ROUNDS = 3
#: What names a row of each experiment.
KEYS = {
    "bench": ("workload", "measure"),
    "peers": ("workload", "subscriptions", "dimensions", "side", "batch"),
}
#: Settings that must be equal; the others only choose rows or how often they are timed.
SAME = {"bench": ("boxes", "events", "sample", "updates", "seed"), "peers": ("seed",)}
COLUMNS = {"old": "old", "new": "new", "change": "new / old", "noise": "noise", "verdict": ""}


def read(path: Path) -> dict[str, Any]:
    """A kept result.

    Raises
    ------
    ValueError
        The file is none, or of an experiment that cannot be compared.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(content, dict) or content.get("experiment") not in KEYS:
        raise ValueError(f"{path}: no result of {' or '.join(KEYS)}")
    return content


def normalised(content: Mapping[str, Any]) -> dict[tuple[Any, ...], list[float]]:
    """Times of our rows, in units of their yardstick, one a round; by the row's name."""
    keys = KEYS[content["experiment"]]
    return {
        tuple(row[key] for key in keys): [
            ours / yardstick for ours, yardstick in zip(row["rounds"], row["yardstick_rounds"], strict=True)
        ]
        for row in content["rows"]
        if "yardstick_rounds" in row and row.get("peer", peers.OURS) == peers.OURS
    }


def judge(old: Sequence[float], new: Sequence[float]) -> Row:
    """How a row changed: ``old`` and ``new`` medians, ``change``, ``noise`` and ``verdict``.

    The noise is how far the rounds of one run are apart, at least `LEAST`, as a share of the median.
    """
    before, after = median(old), median(new)
    spread = max((max(run) - min(run)) / median(run) for run in (old, new))
    change = after / before
    verdict = "within noise"
    if min(new) > max(old) and change > 1 + LEAST:
        verdict = "SLOWER"
    elif max(new) < min(old) and change < 1 / (1 + LEAST):
        verdict = "faster"
    return {"old": before, "new": after, "change": change, "noise": max(spread, LEAST), "verdict": verdict}


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Row]:
    """A row for everything that both results have, from at least `ROUNDS` rounds each.

    Raises
    ------
    ValueError
        The results are of different experiments or settings, or of too few rounds.
    """
    if old["experiment"] != new["experiment"]:
        raise ValueError(
            f"a result of {old['experiment']} cannot be compared with one of {new['experiment']}"
        )
    keys = KEYS[old["experiment"]]
    differing = [
        key for key in SAME[old["experiment"]] if old["settings"].get(key) != new["settings"].get(key)
    ]
    if differing:
        raise ValueError(f"the results differ in {', '.join(differing)}")
    before, after = normalised(old), normalised(new)
    if min(map(len, [*before.values(), *after.values()]), default=ROUNDS) < ROUNDS:
        raise ValueError(f"fewer than {ROUNDS} rounds do not show their noise: measure again without --quick")
    return [
        dict(zip(keys, name, strict=True)) | judge(before[name], after[name])
        for name in before
        if name in after
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; 1 when something is slower, 2 when the files cannot be compared."""
    parser = argparse.ArgumentParser(prog="python -m experiments compare", description=__doc__)
    parser.add_argument("old", type=Path, help="JSON file that --out wrote")
    parser.add_argument("new", type=Path, help="another, of the same experiment and settings")
    given = parser.parse_args(arguments)
    try:
        old, new = read(given.old), read(given.new)
        rows = compare(old, new)
        if not rows:
            raise ValueError("the results have no row of rtfilter in common")
    except ValueError as error:
        parser.error(str(error))
    for name, content in (("old", old), ("new", new)):
        print(f"{name}: {content['machine'].get('revision')}, {content['machine']['cpu']}")
    if old["machine"]["cpu"] != new["machine"]["cpu"]:
        print("different machines: ratios to the yardstick differ between them, too")
    keys = KEYS[old["experiment"]]
    print("times in units of the yardstick\n")
    print(table(rows, {key: key for key in keys} | COLUMNS))
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("SLOWER", "faster")}
    print(f"\n{counts['SLOWER']} slower, {counts['faster']} faster, of {len(rows)}")
    for name, content in (("old", old), ("new", new)):
        alone = len(normalised(content)) - len(rows)
        if alone:
            print(f"{alone} more only in {name}")
    return 1 if counts["SLOWER"] else 0
