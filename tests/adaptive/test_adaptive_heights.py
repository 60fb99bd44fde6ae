"""adaptive.heights: a search for each height of the index."""

import pytest

from cases import cases
from rtfilter.adaptive import LevelController, PlanController, Report, Shape
from rtfilter.adaptive.papers.probing import KEPT

tuning = pytest.mark.parametrize("kind", [LevelController, PlanController])


def batches(controller, count, shape, best=0):
    """Episodes and levels of so many batches on an index of a shape."""
    asked = []
    for _ in range(count):
        ticket = controller.plan(64, shape)
        asked.append((ticket.episode, ticket.plan.level))
        controller.report(ticket, Report(1.0 + abs(ticket.plan.level - best), 64))
    return asked


def state(controller):
    return controller.snapshot()["classes"]["64"]


@tuning
def test_a_height_that_flips_settles_at_both(kind):
    controller = kind(rounds=64)
    for _ in range(20):
        four = batches(controller, 100, Shape(4), best=1)
        five = batches(controller, 100, Shape(5), best=3)
    assert set(four) == {(0, 1)}
    assert set(five) == {(0, 3)}


@tuning
@cases(("settled", "height", "first"), [(6, 4, 3), (6, 9, 6), (1, 4, 1)])
def test_a_new_height_begins_at_the_nearest_level(kind, settled, height, first):
    controller = kind(rounds=1, seed=None)
    batches(controller, 60, Shape(7), best=settled)
    assert batches(controller, 1, Shape(height)) == [(2, first)]


@tuning
def test_the_search_begins_in_the_middle_when_a_tree_of_one_level_grows(kind):
    controller = kind(rounds=1, seed=None, **({"groups": ()} if kind is PlanController else {}))
    assert batches(controller, 2, Shape(1)) == [(0, 0)] * 2
    assert batches(controller, 1, Shape(5)) == [(2, 2)]


@tuning
@pytest.mark.parametrize(("updates", "again"), [(249, False), (250, True)])
def test_a_settled_height_goes_on_unless_much_changed_meanwhile(kind, updates, again):
    controller = kind(rounds=1)
    batches(controller, 60, Shape(5, boxes=1000), best=3)
    batches(controller, 60, Shape(6, boxes=1000), best=3)
    controller.on_update(updates)
    [(episode, _)] = batches(controller, 1, Shape(5, boxes=1000), best=3)
    assert (episode > 0) == again


@tuning
@pytest.mark.parametrize(("updates", "again"), [(249, False), (250, True)])
def test_a_search_goes_on_unless_much_changed_meanwhile(kind, updates, again):
    controller = kind(rounds=8)
    [(first, _), *_] = batches(controller, 5, Shape(5, boxes=1000))
    batches(controller, 5, Shape(6, boxes=1000))
    controller.on_update(updates)
    [(episode, _)] = batches(controller, 1, Shape(5, boxes=1000))
    assert (episode != first) == again


@tuning
def test_a_report_of_another_height_counts_there(kind):
    controller = kind(rounds=1)
    ticket = controller.plan(64, Shape(5))
    batches(controller, 60, Shape(6))
    controller.report(ticket, Report(1.0, 64))
    assert state(controller)["stale_reports"] == 0
    controller.report(ticket, Report(1.0, 64))
    assert state(controller)["stale_reports"] == 1


@tuning
def test_of_many_heights_the_one_not_used_for_longest_is_forgotten(kind):
    controller = kind(rounds=1)
    heights = range(3, 3 + KEPT)
    for height in heights:
        batches(controller, 60, Shape(height), best=2)
    assert batches(controller, 1, Shape(3), best=2) == [(0, 2)]
    batches(controller, 60, Shape(3 + KEPT), best=2)
    assert batches(controller, 1, Shape(3), best=2) == [(0, 2)]  # it was used again, 4 was not
    assert batches(controller, 1, Shape(4), best=2)[0][0] > 0


def test_the_state_shown_is_that_of_the_last_height_and_counters_never_fall():
    controller = LevelController(rounds=1)
    batches(controller, 60, Shape(5), best=3)
    before = state(controller)
    batches(controller, 60, Shape(3), best=0)
    after = state(controller)
    assert (before["height"], before["level"], after["height"], after["level"]) == (5, 3, 3, 0)
    for name in ("loops", "moves", "transitions"):
        assert after[name] > before[name]
    batches(controller, 1, Shape(5), best=3)
    assert state(controller) == after | {"height": 5, "level": 3, "episode": before["episode"]}
