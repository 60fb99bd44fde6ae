"""Hybrid and hierarchical routing compared: short cuts that give the same, and what holds of the cost."""

from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hybrid import hybrid
from experiments.hybrid.hybrid import HIERARCHICAL, HYBRID, STRATEGIES, Curve, knee, linear, plateau
from experiments.hybrid.routes import Routers, play, whole
from experiments.paper import verdicts
from experiments.paper.runner import Run
from experiments.paper.settings import CI
from experiments.simulation.topology import Topology, random_tree, uniform


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_events_that_follow_routes_are_those_that_routers_route_one_by_one(strategy, seed):
    rng = Random(seed)
    topology = random_tree(rng, rng.randint(1, 8), rng.randint(1, 4), children=4)
    subscribers, publishers = uniform(rng, topology, 3 + 9 * seed), uniform(rng, topology, 30)
    times = np.array([rng.random() for _ in publishers]) * 0.05
    for message, delivery in ((0.002, 0.0), (0.001, 0.003)):
        routers = Routers(topology, strategy)
        routers.subscribe(subscribers)
        short = play(routers.routes(publishers), times, message, delivery)
        long = whole(topology, strategy, subscribers, publishers, times, message, delivery)
        assert short[:3] == long[:3]  # messages, cost, receipts
        assert short.receipts == len(subscribers) * len(publishers)
        assert short.delay == pytest.approx(long.delay, rel=1e-9)
        assert short.last == pytest.approx(long.last, rel=1e-9)


def messages(topology, strategy, subscribers, publishers):
    """Messages of each publisher's event by itself."""
    routers = Routers(topology, strategy)
    routers.subscribe(subscribers)
    return [play(routers.routes([publisher]), np.zeros(1), 0.0).messages for publisher in publishers]


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 12))
def test_a_multicast_saves_messages_exactly_where_more_than_one_broker_is_interested(
    seed, clusters, brokers, count
):
    rng = Random(seed)
    topology = random_tree(rng, clusters, brokers)
    subscribers = uniform(rng, topology, count)
    costs = {name: messages(topology, name, subscribers, topology.brokers) for name in STRATEGIES}
    for at, publisher in enumerate(topology.brokers):
        hybrid_cost, other = costs[HYBRID][at], costs[HIERARCHICAL][at]
        saved = 0
        for cluster, own in topology.members.items():
            normal = len(set(own[1:]) & set(subscribers))  # members that get it from the designated broker
            if publisher in own[1:]:
                saved += len(set(own[1:]) & set(subscribers) - {publisher})
            elif cluster and normal:
                saved += normal - 1
        assert other - hybrid_cost == saved >= 0


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
def test_more_subscribers_never_cost_less_and_the_cost_has_a_limit(seed, clusters, brokers):
    rng = Random(seed)
    topology = random_tree(rng, clusters, brokers)
    subscribers = uniform(rng, topology, 40)
    limits = {HYBRID: 2 * clusters - 1 if brokers > 1 else clusters - 1, HIERARCHICAL: clusters * brokers - 1}
    for strategy, limit in limits.items():
        costs = [messages(topology, strategy, subscribers[:n], topology.brokers) for n in (0, 2, 9, 40)]
        for fewer, more in pairwise(costs):
            assert all(a <= b for a, b in zip(fewer, more, strict=True))
        everybody = messages(topology, strategy, topology.brokers, topology.brokers)
        assert everybody == [limit] * len(topology.brokers)
        assert max(costs[-1]) <= limit


def test_an_event_costs_each_link_of_the_network_that_it_crosses():
    """One cluster in the middle of a chain of routers, and one at each end; a subscriber at each broker."""
    routers = nx.path_graph(6)
    nx.set_edge_attributes(routers, 0.001, "weight")
    members = {name: (f"{name}0", f"{name}1", f"{name}2") for name in "abc"}
    latencies = {(one, other): 0.001 for one in "abc" for other in "abc" if one != other}
    topology = Topology("a", {"b": "a", "c": "a"}, members, latencies, routers, {"a": 2, "b": 0, "c": 5})
    for strategy, within in ((HIERARCHICAL, 2), (HYBRID, 1)):
        routers_of = Routers(topology, strategy)
        routers_of.subscribe(topology.brokers)
        played = play(routers_of.routes(["a0"]), np.zeros(1), 0.0)
        assert played.messages == 2 + 3 * within
        assert played.cost == (2 - 0) + (5 - 2) + 3 * within


