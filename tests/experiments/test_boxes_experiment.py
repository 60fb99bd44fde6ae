"""Near boxes told as one: all is delivered as before, tables shrink, and what comes in vain is counted."""

from itertools import pairwise

import pytest

from experiments.forwarding import boxes
from experiments.forwarding.boxes import SIZES, STRATEGIES, TOLD
from lengths import long_but


@pytest.fixture(scope="module")
def world():
    return boxes.plane(**SIZES["ci"], seed=2)


@pytest.fixture(scope="module", params=long_but(STRATEGIES, ["hybrid"]))
def found(world, request):
    return {told: boxes.counted(world, request.param, told) for told in TOLD}


@pytest.mark.slow
def test_each_client_gets_what_it_wants_whatever_neighbours_are_told(world, found):
    wanted = {
        (f"c{client}", event)
        for client, (_, (a, b, c, d)) in enumerate(world.boxes)
        for event, (_, x, y) in enumerate(world.points)
        if a <= x <= b and c <= y <= d
    }
    assert len(wanted) > 50
    assert all(got == wanted for _, got in found.values())


@pytest.mark.slow
def test_the_more_is_merged_the_smaller_are_tables_and_the_more_events_are_sent(found):
    rows = [row for row, _ in found.values()]
    for less, more in pairwise(rows):
        assert less["entries"] >= more["entries"]
        assert less["events"] <= more["events"]
        assert less["in vain"] <= more["in vain"]
    assert rows[0]["entries"] > rows[1]["entries"] > rows[-1]["entries"]
    everything, covering, *merged = rows
    assert everything["subscribing"] > covering["subscribing"]
    assert all(row["subscribing"] >= covering["subscribing"] for row in merged)


@pytest.mark.slow
def test_what_comes_in_vain_is_what_is_sent_beyond_what_all_subscriptions_need(found):
    rows = [row for row, _ in found.values()]
    assert rows[0]["in vain"] == 0 < rows[-1]["in vain"]
    assert all(row["events"] - row["in vain"] == rows[0]["events"] for row in rows)


@pytest.mark.slow
def test_without_covering_each_subscription_is_told_over_each_link(world, found):
    row, _ = found["all"]
    brokers, count = len(world.topology.brokers), len(world.boxes)
    if row["strategy"] == "profile_forwarding":
        assert row["entries"] == count * brokers
        assert row["subscribing"] == count * (brokers - 1)
    assert row["entries"] == row["subscribing"] + count
