"""A day of changing load: all strategies serve the same, and what is said of their costs."""

import pytest

from experiments.forwarding import day
from experiments.forwarding.day import CHOSEN, DAY, FIXED, NAMES
from experiments.paper import verdicts


@pytest.fixture(scope="module")
def rows():
    return [{"piece": "day 1", **row} for name in NAMES for row in day.played(name, 5, 0.1, seed=2)]


@pytest.mark.slow
@pytest.mark.long
def test_every_strategy_serves_the_same_all_day(rows):
    receipts = {name: day.total(rows, name, "receipts") for name in NAMES}
    assert len(set(receipts.values())) == 1
    assert receipts[CHOSEN] > 300
    for name in NAMES:
        assert [row["hour"] for row in rows if row["day"] == name] == list(range(len(DAY))) == list(range(24))


@pytest.mark.slow
@pytest.mark.long
def test_events_cost_what_the_strategies_cost(rows):
    published = sum(int(0.1 * hour.events) for hour in DAY)
    sent = {name: day.total(rows, name, "events") for name in NAMES}
    assert sent["event_forwarding"] == 4 * published
    assert sent["profile_forwarding"] <= min(sent["rendezvous"], sent["event_forwarding"], sent["hybrid"])
    assert day.total(rows, "event_forwarding", "subscriptions") == 0
    for name in FIXED:
        assert {row["in use"] for row in rows if row["day"] == name} == {name}
        assert day.total(rows, name, "choosing") == 0
        matched = 0 if name == "event_forwarding" else sent[name] + published
        assert day.total(rows, name, "matched") == matched


@pytest.mark.slow
@pytest.mark.long
def test_a_network_that_chooses_changes_its_strategy(rows):
    assert day.total(rows, CHOSEN, "choosing") > 0
    assert len({row["in use"] for row in rows if row["day"] == CHOSEN}) > 1


def made(*costs):
    return [
        {"piece": f"day {number}", "day": name, "hour": 0, "events": cost, "subscriptions": 0, "choosing": 0,
         "receipts": 1, "matched": 0, "in use": FIXED[0]}
        for number, own in enumerate(costs) for name, cost in zip(NAMES, own, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("costs", "verdict"),
    [
        ([(4, 5, 6, 7, 3)], verdicts.HOLDS),
        ([(40, 50, 60, 70, 41)], verdicts.FAILS),
        ([(4, 5, 6, 7, 4)], verdicts.FAILS),
        ([(4, 5, 6, 7, 3), (9, 4, 9, 9, 3)], verdicts.HOLDS),  # another one is best on the other day
        ([(40, 50, 60, 70, 30), (40, 50, 60, 70, 39)], verdicts.PARTLY),  # not surely
    ],
)
def test_choosing_holds_if_it_surely_costs_less_than_each_fixed_strategy(costs, verdict):
    assert {claim.units.verdict for claim in day.claims(made(*costs))} == {verdict}


def test_the_price_of_a_match_varies():
    rows = made((100, 200, 200, 200, 90), (100, 200, 200, 200, 90))
    for row in rows:
        row["matched"] = 80 if row["day"] == CHOSEN else 0
    assert [claim.units.verdict for claim in day.claims(rows)] == ["fails", "holds", "fails", "fails"]
    assert [day.cost(rows, CHOSEN, price) for price in (0.25, 0)] == [220, 180]


@pytest.mark.slow
@pytest.mark.long
def test_it_has_a_table_and_a_picture(rows):
    told = day.text(rows)
    assert "0:00 profile forwarding" in told
    assert max(map(len, told.splitlines())) <= 110
    assert len(day.draw(rows, "day").axes) == 1
