"""Bittner's comparison: what is drawn, what is measured, and what is made of the rows."""

import numpy as np
import pytest

from experiments.alerting import alerting
from experiments.alerting.alerting import BITS, METHODS, NODES, POINTERS, TREE, alike, compared, measured
from experiments.alerting.draws import OPERATORS, VALUES, Case
from experiments.paper import verdicts

SMALL = Case(30, 2, 0.3, 0.2, "mixed")


@pytest.fixture(scope="module")
def rows():
    found = []
    for parameter, values in (("profiles", (10, 20, 40)), ("attributes", (1, 2, 3))):
        cases = [SMALL._replace(**{parameter: value}) for value in values]
        found += measured(parameter, cases, 10, 2000, 1)
    return found


@pytest.mark.parametrize("operators", [*OPERATORS, "mixed"])
def test_profiles_care_about_something_and_have_the_operators(operators):
    case = SMALL._replace(operators=operators, careless=0.95)
    for predicate in case.predicates(np.random.default_rng(0)):
        (conjunction,) = predicate.filters
        assert conjunction.constraints
    used = {
        test.operator
        for one in case.predicates(np.random.default_rng(0))
        for test in one.filters[0].constraints
    }
    expected = {"=": {"="}, "<": {"<"}, ">": {">"}, "range": {"<=", ">="}, "set": {"in"}}
    assert used == expected.get(operators, {"=", "<", ">", "<=", ">=", "in"})


@pytest.mark.parametrize("matches", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("operators", ["<", "range", "set"])
def test_the_share_of_matches_is_about_what_is_asked_for(operators, matches):
    case = Case(200, 2, 0.0, matches, operators)
    rng = np.random.default_rng(0)
    predicates, events = case.predicates(rng), case.events(100, rng)
    share = np.mean([[one.matches(event) for one in predicates] for event in events])
    assert matches / 3 < share < matches * 1.6
    assert {value for event in events for value in event.values()} <= set(range(VALUES))


@pytest.mark.slow
def test_every_method_has_a_row_and_finds_the_same(rows):
    for piece in range(0, len(rows), len(METHODS)):
        own = rows[piece : piece + len(METHODS)]
        assert [row["method"] for row in own] == list(METHODS)
        assert len({row["matches"] for row in own if "matches" in row}) == 1
    assert all("refused" in row or len(row["us"]) == alerting.TURNS for row in rows)


@pytest.mark.slow
def test_a_tree_without_room_has_its_reason_alone(rows):
    (refused,) = [row for row in rows if "refused" in row and row["parameter"] == "attributes"]
    assert (refused["method"], refused["value"]) == (TREE, 3)
    assert "references" in refused["refused"]
    assert "steps" not in refused
    assert "at most 2,000 are allowed" in " ".join(alerting.text(rows).split())


@pytest.mark.slow
def test_counted_memory_is_references_and_bits(rows):
    by = {row["method"]: row for row in rows if (row["parameter"], row["value"]) == ("profiles", 20)}
    assert by[BITS]["held"] < by[POINTERS]["held"]
    assert by[NODES]["held"] >= by[BITS]["held"]
    assert by["naive"]["held"] is None
    assert compared(rows, POINTERS, BITS, "held").verdict == verdicts.HOLDS
    assert compared(rows, BITS, POINTERS, "held").verdict == verdicts.FAILS


def made(one, other, cell="steps"):
    return [
        {"parameter": "profiles", "value": value, "method": method, cell: height}
        | ({"steps": 1.0} if cell == "us" else {})
        for method, curve in (("one", one), ("other", other))
        for value, height in enumerate(curve)
    ]


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ((1, 2, 3), (10, 40, 90), verdicts.HOLDS),
        ((1, 2, 3), (90, 40, 10), verdicts.FAILS),
        ((1, 2, 3, 4), (10, 40, 30, 90), verdicts.PARTLY),
        ((1, 1.01, 1.02), (7, 7.2, 7.1), verdicts.HOLDS),  # both flat
        ((1, 1.01, 1.02), (7, 8, 9), verdicts.FAILS),  # one flat
        ((1, 2), (1, 2), verdicts.DOES_NOT_APPLY),
    ],
)
def test_curves_are_alike_by_rank(one, other, verdict):
    assert alike(made(one, other), "one", "other", "steps").verdict == verdict


def test_longer_is_judged_by_whole_intervals():
    sure = made([(3.0, 2.0, 4.0)], [(1.0, 1.1, 0.9)], "us")
    unsure = made([(3.0, 1.0, 4.0)], [(1.0, 1.1, 0.9)], "us")
    assert compared(sure, "one", "other", "us").verdict == verdicts.HOLDS
    assert compared(unsure, "one", "other", "us").verdict == verdicts.FAILS
    assert compared(sure, "one", "nobody", "us").verdict == verdicts.DOES_NOT_APPLY


@pytest.mark.slow
def test_nothing_is_claimed_of_what_cannot_be_had(rows):
    told = [claim for claim in alerting.claims(rows) if "Elvin4" in claim.claim]
    assert [(one.units.verdict, one.time.verdict) for one in told] == [(verdicts.DOES_NOT_APPLY,) * 2]
    compiled = next(claim for claim in alerting.claims(rows) if "R*-tree" in claim.claim)
    assert compiled.time.verdict == verdicts.DOES_NOT_APPLY


@pytest.mark.slow
def test_tables_are_narrow_and_pictures_have_all_curves(rows):
    assert max(map(len, alerting.text(rows).splitlines())) <= 100
    figure = alerting.draw(rows, "title")
    assert len(figure.axes) == 16
    assert len(figure.axes[0].lines) == len(METHODS)
