"""The comparison of matchers over 0, 1 and *: what is counted, and what claims say of it."""

import pytest

from experiments.paper import verdicts
from experiments.survey import heuristics
from experiments.survey.heuristics import DENSITIES, MODIFIED, NAIVE, PLAIN, RAPID, SGIM, TREE, WORDS


@pytest.fixture(scope="module")
def rows():
    found = [{"piece": "small", **row} for row in heuristics.asked(60, 0.8, 3, 6, 2, seed=1)]
    return found + [{"piece": "more", **row} for row in heuristics.asked(240, 0.9, 3, 6, 2, seed=2)]


@pytest.mark.slow
def test_each_matcher_is_asked_in_each_world_and_finds_the_same(rows):
    worlds = heuristics.by_world(rows, "matches")
    assert len(worlds) == 2 * len(DENSITIES)
    for own in worlds.values():
        assert own.keys() == {*PLAIN, WORDS}
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
    work = {TREE: 50} | work
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
    (found,) = [claim for claim in heuristics.claims(rows) if "overtakes" in claim.claim]
    assert found.units.verdict == verdict
    assert told in found.units.ours


@pytest.mark.slow
def test_it_has_tables_and_a_picture(rows):
    told = heuristics.text(rows)
    assert "touched per event" in told
    assert "ns for each thing touched" in told
    assert "us per event" in told
    assert len(heuristics.draw(rows, "bits").axes) == 2 * len(DENSITIES)  # seconds, and what is touched
