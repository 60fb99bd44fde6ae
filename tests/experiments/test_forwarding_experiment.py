"""Ways of forwarding compared: counts from the tree are those of routers, and what claims say of costs."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.forwarding import busy, forwarding
from experiments.forwarding.forwarding import MESSAGES, Price
from experiments.forwarding.identities import (
    EVENT,
    PROFILE,
    RENDEZVOUS,
    STRATEGIES,
    Loads,
    Tree,
    loads,
    nodes,
)
from experiments.forwarding.worlds import Cell, World, building, drawn
from experiments.paper import verdicts
from experiments.paper.runner import Run
from experiments.paper.settings import CI
from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Network
from lengths import each_once
from rtfilter.events.schema import Schema
from rtfilter.overlay.strategies import Rendezvous

CELLS = (
    Cell(1, 1.0, 20, 1, 0.5, 0.5),
    Cell(2, 0.6, 30, 1, 0.0, 0.3),
    Cell(5, 1.0, 40, 3, 0.0, 0.0),
    Cell(9, 0.3, 60, 2, 0.9, 0.8),
    Cell(12, 0.6, 80, 1, 0.5, 0.5),
)


def routed(world: World, strategy: str, covering: bool) -> Loads:
    """The same counts from routers, message by message."""
    topology, width = world.topology, world.low.shape[1]
    types = {f"t{kind}": Schema({f"v{at}": float for at in range(width)}) for kind in range(world.number)}
    names = [f"t{kind}" for kind in range(world.number)]
    where = nodes(Tree(world.parents), world.number)

    def made(name, incarnation):
        assigned = {kind: topology.clusters[at] for kind, at in zip(names, where, strict=True)}
        own = Rendezvous(assigned) if strategy == RENDEZVOUS else f"{strategy}_forwarding"
        return EventRouter(name, incarnation, types, own, covering=covering)

    network = Network(topology, made)
    for broker in topology.brokers:
        network.ask(0.0, broker, lambda router, now: router.place(topology.place(router.name), now))
    network.run()
    order = np.argsort(-(world.high - world.low).sum(axis=1), kind="stable")  # what covers others comes first
    for number, own in enumerate(order.tolist(), 1):
        ends = zip(world.low[own].tolist(), world.high[own].tolist(), strict=True)
        condition = " AND ".join(
            f"v{at} >= {low!r} AND v{at} <= {high!r}" for at, (low, high) in enumerate(ends)
        )
        network.ask(
            float(number), topology.brokers[world.home[own]],
            lambda router, now, own=own, condition=condition: router.subscribe(
                f"c{own}", names[world.wanted[own]], condition, now)[1],
        )  # fmt: skip
    network.run()
    held = np.array(
        [[Counter(entry.subscription.type for entry in network.machine(broker).table)[kind]
          for broker in topology.brokers] for kind in names]
    )  # fmt: skip
    sent = np.zeros(world.brokers)
    for event, (at, kind) in enumerate(zip(world.at.tolist(), world.types.tolist(), strict=True)):
        network.messages.clear()
        network.deliveries.clear()
        network.ask(network.env.now, topology.brokers[at], lambda router, now, event=event, kind=kind: (
            router.publish("p", names[kind], dict(zip(types[names[kind]].names, world.values[event].tolist(),
                                                      strict=True)), now)[1]))  # fmt: skip
        network.run()
        for (kind_of, sender, _), count in network.messages.items():
            assert kind_of == "Event"
            sent[topology.brokers.index(sender)] += count * world.weights[event]
        told = Counter(each.broker for each in network.deliveries)
        matches = world.matches()[event]
        assert [told[broker] for broker in topology.brokers] == matches.tolist()  # each once, and nobody else
    return Loads(sent, np.zeros(0), np.zeros((0, 0)), held)


@pytest.mark.parametrize(("strategy", "covering"), each_once(list(STRATEGIES), [False, True]))
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.slow
def test_counts_from_the_tree_are_those_of_routers(cell, strategy, covering):
    world = drawn(cell, 12, seed=cell.brokers)
    counted, real = loads(world, covering)[strategy], routed(world, strategy, covering)
    assert counted.sent == pytest.approx(real.sent)
    assert (counted.held == real.held).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.slow
def test_counts_of_a_building_are_those_of_routers(strategy):
    world = building(30, seed=2, floors=3)
    few = np.arange(len(world.home)) % 3 == 0
    world = World(world.topology, world.low[few], world.high[few], world.wanted[few], world.home[few],
                  world.values, world.types, world.at, world.weights, 1, 4)  # fmt: skip
    counted, real = loads(world)[strategy], routed(world, strategy, covering=True)
    assert counted.sent == pytest.approx(real.sent)
    assert (counted.held == real.held).all()


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.integers(1, 20), st.sampled_from([0.01, 0.3, 1.0]), st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.4]),
)  # fmt: skip
@pytest.mark.slow
def test_messages_and_memory_keep_their_identities(seed, brokers, matching, types, locality, covering):
    world = drawn(Cell(brokers, matching, 60, types, locality, covering), 40, seed)
    for suppressed in (False, True):
        found = loads(world, suppressed)
        assert found[EVENT].messages == pytest.approx(brokers - 1)
        assert found[PROFILE].messages <= min(found[EVENT].messages, found[RENDEZVOUS].messages) + 1e-9
        assert found[EVENT].memory == 60 <= found[RENDEZVOUS].memory <= found[PROFILE].memory
        if not suppressed:
            assert found[PROFILE].memory == 60 * brokers
            tree = Tree(world.parents)
            ways = tree.distances()[world.home, np.array(nodes(tree, types))[world.wanted]]
            assert found[RENDEZVOUS].memory == (ways + 1).sum()
        for own in found.values():
            assert own.handled.sum() == pytest.approx(1 + own.messages)


def test_a_world_is_as_it_is_asked_for():
    for cell in (
        Cell(8, 0.1, 3000, 3, 0.5, 0.5),
        Cell(4, 1.0, 1000, 1, 0.0, 0.0),
        Cell(8, 0.001, 1000, 1, 0.9),
    ):
        world = drawn(cell, 400, 1)
        matched = world.matches().sum(axis=1) > 0
        assert world.weights.sum() == pytest.approx(1)
        assert world.weights[matched].sum() == pytest.approx(cell.matching, rel=0.02)
        assert np.bincount(world.wanted).tolist() == [cell.profiles // cell.types] * cell.types
        outer = world.low[: int((1 - cell.covering) * cell.profiles), 0]
        assert len(set(outer.tolist())) >= len(outer) - 20 * cell.types  # but those that begin below 0
        at_home = (world.high[:, 0] + world.low[:, 0]) / 2 / (cell.matching * 1e6) * cell.brokers
        local = (world.home == np.minimum(at_home.astype(int), cell.brokers - 1)).mean()
        assert local == pytest.approx(cell.locality + (1 - cell.locality) / cell.brokers, abs=0.05)


def test_events_match_as_many_profiles_as_asked_wherever_they_are():
    world = drawn(Cell(4, 0.5, 5000, 1, 0.5, 0.0, matched=0.02), 300, 3)
    counts = world.matches().sum(axis=1)
    assert set(counts[:150].tolist()) <= set(range(96, 102))
    assert not counts[150:].any()


def test_work_is_filtering_taking_and_sending():
    own = Loads(np.array([2.0, 0.0]), np.array([1.0, 0.5]), np.array([[1.0, 0.5]]), np.array([[127, 0]]))
    filtering = 3 * (np.log2(255) + 2)
    assert forwarding.work(own, 3, 1000) == pytest.approx([1000 + filtering + 2000, 500.0])


def test_a_simple_protocol_takes_events_for_less():
    """At a quarter of the cost each broker needs 750 steps less for the one time that it takes an event."""
    row = {"efficiency 1000": [100.0, 1e6 / 4000, 100.0]}
    assert forwarding.efficiency(row, EVENT, Price(1000, 0.25)) == pytest.approx(1e6 / 3250)
    assert forwarding.efficiency(row, PROFILE, Price(1000, 0.25)) == 100.0


def test_real_brokers_take_and_send_as_often_as_is_counted():
    world = drawn(Cell(4, 0.6, 30, 2, 0.5, 0.5), 12, seed=3)
    other = drawn(Cell(2, 0.3, 10, 1, 0.5, 0.5), 5, seed=4)
    (_, found), counted = busy.measured([other, world], 1), loads(world)
    for place, strategy in enumerate(STRATEGIES):
        assert found["handled"][place] == pytest.approx(counted[strategy].handled)
        assert found["sent"][place] == pytest.approx(counted[strategy].sent)
        served = (world.weights[:, None] * (world.matches() > 0)).sum(axis=0)
        assert found["told"][place] == pytest.approx(served)


def test_the_factor_is_found_from_busy_times():
    rng = np.random.default_rng(1)
    filtering, handled, sent, told = rng.random((4, 3, 5))
    published = rng.random(5)
    takes = np.array([40.0, 30.0, 99.0])[:, None]
    spent = filtering + takes * handled + 10 * published + 5 * sent + 7 * told
    row = dict(zip(busy.CELLS, (spent, filtering, handled, sent, told), strict=True))
    found = busy.fitted([row | {"published": published}])
    assert found == pytest.approx((40, 30, 10, 5, 7))
    assert found.factor == pytest.approx(0.75)


@pytest.mark.parametrize(("event", "verdict"), [(30.0, "holds"), (39.0, "fails"), (50.0, "fails")])
def test_a_protocol_is_simple_only_if_it_surely_takes_less(event, verdict):
    rng = np.random.default_rng(2)
    rows = []
    for _ in range(3):
        handled, sent, told = rng.random((3, 3, 5))
        spent = np.array([40.0, event, 40.0])[:, None] * handled + 5 * sent + 7 * told
        cells = (spent, np.zeros((3, 5)), handled, sent, told)
        rows.append(dict(zip(busy.CELLS, cells, strict=True)) | {"published": rng.random(5)})
    assert forwarding._simple(rows).verdict == verdict


def made(places, efficiencies, messages=(1.0, 3.0, 2.0), memory=(30, 10, 20)):
    """Rows of worlds, counted at a factor of 1."""
    return [
        {"piece": "grid", **Cell(brokers, matching, profiles)._asdict(), "messages": list(messages),
         "memory": [m * profiles // 10 for m in memory],
         **{f"efficiency {cost}": list(efficiencies(brokers, matching, profiles)) for cost in MESSAGES}}
        for brokers, matching, profiles in places
    ]  # fmt: skip


def clocked(places, efficiencies):
    """The same of real brokers, of whom the first is the busiest; taking an event costs the same by all."""
    return [
        {"piece": forwarding.BUSY, **Cell(brokers, matching, profiles)._asdict(), **clocks(
            efficiencies(brokers, matching, profiles))}
        for brokers, matching, profiles in places
    ]  # fmt: skip


def clocks(efficiencies):
    cells = {cell: [[1.0, 0.0]] * 3 for cell in ("handled", "sent", "told")}
    busiest = [[1e6 / own, 0.0] for own in efficiencies]
    filtering = [[own - 1.0, 0.0] for own, _ in busiest]
    return {"busy": busiest, "filtering": filtering, "published": [1.0, 0.0], **cells}


PLACES = [(b, s, p) for b in (1, 4) for s in (0.1, 0.3, 0.6) for p in (1000, 10_000)]
HOUSE = {"piece": forwarding.BUILDING, "messages": [1.0, 3.0, 2.0], "memory": [3, 1, 2],
         **{f"efficiency {cost}": [3.0, 1.0, 2.0] for cost in MESSAGES}}  # fmt: skip


CLOCKED_HOUSE = {"piece": forwarding.BUSY, "floors": 2, **clocks((3.0, 1.0, 2.0))}


def judged(efficiencies, house, clocked_house, **loads):
    rows = [*made(PLACES, efficiencies, **loads), house, *clocked(PLACES, efficiencies), clocked_house]
    return [claim for claim in forwarding.claims(rows) if "takes an event for less" not in claim.claim]


def test_the_papers_world_would_hold_and_its_opposite_would_not():
    def as_told(brokers, matching, profiles):
        return (1 + brokers) * (0.6 - matching) + 1000 / profiles, 1.0, 0.1

    found = judged(as_told, HOUSE, CLOCKED_HOUSE)
    for part in ("units", "time"):
        verdict = [getattr(claim, part).verdict for claim in found]
        assert verdicts.FAILS not in verdict
        assert verdict.count(verdicts.HOLDS) >= (len(found) if part == "units" else 10) - 3

    def opposite(brokers, matching, profiles):
        return 1.0, brokers - matching, brokers * 5.0

    house = (
        HOUSE | {f"efficiency {cost}": [1.0, 2.0, 3.0] for cost in MESSAGES} | {"messages": [3.0, 2.0, 1.0]}
    )
    clocked_house = CLOCKED_HOUSE | clocks((1.0, 2.0, 3.0))
    found = judged(opposite, house, clocked_house, messages=(3.0, 2.0, 1.0), memory=(10, 20, 10))
    assert {claim.units.verdict for claim in found} == {verdicts.FAILS}
    assert {claim.time.verdict for claim in found} == {verdicts.FAILS, verdicts.DOES_NOT_APPLY}


@pytest.mark.slow
@pytest.mark.long
def test_a_small_run_has_rows_tables_and_a_picture(tmp_path):
    sizes = forwarding.SIZES["ci"] | {"profiles": (100, 300), "events": 40, "brokers": (1, 4, 8)}
    run = Run("forwarding", forwarding.SETTINGS["own"], CI, 1, tmp_path / "rows.json", sizes=sizes)
    forwarding.measure(run)
    assert len(forwarding.several(forwarding.modelled(run.rows))) == 2 * 4 * 2 * 2 * 3
    assert len(forwarding.real(run.rows)) == 2 * 3 * 2
    told = forwarding.text(run.rows)
    assert max(map(len, told.splitlines())) <= 110
    assert len(forwarding.draw(run.rows, "small").axes) == 12
    assert forwarding.claims(run.rows)
    assert len(forwarding.merged(run.rows)) == 2 * 6
    assert "slack 0.6" in told
