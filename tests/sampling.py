"""A part of the tests, for every change: some cases of each, fewer examples. Another seed, other cases."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings

CASES = 2
"""Cases of a parametrized test that are run."""
SHARE = 5
"""One of so many examples is tried, of those that a test of Hypothesis asks for."""


def sampled(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Some cases of each test, in the order of `items`."""
    kept: list[pytest.Item] = []
    for name, cases in groupby(items, _name):
        some = list(enumerate(cases))
        chosen = random.Random(f"{seed} {name}").sample(some, min(CASES, len(some)))
        kept += [case for _, case in sorted(chosen, key=lambda numbered: numbered[0])]
    return kept


def shorten(tests: Iterable[Any]) -> None:
    """Let tests of Hypothesis try fewer examples; each is there once."""
    for test in tests:
        machine = getattr(test, "_hypothesis_state_machine_class", None)
        if machine is not None:
            machine.TestCase.settings = _fewer(machine.TestCase.settings)
        elif hasattr(test, "_hypothesis_internal_use_settings"):
            test._hypothesis_internal_use_settings = _fewer(test._hypothesis_internal_use_settings)


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _fewer(given: settings) -> settings:
    return settings(given, max_examples=max(1, given.max_examples // SHARE))
