"""scheduler: orders, groups, response times, the gain of shortest first, and parts."""

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cases import cases
from rtfilter import scheduler

costs = st.lists(st.integers(0, 1000), min_size=1, max_size=30)
workloads = st.lists(st.integers(0, 20), max_size=40)
groups = st.one_of(st.none(), st.integers(1, 50))
names = st.sampled_from(sorted(scheduler.ORDERS))


def ordered(cost, order):
    """A schedule of single events in the given order. All workloads are 1: those of 0 would come first."""
    return scheduler.schedule(lambda workload: np.array(order, dtype=np.int64), np.ones(len(cost), int), 1)


def test_the_example_of_the_package_runs():
    assert doctest.testmod(scheduler).failed == 0


# Orders


def test_shortest_first_is_ascending_and_stable():
    assert scheduler.shortest_first(np.array([3, 1, 2, 1, 3, 2])).tolist() == [1, 3, 2, 5, 0, 4]


def test_longest_first_is_descending_and_stable():
    assert scheduler.longest_first(np.array([3, 1, 2, 1, 3, 2])).tolist() == [0, 4, 2, 5, 1, 3]


def test_fifo_keeps_the_order_of_arrival():
    assert scheduler.fifo(np.array([3, 1, 2])).tolist() == [0, 1, 2]


def test_oracle_orders_by_true_cost_and_not_by_workload():
    assert scheduler.true_cost_order([2.0, 1.0, 3.0])(np.array([1, 2, 3])).tolist() == [1, 0, 2]


def test_oracle_refuses_another_batch():
    with pytest.raises(ValueError, match="costs of 3 events cannot order a batch of 2"):
        scheduler.schedule(scheduler.true_cost_order([2.0, 1.0, 3.0]), [1, 2], 1)


def test_policies_are_resolved_by_name_or_taken_as_they_are():
    assert scheduler.resolve("shortest") is scheduler.shortest_first
    assert scheduler.resolve(scheduler.fifo) is scheduler.fifo


def test_unknown_policy_lists_the_known_ones():
    with pytest.raises(ValueError, match="'sjf'; choose one of 'fifo', 'shortest', 'longest'"):
        scheduler.resolve("sjf")


# Schedules


