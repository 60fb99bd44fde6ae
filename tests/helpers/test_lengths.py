"""Tests have a short form, which is the same at each run."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

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

    Machine.TestCase.settings = settings(max_examples=50, stateful_step_count=2, deadline=None)
    shorten([Machine.TestCase.runTest])
    Machine.TestCase("runTest").runTest()
    assert Machine.runs <= 50 // SHARE + 1


def test_what_is_no_test_of_hypothesis_is_left_alone():
    shorten([print, len])


def test_values_that_are_not_short_are_marked():
    made = long_but(["a", "b"], {"a"})
    assert made[0] == "a"
    assert [mark.name for mark in made[1].marks] == ["long"]


def test_each_value_of_two_lists_is_in_a_short_pair():
    made = each_once(["a", "b", "c"], [1, 2])
    assert len(made) == 6
    assert [one.values for one in made if not one.marks] == [("a", 1), ("b", 2), ("c", 1)]
