"""Tests have a short form, which is the same at each run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import lengths
from lengths import SHARE, each_once, long_but, shorten


def test_fewer_examples_are_tried_and_always_the_same():
    tried = []

    @settings(max_examples=50)
    @given(st.integers())
    def test(number):
        tried.append(number)

    shorten([test])
    test()
    assert len(tried) == 50 // SHARE
    test()
    assert tried[: len(tried) // 2] == tried[len(tried) // 2 :]


def test_a_state_machine_makes_fewer_runs():
    class Machine(RuleBasedStateMachine):
        runs = 0

        def __init__(self):
            super().__init__()
            Machine.runs += 1

        @rule()
        def step(self):
            pass

    Machine.TestCase.settings = settings(max_examples=50, stateful_step_count=2)
    shorten([Machine.TestCase.runTest])
    Machine.TestCase("runTest").runTest()
    assert Machine.runs <= 50 // SHARE + 1


def test_what_is_no_test_of_hypothesis_is_left_alone():
    shorten([print, len])


@pytest.mark.parametrize("whole", [False, True])
def test_values_that_are_not_short_are_left_out(whole, monkeypatch):
    monkeypatch.setattr(lengths, "whole", whole)
    assert long_but(["a", "b"], {"a"}) == (["a", "b"] if whole else ["a"])


@pytest.mark.parametrize("whole", [False, True])
def test_each_value_of_two_lists_is_in_a_short_pair(whole, monkeypatch):
    monkeypatch.setattr(lengths, "whole", whole)
    made = each_once(["a", "b", "c"], [1, 2])
    assert set(made) >= {("a", 1), ("b", 2), ("c", 1)}
    assert len(made) == (6 if whole else 3)
