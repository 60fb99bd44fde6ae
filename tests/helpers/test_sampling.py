"""A part of the tests has cases of each, and is the same for the same seed."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from sampling import CASES, SHARE, sampled, shorten

ITEMS = [
    SimpleNamespace(nodeid=f"a.py::{name}[{case}]") for name in ("test_x", "test_y") for case in range(9)
] + [SimpleNamespace(nodeid="a.py::test_alone")]


def names(items):
    return [item.nodeid for item in items]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_each_test_has_some_cases(seed):
    chosen = names(sampled(ITEMS, seed))
    assert chosen == sorted(chosen, key=names(ITEMS).index)
    assert [sum(name in one for one in chosen) for name in ("test_x", "test_y", "alone")] == [CASES, CASES, 1]
    assert chosen == names(sampled(ITEMS, seed))


def test_other_seeds_come_to_all_cases():
    assert {name for seed in range(50) for name in names(sampled(ITEMS, str(seed)))} == set(names(ITEMS))


def test_fewer_examples_are_tried():
    tried = []

    @settings(max_examples=50)
    @given(st.integers())
    def test(number):
        tried.append(number)

    shorten([test])
    test()
    assert len(tried) == 50 // SHARE


def test_a_state_machine_makes_fewer_runs():
    class Machine(RuleBasedStateMachine):
        runs = 0

        def __init__(self):
            super().__init__()
            Machine.runs += 1

        @rule()
        def step(self):
            pass

    Machine.TestCase.settings = settings(max_examples=50, stateful_step_count=2, deadline=None)
    shorten([Machine.TestCase.runTest])
    Machine.TestCase("runTest").runTest()
    assert Machine.runs <= 50 // SHARE + 1


def test_what_is_no_test_of_hypothesis_is_left_alone():
    shorten([print, len])