@example([3, 0, 2, 0, 1], "fifo", 2)
@given(workloads, names, groups)
def test_groups_have_the_size_asked_for_and_zero_workloads_lead(workload, name, group):
    order, cuts = scheduler.schedule(scheduler.resolve(name), workload, group)
    work = np.array(workload, dtype=np.int64)
    zeros = int((work == 0).sum())
    assert sorted(order.tolist()) == list(range(len(workload)))
    assert (work[order[:zeros]] == 0).all()
    sizes = np.diff(cuts).tolist()
    if zeros:
        assert sizes.pop(0) == zeros
    rest = len(workload) - zeros
    size = group or max(rest, 1)
    assert sizes == [size] * (rest // size) + [rest % size] * (rest % size > 0)


@example([3, 0, 2, 0, 1], "longest")
@given(workloads, names)
def test_zero_rule_keeps_the_sequence_of_the_order(workload, name):
    work = np.array(workload, dtype=np.int64)
    rows = scheduler.resolve(name)(work)
    order = scheduler.schedule(scheduler.resolve(name), work, None).order
    assert order.tolist() == [r for r in rows if work[r] == 0] + [r for r in rows if work[r] > 0]


def test_schedule_of_an_empty_batch_has_no_group():
    order, cuts = scheduler.schedule(scheduler.shortest_first, [], None)
    assert order.tolist() == []
    assert cuts.tolist() == [0]
    assert order.dtype == cuts.dtype == np.int64


@pytest.mark.parametrize(
    ("workload", "group", "message"),
    [
        ([1, -2], 1, "workload of row 1 is -2"),
        ([1.0, 2.0], 1, "integer array; got dtype float64"),
        ([[1], [2]], 1, r"shape \(n,\).*got shape \(2, 1\)"),
        ([1, 2], 0, "group must be at least 1 event"),
        ([1, 2], -1, "group must be at least 1 event"),
    ],
)
def test_schedule_refuses_bad_input(workload, group, message):
    with pytest.raises(ValueError, match=message):
        scheduler.schedule(scheduler.shortest_first, workload, group)


@pytest.mark.parametrize("rows", [[0, 0, 1], [0, 1], [0, 1, 3], [-1, 0, 1], [0.0, 1.0, 2.0]])
def test_schedule_refuses_an_order_that_is_no_permutation(rows):
    with pytest.raises(ValueError, match=r"permutation of the rows 0\.\.2|an order of 3 events"):
        scheduler.schedule(lambda workload: np.array(rows), [1, 2, 3], 1)


# Completion times


def test_completion_times_are_in_arrival_order_and_wait_for_the_whole_group():
    plan = scheduler.schedule(scheduler.shortest_first, [4, 1, 3, 2, 0], 2)
    assert plan.order.tolist() == [4, 1, 3, 2, 0]
    times = scheduler.completion_times([40.0, 10.0, 30.0, 20.0, 0.0], plan, estimation=5.0)
    assert times.tolist() == [105.0, 35.0, 105.0, 35.0, 5.0]
    mean = scheduler.mean_response([40.0, 10.0, 30.0, 20.0, 0.0], plan, estimation=5.0)
    assert mean == (105 + 35 + 105 + 35 + 5) / 5


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), names, groups, st.integers(0, 9))
def test_completions_rise_from_group_to_group_and_never_precede_the_estimation(cost, name, group, estimation):
    plan = scheduler.schedule(scheduler.resolve(name), cost, group)
    along = scheduler.completion_times(cost, plan, estimation)[plan.order]
    per_group = [along[a:b] for a, b in itertools.pairwise(plan.cuts)]
    assert all(len(set(times)) == 1 for times in per_group)
    ends = [times[0] for times in per_group]
    assert all(a < b for a, b in itertools.pairwise([estimation, *ends]))
    assert ends[-1] == estimation + sum(cost)


@given(costs, st.randoms(use_true_random=False))
def test_shortest_first_is_no_worse_than_any_permutation(cost, random):
    rows = list(range(len(cost)))
    random.shuffle(rows)
    best = scheduler.mean_response(cost, ordered(cost, scheduler.true_cost_order(cost)(np.array(cost))))
    worst = scheduler.mean_response(cost, ordered(cost, scheduler.longest_first(np.array(cost))))
    assert best <= scheduler.mean_response(cost, ordered(cost, rows)) <= worst


def test_empty_batch_has_times_but_no_mean():
    plan = scheduler.schedule(scheduler.fifo, [], 1)
    assert scheduler.completion_times([], plan).shape == (0,)
    with pytest.raises(ValueError, match="no mean response time"):
        scheduler.mean_response([], plan)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_completion_times_refuse_bad_costs(bad):
    plan = scheduler.schedule(scheduler.fifo, [1, 1], 1)
    with pytest.raises(ValueError, match="cost of row 1 is"):
        scheduler.completion_times([1.0, bad], plan)
    with pytest.raises(ValueError, match="cost of the estimation"):
        scheduler.completion_times([1.0, 1.0], plan, estimation=bad)


@cases("cuts", [[0], [0, 1], [1, 2], [0, 1, 1, 2], [0, 2, 1, 2], [[0, 2]], []])
def test_completion_times_refuse_cuts_that_do_not_rise_from_0_to_n(cuts):
    plan = scheduler.Schedule(np.array([1, 0]), np.array(cuts, dtype=np.int64))
    with pytest.raises(ValueError, match="cuts must rise strictly from 0 to 2"):
        scheduler.completion_times([1.0, 1.0], plan)


def test_completion_times_refuse_a_schedule_of_another_batch():
    with pytest.raises(ValueError, match="an order of 3 events"):
        scheduler.completion_times([1.0, 1.0, 1.0], scheduler.schedule(scheduler.fifo, [1, 1], 1))


# The gain of shortest first


