"""How much the tests try: a short form by default, all of it with `--long`, which `make prove` runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from hypothesis import settings

SHARE = 8
"""The short form tries one of so many examples of a test of Hypothesis, the same ones at each run."""
whole = True
"""Whether parameters of the long form are collected; `conftest` knows before any test is imported."""


def shorten(tests: Iterable[Any]) -> None:
    """Let tests of Hypothesis try fewer examples, always the same; each test is there once."""
    for test in tests:
        machine = getattr(test, "_hypothesis_state_machine_class", None)
        if machine is not None:
            machine.TestCase.settings = _fewer(machine.TestCase.settings)
        elif hasattr(test, "_hypothesis_internal_use_settings"):
            test._hypothesis_internal_use_settings = _fewer(test._hypothesis_internal_use_settings)


def long_but(values: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """Return parameters of a test; all but the `short` ones are there with `--long` only."""
    return [one for one in values if whole or one in short]


def each_once(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Return all pairs as parameters; without `--long` so many that each value is there once at least."""
    most = max(len(some), len(others))
    short = {(at % len(some), at % len(others)) for at in range(most)}
    return [
        (one, other)
        for i, one in enumerate(some)
        for j, other in enumerate(others)
        if whole or (i, j) in short
    ]


def _fewer(given: settings) -> settings:
    return settings(given, max_examples=max(1, given.max_examples // SHARE), derandomize=True, database=None)
