"""How much the tests try: a short form by default, all of it with `--long`, which `make prove` runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings

SHARE = 8
"""The short form tries one of so many examples of a test of Hypothesis, the same ones at each run."""


def shorten(tests: Iterable[Any]) -> None:
    """Let tests of Hypothesis try fewer examples, always the same; each test is there once."""
    for test in tests:
        machine = getattr(test, "_hypothesis_state_machine_class", None)
        if machine is not None:
            machine.TestCase.settings = _fewer(machine.TestCase.settings)
        elif hasattr(test, "_hypothesis_internal_use_settings"):
            test._hypothesis_internal_use_settings = _fewer(test._hypothesis_internal_use_settings)


def long_but(values: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """Return parameters of a test, of which all but the `short` ones are run with `--long` only."""
    return [one if one in short else pytest.param(one, marks=pytest.mark.long) for one in values]


def each_once(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return all pairs as parameters, of which those run without `--long` have each value at least once."""
    most = max(len(some), len(others))
    short = {(at % len(some), at % len(others)) for at in range(most)}
    return [
        pytest.param(one, other, marks=[] if (i, j) in short else pytest.mark.long)
        for i, one in enumerate(some)
        for j, other in enumerate(others)
    ]


def _fewer(given: settings) -> settings:
    return settings(given, max_examples=max(1, given.max_examples // SHARE), derandomize=True, database=None)
