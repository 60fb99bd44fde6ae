"""adaptive.loop: rounds, and what becomes of batches that are given up, lost, late or out of order."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from rtfilter.adaptive import EarlyStop, LevelController, PlanController, Report, Shape
from rtfilter.adaptive.papers.loop import LATER, MOST, Loop, UnderWay
from rtfilter.adaptive.papers.stopping import Rule

SHAPE = Shape(height=5)
tuning = pytest.mark.parametrize("kind", [LevelController, PlanController])
stops = pytest.mark.parametrize("stop", [None, EarlyStop(minimum=2)])


def respond(ticket):
    """A valley without noise, with its minimum at level 1."""
    return 1.0 + 0.5 * abs(ticket.plan.level - 1)


def asked_until_settled(controller, report, limit):
    """Levels of the batches until it settles; where `report(ticket)` is None the batch never reports."""
    levels = []
    for _ in range(limit):
        ticket = controller.plan(64, SHAPE)
        if not ticket.episode:
            return levels, ticket.plan.level
        levels.append(ticket.plan.level)
        told = report(ticket)
        if told is not None:
            controller.report(ticket, told)
    raise AssertionError(f"does not settle: {Counter(levels)}")


def given_up(ticket, bound):
    """10 of 64 events were read."""
    return Report(bound, ticket.size_class, unfinished=54)


# Whatever becomes of the batches, loops end (rounds=8; the height is 5, so that there are few loops)


@tuning
@stops
@cases("bound", [0.1, 50.0])
@cases("level", range(5))
def test_it_settles_although_all_batches_of_one_level_are_given_up(kind, stop, level, bound):
    def report(ticket):
        if ticket.plan.level == level:
            return given_up(ticket, bound)
        return Report(respond(ticket), 64)

    _, end = asked_until_settled(kind(rounds=8, early_stop=stop), report, 600)
    if level != 2:  # it begins there, and a lower bound does not show that it is slow
        assert end != level


@tuning
@stops
@cases("level", range(5))
def test_it_settles_although_one_level_never_reports(kind, stop, level):
    def report(ticket):
        return None if ticket.plan.level == level else Report(respond(ticket), 64)

    _, end = asked_until_settled(kind(rounds=8, early_stop=stop), report, 1200)
    assert end != level


@tuning
@stops
def test_it_settles_where_it_began_although_every_batch_is_given_up(kind, stop):
    levels, end = asked_until_settled(
        kind(rounds=8, early_stop=stop), lambda ticket: given_up(ticket, 0.1 * respond(ticket)), 100
    )
    assert end == 2
    assert len(levels) <= 5 * 8


@tuning
@stops
def test_it_settles_where_it_began_although_nobody_reports(kind, stop):
    _, end = asked_until_settled(kind(rounds=8, early_stop=stop), lambda ticket: None, 256 + 5 * 8)
    assert end == 2


@tuning
@stops
@given(seed=st.integers(0, 10**6))
def test_it_settles_at_the_best_level_with_20_batches_in_flight_out_of_order(kind, stop, seed):
    controller, shuffled, flying = kind(rounds=8, early_stop=stop), random.Random(seed), []
    for _ in range(2000):
        ticket = controller.plan(64, SHAPE)
        if not ticket.episode:
            break
        flying.append(ticket)
        if len(flying) == 20:
            told = flying.pop(shuffled.randrange(20))
            controller.report(told, Report(respond(told), 64))
    assert ticket.episode == 0
    assert ticket.plan.level == 1


@tuning
@pytest.mark.parametrize("lost", [range(5), [2]], ids=["all lost", "one lost"])
def test_no_level_gets_more_than_its_share_of_a_loop(kind, lost):
    controller = kind(rounds=64, seed=None)
    members = 3 if kind is LevelController else 5
    plans = Counter()
    for _ in range(40 * members):  # not yet a loop
        ticket = controller.plan(64, SHAPE)
        plans[ticket.plan] += 1
        if ticket.plan.level not in lost:
            controller.report(ticket, Report(respond(ticket), 64))
        assert max(plans.values()) <= sum(plans.values()) // members + 1
    assert len(plans) == members


# One loop: 0 in the middle, -1 and +1 beside it


def loop(rounds=2, stop=None, tolerance=0.0, order=None):
    return Loop(0, {-1: -1, 1: 1}, Rule(rounds=rounds, early_stop=stop, tolerance=tolerance), order)


def fill(own, values, bounds=(), lost=None):
    """Add samples {position: [..]}, bounds, and numbers of lost ones."""
    for position, some in values.items():
        for value in some:
            own.tallies[position].add(value, bound=False)
    for position, some in dict(bounds).items():
        for value in some:
            own.tallies[position].add(value, bound=True)
    for position, count in (lost or {}).items():
        own.tallies[position].lost += count
    return own.verdict()


def test_without_a_generator_the_order_is_always_that_of_the_paper():
    own = loop()
    assert [own.next() for _ in range(9)] == [0, -1, 1] * 3


@given(st.integers(0, 1000))
def test_each_round_is_a_permutation_and_a_seed_gives_always_the_same(seed):
    orders = []
    for _ in range(2):
        own = loop(order=random.Random(seed))
        orders.append([own.next() for _ in range(30)])
    assert orders[0] == orders[1]
    assert all(sorted(orders[0][k : k + 3]) == [-1, 0, 1] for k in range(0, 30, 3))


def test_orders_of_rounds_differ():
    own = loop(order=random.Random(0))
    assert len({tuple(own.next() for _ in range(3)) for _ in range(100)}) == 6


def test_a_closed_neighbour_is_left_out_of_rounds_at_once():
    own = loop(rounds=16, stop=EarlyStop(minimum=2))
    assert own.next() == 0
    fill(own, {0: [1.0, 1.1], -1: [9.0, 9.1], 1: [1.0, 1.1]})
    assert [own.next() for _ in range(5)] == [1, 0, 1, 0, 1]


def test_a_loop_ends_when_the_race_leaves_only_those_with_all_their_samples():
    own = loop(rounds=4, stop=EarlyStop(minimum=3))
    assert fill(own, {0: [1.0, 1.1, 1.0, 1.1], 1: [1.0, 1.1, 1.0, 1.1]}) is None
    assert fill(own, {-1: [9.0, 9.1, 9.0]}) == (None, False, False)


@pytest.mark.parametrize("tolerance", [0.0, None])
def test_a_neighbour_is_not_better_because_its_batches_were_given_up(tolerance):
    own = loop(tolerance=tolerance)
    assert fill(own, {0: [5.0, 5.0], 1: [6.0, 6.0]}, bounds={-1: [0.1, 0.2]}) == (None, False, False)


def test_bounds_pull_a_neighbour_towards_the_position_but_not_below():
    own = loop(tolerance=0.1)
    assert fill(own, {0: [5.0, 5.0], -1: [4.4], 1: [3.0]}, bounds={-1: [0.1], 1: [0.1]}).step == 1


def test_a_bound_above_the_mean_of_the_position_counts_as_it_is():
    assert fill(loop(), {0: [5.0, 5.0], -1: [4.0], 1: [9.0, 9.0]}, bounds={-1: [7.0]}).step is None


def test_bounds_of_the_position_itself_count_as_they_are():
    assert fill(loop(), {-1: [4.0, 4.0], 1: [9.0, 9.0]}, bounds={0: [5.0, 5.0]}).step == -1
    assert fill(loop(), {-1: [4.0, 4.0], 1: [9.0, 9.0]}, bounds={0: [3.0, 3.0]}).step is None


def test_if_nothing_is_known_of_the_position_the_best_known_neighbour_is_better():
    assert fill(loop(), {-1: [9.0, 9.0], 1: [8.0]}, lost={0: 2, 1: 1}).step == 1


def test_a_finished_batch_is_worth_more_than_one_that_was_given_up():
    assert fill(loop(), {1: [8.0, 8.0]}, bounds={-1: [0.1, 0.1]}, lost={0: 2}).step == 1
    assert fill(loop(), {}, bounds={-1: [0.1, 0.1]}, lost={0: 2, 1: 2}).step == -1


def test_if_nothing_is_known_of_anyone_nobody_is_better():
    assert fill(loop(), {}, lost={-1: 2, 0: 2, 1: 2}) == (None, False, False)


def test_a_neighbour_of_which_nothing_is_known_is_not_better():
    assert fill(loop(), {0: [1.0, 1.0], 1: [2.0, 2.0]}, lost={-1: 2}).step is None


def test_the_race_shows_nothing_where_too_little_is_known():
    own = loop(rounds=16, stop=EarlyStop(minimum=2))
    assert fill(own, {0: [1.0], -1: [9.0, 9.1], 1: [9.0, 9.1]}, lost={0: 1}) is None
    assert sorted(own.next() for _ in range(3)) == [-1, 0, 1]


# Lost samples


def under_way(count):
    found = UnderWay()
    for serial in range(1, count + 1):
        found.add(serial, f"place {serial}")
    return found


def test_a_sample_is_lost_when_so_many_later_ones_have_been_reported():
    found = under_way(LATER + 1)
    for serial in range(2, LATER + 1):
        found.take(serial)
        assert found.lost() == []
    found.take(LATER + 1)
    assert found.lost() == ["place 1"]
    assert found.take(1) is None


def test_earlier_samples_that_report_make_nobody_lost():
    found = under_way(200)
    for serial in range(1, 200):
        found.take(serial)
        assert found.lost() == []
    assert found.take(200) == "place 200"


def test_a_sample_that_reports_again_does_not_count():
    found = under_way(2)
    for _ in range(2 * LATER):
        found.take(2)
        assert found.lost() == []


def test_beyond_the_largest_number_the_oldest_are_lost():
    found = under_way(MOST)
    assert found.lost() == []
    assert found.lost(room=2) == ["place 1", "place 2"]
    assert found.take(3) == "place 3"
