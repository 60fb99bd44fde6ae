"""Clients that look for a broker: all get what they want wherever they are, and each weight has its gain."""

import pytest

from experiments.hybrid import placement
from experiments.hybrid.hybrid import HIERARCHICAL, HYBRID, STRATEGIES
from experiments.hybrid.placement import ANYWHERE, SIZES, WAYS


@pytest.fixture(scope="module")
def rows():
    return list(placement.measured("ci", 1, STRATEGIES))


def by(rows, strategy, cell):
    return {row["placement"]: row[cell] for row in rows if row["routing"] == strategy}


@pytest.mark.slow
@pytest.mark.long
def test_all_get_the_same_wherever_they_are(rows):
    sizes = {name: value for name, value in SIZES["ci"].items() if name != "runs"}
    own = placement.crowd(**sizes, seed="1 1")
    pairs = sum(reader.interest == writer.interest for reader in own.subscribers for writer in own.publishers)
    assert {row["receipts"] for row in rows} == {pairs}
    assert len(rows) == len(WAYS) * len(STRATEGIES)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.slow
@pytest.mark.long
def test_each_weight_alone_has_the_least_of_what_it_is_for(rows, strategy):
    messages, delays, loads = (by(rows, strategy, cell) for cell in ("messages", "delay", "most clients"))
    assert min(messages, key=messages.get) == "by interest"
    assert min(delays, key=delays.get) == "by distance"
    assert min(loads, key=loads.get) == "by load"
    assert loads["by load"] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.slow
@pytest.mark.long
def test_all_three_are_better_than_anywhere_in_each(rows, strategy):
    for cell in ("messages", "delay", "most clients"):
        found = by(rows, strategy, cell)
        assert found["by all three"] < found[ANYWHERE]


@pytest.mark.slow
@pytest.mark.long
def test_hybrid_routing_sends_no_more_wherever_clients_are(rows):
    one, other = by(rows, HIERARCHICAL, "messages"), by(rows, HYBRID, "messages")
    assert all(other[way] <= one[way] for way in WAYS)


@pytest.mark.slow
@pytest.mark.long
def test_it_has_a_table(rows):
    told = placement.text(rows)
    assert max(map(len, told.splitlines())) <= 110
    assert "by all three" in told
    assert placement.text([]) == ""
