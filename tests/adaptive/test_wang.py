"""The controller of the paper (Wang et al.): its rule, to the letter."""

import random

import pytest

from rtfilter.adaptive import Report, Shape, WangController


def levels(controller, count, cost=lambda level: 1.0 + level, size=64, height=5):
    """The levels of the next batches, each reported with its cost."""
    found = []
    for _ in range(count):
        ticket = controller.plan(size, Shape(height))
        controller.report(ticket, Report(cost(ticket.plan.level), size))
        found.append(ticket.plan.level)
    return found


def mode(controller, size=64):
    return controller.snapshot()["classes"][str(size)]["mode"]


@pytest.mark.parametrize("best", range(5))
@pytest.mark.parametrize("first", range(5))
def test_on_a_valley_it_is_stable_at_the_best_level(best, first):
    controller = WangController(rounds=2)
    levels(controller, 100, lambda level: abs(level - first))
    controller.on_update(300_000)
    levels(controller, 100, lambda level: abs(level - best))
    assert mode(controller) == "STABLE"
    assert set(levels(controller, 10)) == {best}


def test_a_loop_takes_three_times_n_batches_in_turns_and_two_at_an_end():
    controller = WangController(rounds=3)
    assert levels(controller, 9) == [2, 1, 3] * 3
    assert levels(controller, 9) == [1, 0, 2] * 3
    assert mode(controller) == "UNSTABLE"
    assert levels(controller, 6) == [0, 1] * 3
    assert mode(controller) == "STABLE"
    assert levels(controller, 5) == [0] * 5


def test_it_is_stable_only_where_its_time_is_less_than_both():
    controller = WangController(rounds=1)
    levels(controller, 1000, lambda level: 1.0)
    assert mode(controller) == "UNSTABLE"  # equal times are not less
    levels(controller, 3, lambda level: abs(level - controller.snapshot()["classes"]["64"]["level"]))


def test_the_better_side_is_taken_and_of_equal_ones_the_upper():
    for cost, level in (({1: 5, 2: 9, 3: 4}, 3), ({1: 3, 2: 9, 3: 4}, 1), ({1: 4, 2: 9, 3: 4}, 1)):
        controller = WangController(rounds=1)
        levels(controller, 3, cost.__getitem__)
        assert controller.snapshot()["classes"]["64"]["level"] == level


def test_exactly_the_threshold_of_updates_makes_it_unstable():
    controller = WangController(rounds=1, threshold=10)
    levels(controller, 50, lambda level: abs(level - 2))
    controller.on_update(9)
    assert mode(controller) == "STABLE"
    assert controller.snapshot()["classes"]["64"]["updates"] == 9
    controller.on_update()
    assert mode(controller) == "UNSTABLE"
    assert controller.snapshot()["classes"]["64"]["updates"] == 0
    controller.on_update(10)  # not counted while it is unstable
    levels(controller, 3, lambda level: abs(level - 2))
    assert controller.snapshot()["classes"]["64"]["updates"] == 0


def test_each_batch_size_has_its_own_status():
    controller = WangController(rounds=1)
    levels(controller, 50, lambda level: level, size=64)
    levels(controller, 50, lambda level: -level + 9, size=65)
    found = controller.snapshot()["classes"]
    assert (found["64"]["level"], found["65"]["level"]) == (0, 4)
    assert set(levels(controller, 5, size=1)) == {0}
    assert "1" not in controller.snapshot()["classes"]


def test_what_comes_late_or_twice_does_not_count():
    controller = WangController(rounds=1)
    tickets = [controller.plan(64, Shape(5)) for _ in range(4)]
    for ticket in (tickets[0], tickets[0], tickets[3], tickets[1], tickets[2], tickets[2]):
        controller.report(ticket, Report(1.0 + ticket.plan.level, 64))
    found = controller.snapshot()
    assert (found["stale_reports"], found["loops"], found["classes"]["64"]["level"]) == (3, 1, 1)


@pytest.mark.parametrize("given_up", [True, False])
def test_a_batch_that_is_given_up_or_dropped_is_run_again(given_up):
    controller = WangController(rounds=1)
    ticket = controller.plan(64, Shape(5))
    if given_up:
        controller.report(ticket, Report(0.1, 64, unfinished=60))
    else:
        controller.drop(ticket)
    assert levels(controller, 3) == [2, 1, 3]


def test_another_height_begins_a_loop_at_the_nearest_level():
    controller = WangController(rounds=1)
    levels(controller, 50, lambda level: -level + 9, height=7)
    assert levels(controller, 2, lambda level: -level + 9, height=4) == [3, 2]
    assert levels(controller, 3, height=1) == [0, 0, 0]
    assert mode(controller) == "STABLE"


@pytest.mark.slow
def test_more_rounds_lose_less_under_noise():
    lost = {}
    for rounds in (1, 4, 16, 64):
        lost[rounds] = 0.0
        for seed in range(40):
            rng = random.Random(seed)
            controller = WangController(rounds=rounds)
            for _ in range(6000):
                ticket = controller.plan(64, Shape(6))
                level = ticket.plan.level
                controller.report(ticket, Report((1 + 0.2 * abs(level - 4)) * rng.lognormvariate(0, 0.5), 64))
                if not ticket.episode:
                    break
            lost[rounds] += 0.2 * abs(level - 4) / 40
    assert lost[1] > lost[4] > lost[64]
    assert lost[64] < 0.03


def test_wrong_parameters_say_what_is_right():
    for wrong in ({"rounds": 0}, {"threshold": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            WangController(**wrong)
