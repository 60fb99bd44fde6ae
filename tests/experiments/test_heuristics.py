"""The comparison of matchers over 0, 1 and *: what is counted, and what claims say of it."""

import pytest

from experiments.paper import verdicts
from experiments.survey import heuristics
from experiments.survey.heuristics import DENSITIES, MODIFIED, NAIVE, PLAIN, RAPID, SGIM, TREE, WORDS


@pytest.fixture(scope="module")
def rows():
    found = [{"piece": "small", **row} for row in heuristics.asked(60, 0.8, 3, 6, 2, DENSITIES, seed=1)]
    return found + [
        {"piece": "more", **row} for row in heuristics.asked(240, 0.9, heuristics.C, 6, 2, DENSITIES, seed=2)
    ]


@pytest.mark.slow
def test_each_matcher_is_asked_in_each_world_and_finds_the_same(rows):
    worlds = heuristics.by_world(rows, "matches")
    assert len(worlds) == 2 * len(DENSITIES)
    for (_, _, c, _), own in worlds.items():
        assert own.keys() == {*PLAIN, WORDS, *(heuristics.GROUPED if c == heuristics.C else ())}
        assert len(set(own.values())) == 1


@pytest.mark.slow
def test_the_same_nodes_are_visited_where_ones_are_few(rows):
    for row in rows:
        own = heuristics.by_world(rows, "work")[row["subscriptions"], row["stars"], row["c"], row["ones"]]
        if row["few"] == row["events"]:
            assert own[RAPID] == own[MODIFIED]
    (last,) = [claim for claim in heuristics.claims(rows) if "same nodes" in claim.claim]
    assert last.units.verdict == verdicts.HOLDS


def made(work, us=1.0, **more):
    """Rows of one world in which each matcher does some work."""
    world = {"subscriptions": 100, "stars": 0.8, "c": 4, "ones": 0.9, "few": 0, "events": 5, **more}
    work = dict.fromkeys(heuristics.GROUPED, work[SGIM]) | {TREE: 50} | work
    world = {"none_us": 0.0, "piece": str(world)} | world
    return [{"matcher": name, "work": count, "us": us, **world} for name, count in work.items()]


def test_a_claim_holds_where_all_worlds_say_so_and_partly_where_some_do():
    sure = made({NAIVE: 100, RAPID: 40, MODIFIED: 10, SGIM: 5})
    other = made({NAIVE: 100, RAPID: 60, MODIFIED: 70, SGIM: 5}, ones=0.5)
    for rows, much, better in [
        (sure, "holds", "holds"),
        (sure + other, "partly", "partly"),
        (other, "fails", "fails"),
    ]:
        found = {claim.claim: claim.units.verdict for claim in heuristics.claims(rows)}
        assert found["naive is much worse than RAPIDMatch"] == much
        assert found["modified RAPIDMatch is better than RAPIDMatch"] == better
        assert found["with 100 subscriptions, SGIM is better than naive"] == "holds"


@pytest.mark.parametrize(
    ("few", "many", "verdict", "told"),
    [
        (50, 30, "holds", "always from 1,000 on"),
        (30, 30, "holds", "always from 100 on"),
        (30, 50, "fails", "nowhere for good"),
        (50, 50, "fails", "in 0 of 1 with 100, 0 of 1 with 1,000; nowhere"),
    ],
)
def test_it_is_told_from_how_many_subscriptions_on_sgim_is_ahead(few, many, verdict, told):
    """RAPIDMatch does 40."""
    work = {NAIVE: 100, RAPID: 40, MODIFIED: 40}
    rows = made(work | {SGIM: few}) + made(work | {SGIM: many}, subscriptions=1000)
    (found,) = [claim for claim in heuristics.claims(rows) if claim.claim.startswith("SGIM overtakes")]
    assert found.units.verdict == verdict
    assert told in found.units.ours


def test_sgim_is_judged_by_each_number_of_attributes():
    rows = made({NAIVE: 100, RAPID: 40, MODIFIED: 40, SGIM: 50, "sgim, 6": 30})
    found = {claim.claim: claim.units.verdict for claim in heuristics.claims(rows)}
    assert found["SGIM by 6 attributes overtakes RAPIDMatch as subscriptions become many"] == "holds"
    assert found["SGIM by 4 attributes overtakes RAPIDMatch as subscriptions become many"] == "fails"
    assert found["SGIM is better by 6 attributes than by 2"] == "holds"
    assert found["SGIM is better by 4 attributes than by 2"] == "fails"


@pytest.mark.parametrize(("slow", "verdict"), [(3.0, "holds"), (3.1, "fails")])
def test_a_thing_touched_takes_all_about_as_long_within_a_factor(slow, verdict):
    """Each touches 200 things, and all read an event in 2 us."""
    rows = made(dict.fromkeys(PLAIN, 200) | {TREE: 200}, us=3.0, none_us=2.0)
    rows += [row | {"us": 2.0 + slow} for row in made({NAIVE: 200, SGIM: 1}, none_us=2.0)
             if row["matcher"] == NAIVE]  # fmt: skip
    rows = [row for row in rows if not (row["matcher"] == NAIVE and row["us"] == 3.0)]
    (found,) = [claim for claim in heuristics.claims(rows) if "a thing touched" in claim.claim]
    assert found.time.verdict == verdict


@pytest.mark.slow
def test_it_has_tables_and_a_picture(rows):
    told = heuristics.text(rows)
    assert "touched per event" in told
    assert "ns for each thing touched" in told
    assert "us per event" in told
    assert len(heuristics.draw(rows, "bits").axes) == 2 * len(DENSITIES)  # seconds, and what is touched
