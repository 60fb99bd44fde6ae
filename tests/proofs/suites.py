"""Published suites: each case is right, refused clearly, or differs as documented."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from published import DIFFERS, REFUSED, RIGHT, Outcome, accepted_patterns, cesql, patterns, selectors

FOLDER = "CESQL_TCK"
"""The variable that names the folder `cesql/cesql_tck` of the repository cloudevents/spec."""
SUITES = [selectors, patterns, accepted_patterns]
CASES = len(SUITES) + 1
_kept: dict[str, Counter[str]] = {}


def run(seed: int) -> Counter[str]:
    """Decide all cases of a suite. Raises `AssertionError` for one whose verdict is none of the three."""
    if seed < len(SUITES):
        return _counted(list(SUITES[seed]()))
    folder = os.environ.get(FOLDER)
    if folder is None:
        return Counter(
            {f"CloudEvents SQL: set {FOLDER} to the folder cesql/cesql_tck of cloudevents/spec": 1}
        )
    outcomes = _counted(list(cesql(Path(folder))))
    assert outcomes, f"{FOLDER}={folder} has no cases"
    return outcomes


def _counted(outcomes: list[Outcome]) -> Counter[str]:
    wrong = [one for one in outcomes if one.verdict not in (RIGHT, REFUSED, DIFFERS)]
    assert not wrong, "\n".join(f"{one.suite}: {one.case}: {one.verdict}" for one in wrong)
    for one in outcomes:
        _kept.setdefault(one.suite, Counter())[one.verdict] += 1
    return Counter(one.verdict for one in outcomes)


def rows() -> list[dict[str, Any]]:
    """The counts of each suite."""
    return [
        {"suite": suite, "cases": counts.total()}
        | {verdict: counts[verdict] for verdict in (RIGHT, REFUSED, DIFFERS)}
        for suite, counts in _kept.items()
    ]
