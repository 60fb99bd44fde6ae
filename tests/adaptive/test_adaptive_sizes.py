"""adaptive.sizes: classes of batch size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from rtfilter.adaptive import LevelController, PlanController, Report, Shape, exact, powers_of_two
from rtfilter.adaptive.sizes import as_smallest


@given(st.integers(1, 10**9))
def test_powers_of_two_reach_from_the_label_to_twice_the_label(size):
    label = powers_of_two(size)
    assert label <= size < 2 * label
    assert label & (label - 1) == 0


@pytest.mark.parametrize("classes", [exact, powers_of_two])
@given(size=st.integers(1, 10**9))
def test_the_label_is_a_size_of_its_own_class(classes, size):
    assert classes(classes(size)) == classes(size)


def test_exact_tells_all_sizes_apart():
    assert [exact(size) for size in (1, 2, 3)] == [1, 2, 3]


@given(st.integers(1, 10**6), st.sampled_from([1, 4, 64, None]))
def test_the_response_of_the_smallest_size_is_kept_exactly(size, group):
    assert as_smallest(0.1, size, size, group) == 0.1


@given(st.integers(1, 500), st.integers(1, 50))
def test_where_groups_take_equal_time_the_size_of_the_batch_cancels_out(groups, group):
    def mean_response(count):  # of groups that end after 1, 2, ... seconds
        return sum(range(1, count + 1)) / count

    value = as_smallest(mean_response(groups), groups * group, group, group)
    assert value == pytest.approx(mean_response(1))


def test_a_whole_batch_is_one_group():
    assert as_smallest(1.0, 96, 64, None) == as_smallest(1.0, 96, 64, 4096) == pytest.approx(64 / 96)


@cases("kind", [LevelController, PlanController])
@cases("turn", range(3))
@cases("rhythm", [(96, 127, 64), (64, 127, 96)])
def test_sizes_that_come_in_a_rhythm_settle_at_the_best_level(kind, rhythm, turn):
    each = (1.60, 1.45, 1.30, 1.15, 1.00, 1.20, 1.40)  # time per event by level; it begins at 3

    def response(level, group, size):  # groups one after the other, after an estimate that grows downwards
        return level + each[level] * (size + min(group or size, size)) / 2

    controller = kind(rounds=16)
    for batch in range(2000):
        size = rhythm[(turn + batch) % 3]
        ticket = controller.plan(size, Shape(7))
        if not ticket.episode:
            break
        controller.report(ticket, Report(response(ticket.plan.level, ticket.plan.group, size), size))
    assert ticket.episode == 0
    assert ticket.plan.level == 4
