"""The newer matchers beside counting and the tree: what is measured, and what claims say of it."""

import pytest

from experiments.newer import newer
from experiments.newer.newer import BE, COUNTING, HEM, MATCHERS, REIN, RTREE, TAMA
from experiments.paper import verdicts


@pytest.fixture(scope="module")
def rows():
    return [row for name in ("dense", "narrow") for row in newer.asked(name, 200, 3, 2, seed=1)]


@pytest.mark.slow
def test_all_are_asked_the_same_and_find_the_same(rows):
    for own in newer.by_world(rows).values():
        assert tuple(own) == MATCHERS
        assert len({row["matches"] for row in own.values()}) == 1
        assert all(len(row["us"][batch]) == 2 for row in own.values() for batch in ("1", "1000"))


@pytest.mark.slow
def test_counting_increments_what_rein_does_not_mark(rows):
    for own in newer.by_world(rows).values():
        dimensions = 12
        met, missed = own[COUNTING]["work"], own[REIN]["work"]
        assert missed <= 2 * (200 * dimensions - met)  # an end beyond the value on one of both sides
        assert missed >= 200 * dimensions - met


def made(us, work=None, world=("dense", 1000)):
    """Rows of a world in which each matcher takes so long, and does so much."""
    return [
        {
            "matcher": name,
            "workload": world[0],
            "subscriptions": world[1],
            "work": (work or {}).get(name, 1.0),
            "us": {batch: [us[name]] * 7 for batch in ("1", "1000")},
        }
        for name in MATCHERS
    ]


TIMES = {REIN: 90.0, TAMA: 50.0, BE: 40.0, HEM: 10.0, COUNTING: 1000.0, RTREE: 5.0}


def verdict_of(rows, begin, part="time"):
    (found,) = [claim for claim in newer.claims(rows) if claim.claim.startswith(begin)]
    return getattr(found, part).verdict


@pytest.mark.parametrize(
    ("changed", "begin", "verdict"),
    [
        ({}, "REIN is an order", verdicts.HOLDS),
        ({REIN: 200.0}, "REIN is an order", verdicts.PARTLY),
        ({REIN: 300.0}, "REIN is an order", verdicts.FAILS),
        ({}, "HEM takes up to 86.8 % less time than REIN", verdicts.HOLDS),
        ({}, "HEM takes up to 86.8 % less time than TAMA", verdicts.PARTLY),
        ({HEM: 49.0}, "HEM takes up to 86.8 % less time than TAMA", verdicts.FAILS),
        ({}, "TAMA is", verdicts.HOLDS),
        ({TAMA: 800.0}, "TAMA is", verdicts.FAILS),
        ({}, "the BE-Tree", verdicts.HOLDS),
        ({BE: 1001.0}, "the BE-Tree", verdicts.FAILS),
        ({}, "the R*-tree is faster than all four, one event", verdicts.HOLDS),
        ({RTREE: 11.0}, "the R*-tree is faster than all four, one event", verdicts.FAILS),
    ],
)
def test_a_claim_is_judged_by_times(changed, begin, verdict):
    assert verdict_of(made(TIMES | changed), begin) == verdict


def test_a_claim_holds_partly_where_some_worlds_say_so():
    rows = made(TIMES) + made(TIMES | {RTREE: 11.0, TAMA: 990.0}, world=("narrow", 1000))
    assert verdict_of(rows, "TAMA is") == verdicts.PARTLY
    assert verdict_of(rows, "the R*-tree is faster than all four, one event") == verdicts.PARTLY


def test_work_is_judged_where_its_units_are_alike():
    rows = made(TIMES, {REIN: 10.0, COUNTING: 50.0}) + made(TIMES, {REIN: 100.0}, ("narrow", 1000))
    assert verdict_of(rows, "REIN is an order", "units") == verdicts.PARTLY
    assert verdict_of(rows, "REIN takes less", "units") == verdicts.HOLDS
    assert verdict_of(rows, "REIN takes less") == verdicts.FAILS


def test_what_was_not_measured_is_not_judged():
    rows = made(TIMES, world=("geo", 1000))
    assert verdict_of(rows, "REIN is an order") == verdicts.DOES_NOT_APPLY
    assert verdict_of(rows, "REIN takes less") == verdicts.DOES_NOT_APPLY


@pytest.mark.slow
def test_it_has_tables_and_a_picture(rows):
    told = newer.text(rows)
    assert "us, batches of 1,000" in told
    assert "narrow, 200" in told
    assert len(newer.draw(rows, "newer").axes) == 2