def test_where_curves_part_and_from_where_they_are_flat():
    low = Curve([1, 2, 5, 10, 20], [1.0, 2.0, 4.0, 4.1, 4.0], [0.0] * 5)
    high = Curve(low.at, [1.0, 2.2, 4.1, 8.0, 9.0], [0.0] * 5)
    assert plateau(low) == 5
    assert plateau(high) == 20
    assert knee(high, low) == 10  # above at 2 already, but not at 5
    assert knee(low, high) is None
    assert linear(Curve([1, 2, 3], [2.0, 4.0, 6.0], []), 3) == pytest.approx(1)
    assert linear(Curve([1, 2, 3], [2.0, 4.0, 0.0], []), 3) < 0.5


def made(strategy, publishers, heights):
    """Rows of one run, with the same heights for cost and delays, by subscribers."""
    return [
        {"piece": "run 1", "run": 1, "strategy": strategy, "publishers": publishers, "subscribers": at,
         "clusters": 1, "brokers": 1, "subscription messages": 1, "cost": height, "receipts": 1,
         **{f"{kind} {load}": height / 1000 for kind in ("latency", "elapsed") for load in hybrid.LOADS}}
        for at, height in heights.items()
    ]  # fmt: skip


def judged(slow, fast, fast_1000=None):
    rows = [*made(HIERARCHICAL, 100, slow), *made(HYBRID, 100, fast)]
    rows += [*made(HIERARCHICAL, 1000, {at: 10 * height for at, height in slow.items()}),
             *made(HYBRID, 1000, fast_1000 or {at: 10 * height for at, height in fast.items()})]  # fmt: skip
    rows += [{"piece": hybrid.WHOLE, "whole": HYBRID, "publishers": 1, "subscribers": 1, "messages": 1,
              "cost": 1, "same": True, "apart": 0.0}]  # fmt: skip
    return {
        claim.claim: (claim.time if claim.claim.startswith("delay") else claim.units).verdict
        for claim in hybrid.claims(rows)
    }


def test_the_papers_curves_would_hold_and_others_would_not():
    at = (1, 50, 100, 200, 1000, 10_000)
    slow = dict(zip(at, (10, 14, 19, 27, 86, 1000), strict=True))
    fast = dict(zip(at, (10, 14, 16, 20, 15.5, 15), strict=True))
    found = judged(slow, fast, {at: 10 * height for at, height in fast.items()} | {50: 120})
    for reading in ("mean latency", "time used by receipts"):
        assert found[f"delay, {reading}: with 100 publishers the curves part at 100 subscribers"] == "holds"
        assert found[f"delay, {reading}: with 1,000 publishers the curves part at 50 subscribers"] == "holds"
        assert found[f"delay, {reading}: hierarchical routing gets slower ever more steeply"] == "holds"
        assert found[f"delay, {reading}: hybrid routing rises to a peak, then falls"] == "holds"
        assert found[f"delay, {reading}: hybrid routing is never slower"] == "holds"
    assert found["cost: more publishers move the critical point to fewer subscribers"] == "holds"
    assert found["cost: hybrid routing is flat above about 1,000 subscribers"] == "holds"
    assert found["cost: hierarchical routing is flat above about 1,000 subscribers"] == "fails"
    others = judged(slow, slow)
    assert others["cost: above a critical point hybrid routing is cheaper"] == "fails"
    assert others["delay, mean latency: with 100 publishers the curves part at 100 subscribers"] == "fails"
    assert others["delay, mean latency: hybrid routing rises to a peak, then falls"] == "fails"
    assert others["delay, mean latency: hybrid routing rises at first"] == "holds"


@pytest.mark.parametrize(
    ("found", "verdict"), [(50, "holds"), (100, "partly"), (20, "fails"), (None, "fails")]
)
def test_curves_part_at_a_number_only_where_it_is_that_number(found, verdict):
    assert hybrid.is_at(found, 50) == verdict


@pytest.mark.slow
@pytest.mark.long
def test_a_small_run_has_rows_tables_a_picture_and_no_difference_to_real_routing(tmp_path):
    sizes = hybrid.SIZES["ci"] | {"clusters": 4, "brokers": 3, "publishers": (2, 6), "runs": 2,
                                  "subscribers": (1, 3, 6, 12)}  # fmt: skip
    run = Run("hybrid", hybrid.SETTINGS["own"], CI, 1, tmp_path / "rows.json", sizes=sizes)
    hybrid.measure(run)
    kept = [row for row in run.rows if "strategy" in row]
    assert len(kept) == 2 * 2 * 2 * 4
    assert {row["receipts"] for row in kept} == {a * b for a in (2, 6) for b in (1, 3, 6, 12)}
    (same,) = [claim for claim in hybrid.claims(run.rows) if "same" in claim.claim]
    assert same.units.verdict == verdicts.HOLDS
    told = hybrid.text(run.rows)
    assert max(map(len, told.splitlines())) <= 110
    assert len(hybrid.draw(run.rows, "small").axes) == 6
