"""Mixed load: what waited for what is counted rightly, a short run keeps its rows; no times asserted."""

import json

import numpy as np
import pytest

from experiments.load import mixed
from rtfilter import EventFilter
from rtfilter.basics.results import Matches
from rtfilter.filter import inside
from rtfilter.replay.workloads import workload


def log(*rows):
    """Operations from (due, asked, begun, left, done)."""
    return np.array(list(rows), mixed.TIMES)


@pytest.fixture
def small():
    made = workload("narrow", seed=3, dimensions=2)
    boxes = made.subscriptions(0, 60)
    target = EventFilter(made.schema, matcher="rtree")
    target.subscribe_boxes(*boxes)
    return target, mixed.Changes(target, boxes, made)


def test_arrivals_are_a_poisson_process():
    times = mixed.arrivals(np.random.default_rng(1), 1000, 20)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] <= 20
    assert len(times) == pytest.approx(20_000, rel=0.05)
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(gaps.std(), rel=0.05)
    assert len(mixed.arrivals(np.random.default_rng(1), 1e-9, 1)) == 1


def test_within_counts_open_intervals():
    times = np.array([3.0, 1.0, 2.0])
    assert mixed.within(times, np.array([0, 1, 2.5, 3]), np.array([4, 3, 2.5, 1])).tolist() == [3, 1, 0, 0]


def test_waits_are_counted_at_the_gate():
    batches = log((0, 0, 0, 4, 4), (1, 1, 6, 8, 8), (2, 8, 8, 9, 9))
    changes = log((1, 1, 4, 5, 5), (0.5, 4.5, 8.5, 9, 9))
    turns = np.array([(4, 5, 0.25, True), (4, 5, 0.5, False), (8.5, 9, 0.25, True)], mixed.TURNS)
    found = mixed.Log(batches, changes, {}, turns, [])
    assert mixed.kept_waiting(found).tolist() == [0, 0.25, 0]
    counted = mixed.waits(found)
    assert counted["batches"].tolist() == [0, 1, 0]  # the second waited for the first
    assert counted["changes"].tolist() == [0, 1, 0]  # and for the change before it
    assert counted["overtaking"].tolist() == [0, 2]
    assert counted["due"].tolist() == [0, 2]
    assert counted["ahead"].tolist() == [0, 1]
    assert mixed.waiting(batches).tolist() == [0, 0, 1]  # when the third came, the second was not in yet


def test_queueing_theory():
    assert mixed.queueing(2.0, 0.9) == pytest.approx(11)
    assert mixed.queueing(2.0, 0) == 2
    assert mixed.queueing(2.0, 1) == float("inf")


def test_responses_count_from_when_operations_were_due():
    times = log(*((i, i + 1, i + 1, i + 2, i + 0.001 * (i + 1)) for i in range(100)), (5, 5, 5, 5, 0))
    row = mixed.describe(times, seconds=50, weight=10)
    assert (row["asked"], row["done"], row["rate"]) == (1010, 1000, 20.2)
    assert row["mean_ms"] == pytest.approx(50.5)
    assert (row["p50_ms"], row["p99_ms"], row["max_ms"]) == pytest.approx((50.5, 99.01, 100))


@pytest.mark.parametrize(
    ("done", "fair", "text"), [(9, True, "met"), (8, True, "NOT MET"), (9, False, "NOT MET")]
)
def test_a_lost_operation_or_a_turn_left_out_is_not_met(done, fair, text):
    assert mixed.verdict({"asked": 9, "done": done}, fair) == text


def test_the_content_after_some_changes_is_that_of_the_filter(small):
    target, changes = small
    changes.prepare(30)
    made = np.zeros(30, bool)
    for change in (7, 3, 0, 28, 12, 2, 29):  # in any order
        changes.make(change)
        made[change] = True
        ids, boxes = changes.content(made)
        order = np.argsort(ids)
        known = {id: inside(target).matcher.tree.boxes_of(id) for id in target.ids().tolist()}
        assert ids[order].tolist() == list(known)
        for row in order.tolist():
            low, high = known[int(ids[row])]
            assert (low[0] == boxes.low[row]).all()
            assert (high[0] == boxes.high[row]).all()


def test_more_changes_than_subscriptions_are_refused(small):
    with pytest.raises(ValueError, match="61 changes need as many subscriptions, but there are 60"):
        small[1].prepare(61)


def test_a_wrong_answer_is_noticed(small):
    target, changes = small
    target._road.gate = mixed.WatchedGate()
    changes.prepare(6)
    points = workload("narrow", seed=3, dimensions=2).events(0, 20).reshape(4, 5, 2)
    size = mixed.QUICK._replace(matchers=2, changers=2)
    due = np.zeros(8), np.zeros(6)
    found = mixed.run(target, points, changes.make, due, size, checked=range(8))
    assert sorted(found.answers) == list(range(8))
    assert (found.batches["done"] > 0).all()
    mixed.check(found, points, changes, 0, np.random.default_rng(1))
    none = Matches(np.zeros(6, np.int64), np.empty(0, np.int64))
    wrong = dict.fromkeys(found.answers, none)
    with pytest.raises(AssertionError, match="brute force says"):
        mixed.check(found._replace(answers=wrong), points, changes, 0, np.random.default_rng(1))


def test_errors_of_threads_are_raised(small):
    target, _ = small
    target._road.gate = mixed.WatchedGate()
    with pytest.raises(ZeroDivisionError):
        mixed.run(target, np.zeros((1, 1, 2)), lambda i: 1 / 0, (np.zeros(2), np.zeros(2)), mixed.QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("matchers", [1, 2])
@pytest.mark.long
def test_a_run_keeps_rows_and_draws_a_picture(tmp_path, matchers):
    out, figure = tmp_path / "m.json", tmp_path / "p" / "m.png"
    arguments = ["--quick", "--boxes", "4000", "--seconds", "0.1", "--workloads", "narrow", "--load", "0.3"]
    arguments += ["--matchers", str(matchers), "--out", str(out), "--figure", str(figure)]
    assert mixed.main(arguments) == 0
    kept = json.loads(out.read_text())
    events, changes, *gates = kept["rows"]
    names = ["load 30%", "saving", "adding 2,000", "removing 2,000", "repacking"]
    assert [row["what"] for row in gates] == names
    assert all(row["turns"] > 0 for row in gates[1:])
    assert kept["settings"]["load"] == 0.3
    assert (events["workload"], events["what"], changes["what"]) == ("narrow", "events", "changes")
    for row in (events, changes):
        assert row["done"] == row["asked"] > 0
        assert row["verdict"] == "met"
        assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    more = {"alone", "capacity", "expected_ms", "queue", "longest", "changes", "others"}
    assert set(events) - set(changes) == more
    assert (events["expected_ms"] is None) == (matchers > 1)
    assert set(changes) - set(events) == {"batches_since_due"}
    assert figure.read_bytes().startswith(b"\x89PNG")
