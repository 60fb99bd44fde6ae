"""Compare two kept results, of `bench` or of `peers`: which rows became faster or slower.

The times of a row are divided by those of a yardstick, a peer that was timed in alternation with it. So the
speed of the machine does not matter. A row has changed if the ranges of its rounds do not overlap and the
medians differ by more than a tenth. The exit code is 1 if a row became slower.
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

LEAST = 0.1
"""Smallest change of a median that counts, as a share: two runs differ by more than their rounds show."""
ROUNDS = 3
"""Smallest number of rounds of a row: fewer do not show the noise."""
# The keys that identify a row, by experiment.
KEYS = {
    "bench": ("workload", "measure"),
    "peers": ("workload", "subscriptions", "dimensions", "side", "batch"),
}
# Settings that must be equal, by experiment. The others choose the rows, or how often they are timed.
SAME = {"bench": ("boxes", "events", "sample", "updates", "seed"), "peers": ("seed",)}
COLUMNS = {"old": "old", "new": "new", "change": "new / old", "noise": "noise", "verdict": ""}


def read(path: Path) -> dict[str, Any]:
    """Read a kept result.

    Raises
    ------
    ValueError
        The file cannot be read, or is no result of `bench` or `peers`.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(content, dict) or content.get("experiment") not in KEYS:
        raise ValueError(f"{path}: no result of {' or '.join(KEYS)}")
    return content


def normalised(content: Mapping[str, Any]) -> dict[tuple[Any, ...], list[float]]:
    """Return the times of our rows, one per round, relative to the yardstick; by the keys of the row."""
    keys = KEYS[content["experiment"]]
    return {
        tuple(row[key] for key in keys): [
            ours / yardstick for ours, yardstick in zip(row["rounds"], row["yardstick_rounds"], strict=True)
        ]
        for row in content["rows"]
        if "yardstick_rounds" in row and row.get("peer", peers.OURS) == peers.OURS
    }


def judge(old: Sequence[float], new: Sequence[float]) -> Row:
    """Return the change of a row, from its times in the old and in the new result.

    Returns
    -------
    Row
        The medians ``old`` and ``new``, their ratio ``change``, the ``verdict``, and the ``noise``: the range
        of the rounds of one result as a share of their median, but at least `LEAST`.
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
    """Compare two results: one row for each row that both have.

    Raises
    ------
    ValueError
        The results are of different experiments or settings, or have fewer than `ROUNDS` rounds.
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
    """Print the comparison. Exit code 1 if a row is slower, 2 if the files cannot be compared."""
    parser = argparse.ArgumentParser(prog="python -m experiments compare", description=__doc__)
    parser.add_argument("old", type=Path, help="JSON file that --out wrote before")
    parser.add_argument(
        "new", type=Path, help="later JSON file of the same experiment with the same settings"
    )
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
        print("the machines differ: so may the ratios to the yardstick")
    keys = KEYS[old["experiment"]]
    print("times as multiples of the yardstick's\n")
    print(table(rows, {key: key for key in keys} | COLUMNS))
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("SLOWER", "faster")}
    print(f"\n{counts['SLOWER']} slower, {counts['faster']} faster, of {len(rows)}")
    for name, content in (("old", old), ("new", new)):
        alone = len(normalised(content)) - len(rows)
        if alone:
            print(f"{alone} more only in {name}")
    return 1 if counts["SLOWER"] else 0