@given(costs)
def test_gini_is_its_definition(cost):
    n, mean = len(cost), sum(cost) / len(cost)
    expected = sum(abs(a - b) for a in cost for b in cost) / (2 * n * n * mean) if mean else 0.0
    assert scheduler.gini(cost) == pytest.approx(expected, abs=1e-9)


@given(costs)
def test_closed_form_of_shortest_first_is_what_the_schedule_gives(cost):
    measured = scheduler.mean_response(cost, ordered(cost, np.argsort(cost, kind="stable")))
    assert scheduler.shortest_first_response(cost) == pytest.approx(measured, rel=1e-9)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_closed_form_of_random_order_is_the_mean_over_all_permutations(cost):
    every = [
        scheduler.mean_response(cost, ordered(cost, rows))
        for rows in itertools.permutations(range(len(cost)))
    ]
    assert scheduler.expected_random_response(cost) == pytest.approx(np.mean(every), rel=1e-9)


@given(costs)
def test_the_gain_is_n_gini_over_n_plus_1(cost):
    random = scheduler.expected_random_response(cost)
    saved = random - scheduler.shortest_first_response(cost)
    assert scheduler.relative_gain(cost) * random == pytest.approx(saved, rel=1e-9, abs=1e-9)


def test_the_gain_of_exponential_work_approaches_one_half():
    quantiles = -np.log1p(-(np.arange(4096) + 0.5) / 4096)
    assert scheduler.relative_gain(quantiles) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    "law",
    [
        scheduler.gini,
        scheduler.relative_gain,
        scheduler.expected_random_response,
        scheduler.shortest_first_response,
    ],
)
def test_the_gain_needs_costs(law):
    with pytest.raises(ValueError, match="at least one cost"):
        law([])
    with pytest.raises(ValueError, match="cost of row 0 is nan"):
        law([float("nan")])


# Parts


@given(workloads, st.integers(1, 12))
def test_parts_hold_every_row_once_shortest_first_inside(workload, m):
    parts = scheduler.balanced_parts(workload, m)
    assert len(parts) == m
    assert sorted(row for part in parts for row in part.tolist()) == list(range(len(workload)))
    for part in parts:
        assert part.dtype == np.int64
        keys = [(workload[row], row) for row in part]
        assert keys == sorted(keys)


@given(workloads, st.integers(1, 12))
def test_parts_differ_by_one_row_and_by_the_largest_workload_at_most(workload, m):
    parts = scheduler.balanced_parts(workload, m)
    sizes = [len(part) for part in parts]
    sums = [sum(workload[row] for row in part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    spread = max(workload, default=0)
    if workload and len(workload) % m == 0:
        spread -= min(workload)
    assert max(sums) - min(sums) <= spread


@given(workloads, st.integers(1, 12))
def test_parts_reach_the_smallest_total_completion_time(workload, m):
    # Shortest-first list scheduling is optimal on identical machines: give each job to the first one free.
    free, optimum = [0] * m, 0
    for work in sorted(workload):
        k = free.index(min(free))
        free[k] += work
        optimum += free[k]
    reached = sum(
        sum(itertools.accumulate(workload[row] for row in part))
        for part in scheduler.balanced_parts(workload, m)
    )
    assert reached == optimum


def test_parts_are_better_balanced_than_dealing_in_turn():
    work = np.round(np.random.default_rng(1).exponential(100, 1000)).astype(int)
    sums = [work[part].sum() for part in scheduler.balanced_parts(work, 8)]
    ascending = np.argsort(work, kind="stable")
    in_turn = [work[ascending[k::8]].sum() for k in range(8)]
    assert max(sums) - min(sums) < 10
    assert max(in_turn) - min(in_turn) > 100


@pytest.mark.parametrize("m", [0, -1])
def test_parts_need_a_worker(m):
    with pytest.raises(ValueError, match="at least 1 part"):
        scheduler.balanced_parts([1], m)


def test_parts_refuse_negative_workloads():
    with pytest.raises(ValueError, match="workload of row 0 is -1"):
        scheduler.balanced_parts([-1], 2)
