"""How numbers become verdicts: what is not certain does not hold."""

import pytest

from experiments.paper import verdicts
from experiments.paper.confidence import Interval


def exact(*values):
    return [Interval(value, value, value) for value in values]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (exact(0.2, 0.3), "holds"),
        (exact(0.2, 0.05), "partly"),
        (exact(0.2, 0.05, 0.05), "fails"),  # in less than half of the cases
        (exact(0.1, 0.1), "fails"),
        ([Interval(0.3, 0.05, 0.5)], "fails"),  # not certain
        ([], "does not apply"),
    ],
)
def test_all_values_surely_exceed_a_limit(found, verdict):
    assert verdicts.above(found, 0.1) == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (exact(0.3, 0.4), "holds"),
        (exact(0.3, 0.2), "partly"),
        (exact(0.3, 0.05), "fails"),
        ([Interval(0.3, 0.2, 0.4)], "partly"),
    ],
)
def test_much_better_is_more_than_clearly_better(found, verdict):
    assert verdicts.rather_above(found, verdicts.CLEARLY, verdicts.MUCH) == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (exact(0.01, 0.05), "holds"),
        (exact(0.01, 0.09), "partly"),
        (exact(0.01, 0.71), "fails"),
        ([Interval(0.04, 0.0, 0.08)], "partly"),
        ([Interval(0.04, 0.0, 0.8)], "fails"),
        ([], "does not apply"),
    ],
)
def test_the_largest_value_must_be_negligible(found, verdict):
    assert verdicts.negligible(found) == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((0.47, 0.46, 0.48), "holds"),
        ((0.47, 0.38, 0.55), "partly"),
        ((0.71, 0.70, 0.72), "fails"),
        ((0.30, 0.29, 0.31), "fails"),
    ],
)
def test_nearly_half_is_neither_less_nor_more(found, verdict):
    assert verdicts.nearly_half(found) == verdict


@pytest.mark.parametrize(
    ("moved", "unknown", "verdict"),
    [
        ([0, 0, 0, 1], 0, "holds"),
        ([0, 1, 0, 1], 0, "partly"),
        ([0, 0, 0, 3], 0, "partly"),
        ([1, 0, 2], 0, "fails"),
        ([0, 0, 0], 1, "holds"),
        ([0, 0], 2, "partly"),  # wide intervals do not prove that nothing moves
        ([], 4, "partly"),
        ([], 0, "does not apply"),
    ],
)
def test_what_changes_slowly(moved, unknown, verdict):
    assert verdicts.slowly(moved, unknown) == verdict


def test_ranks():
    assert [verdicts.rising(rank) for rank in (1.0, 0.9, 0.4, -1.0)] == ["holds", "partly", "fails", "fails"]


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        (("holds", "does not apply"), "holds"),
        (("holds", "fails"), "partly"),
        (("partly", "partly"), "partly"),
        (("holds", "fails", "fails"), "fails"),
        ((), "does not apply"),
    ],
)
def test_a_claim_in_several_cases_holds_partly_in_half_of_them(cases, verdict):
    assert verdicts.of_cases(cases) == verdict


@pytest.mark.parametrize(
    ("shortest", "arrival", "longest", "verdict"),
    [
        (0.4, 0.0, -0.2, "holds"),
        (0.4, 0.3, 0.05, "partly"),
        (0.6, 0.5, 0.35, "fails"),  # the worst order gains, so work is shared
        (0.05, 0.05, 0.05, "does not apply"),  # nothing is gained
    ],
)
def test_what_the_order_gains(shortest, arrival, longest, verdict):
    assert verdicts.by_order([tuple(exact(shortest, arrival, longest))]) == verdict


def test_shares_that_fall():
    falling = ([0.3, 0.2, 0.1], [0.3, 0.35, 0.1], [0.3, 0.2, 0.28])
    assert [verdicts.falling(shares) for shares in falling] == ["holds", "partly", "fails"]


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ((0.9, 0.5, 0.2, 0.0), "holds"),
        ((0.9, 0.5, 0.2, 0.46), "partly"),
        ((0.9, 0.5, 0.0, 0.0), "partly"),
        ((0.9, 0.0, 0.0, 0.0), "fails"),
        ((0.9, 0.5), "partly"),  # N = 16 was not measured
    ],
)
def test_ragged_means_no_valley_at_every_n_that_the_paper_names(shares, verdict):
    assert verdicts.ragged(dict(zip((1, 4, 16, 64), shares, strict=False))) == verdict
