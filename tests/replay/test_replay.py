"""Replays: the report says what happened, and the command line does what it says."""

import json
import math
import socket

import numpy as np
import pytest

from oracle import as_sets
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import FixedPlan, LevelController
from rtfilter.adaptive import replay as replay_log
from rtfilter.cli import main
from rtfilter.filter import inside
from rtfilter.replay import PEER, Contender, ReplaySettings, replay
from rtfilter.replay.rtree_peer import RtreePeer
from rtfilter.replay.workloads import file_workload, workload


def small(**changes):
    usual = {"subscriptions": 300, "bursts": 8, "sizes": (3, 20), "insert": 15, "delete": 10}
    return ReplaySettings(**(usual | changes))


def run(settings, name="narrow", dimensions=4):
    source = workload(name, settings.seed, dimensions)
    contenders = [
        Contender("arrival order", "fifo", FixedPlan(0, 1)),
        Contender("level", "shortest", LevelController(rounds=1)),
    ]
    filter = EventFilter(source.schema, matcher={"name": "rtree", "capacity": (4, 8)})
    return replay(source, settings, contenders, filter), filter


def test_rows_and_counts_agree():
    report, filter = run(small(peer_every=3, check=2))
    assert len(report.rows) == 8 * 2 + 3
    assert report.checked == 16
    assert report.updates == 8 * 25
    assert report.index["subscriptions"] == len(filter) == 300 + 8 * 5
    peers = [row for row in report.rows if row["contender"] == PEER]
    assert [row["burst"] for row in peers] == [0, 3, 6]
    for row in report.rows:
        assert row["response"] > 0
    by_burst = {(row["burst"], row["contender"]): row for row in report.rows}
    for burst in range(8):  # the same work, whatever the order
        one, other = by_burst[burst, "arrival order"], by_burst[burst, "level"]
        assert one["visits"] + one["estimation_visits"] == other["visits"] + other["estimation_visits"]


def test_equal_seeds_replay_the_same_work_and_others_do_not():
    def work(seed):
        rows = run(small(seed=seed))[0].rows
        return [(row["size"], row["visits"]) for row in rows if row["contender"] == "arrival order"]

    assert work(1) == work(1)
    assert work(1) != work(2)


def test_summary_weighs_events():
    report, _ = run(small(peer_every=2))
    for line in report.summary():
        own = [row for row in report.rows if row["contender"] == line["contender"]]
        total = math.fsum(row["response"] * row["size"] for row in own)
        assert line["response_us"] == pytest.approx(1e6 * total / sum(row["size"] for row in own))
    assert PEER in report.text()


@pytest.mark.slow
def test_poisson_bursts_have_their_mean():
    report, _ = run(small(subscriptions=20, bursts=100, poisson=30.0, insert=0, delete=0, check=0))
    sizes = [row["size"] for row in report.rows if row["contender"] == "level"]
    assert abs(np.mean(sizes) - 30) < 3 * math.sqrt(30 / 100)


def test_a_wrong_answer_stops_the_replay(monkeypatch):
    from rtfilter.index.tree import RStarTree

    original = RStarTree.resume_part

    def lossy(self, parts, group):
        hits = original(self, parts, group)
        return hits._replace(offsets=np.zeros_like(hits.offsets), ids=hits.ids[:0], exact=None)

    monkeypatch.setattr(RStarTree, "resume_part", lossy)
    with pytest.raises(AssertionError, match="against brute force"):
        run(small(check=20), "wide", 2)


@pytest.mark.parametrize("name", ["wide", pytest.param("flights", marks=pytest.mark.xdist_group("flights"))])
@pytest.mark.slow
def test_the_peer_holds_the_same_boxes(name):
    """rtree finds the same, on boxes in 12 dimensions and on real predicates, also after changes."""
    source = workload(name, 1)
    filter = EventFilter(source.schema, matcher="rtree")
    ids = source.subscribe(filter, 0, 1500)
    peer = RtreePeer(filter)
    events = filter.schema.read(source.events(1000, 60))
    assert peer.response(events.points)[1] == as_sets(inside(filter).matcher.tree.search(events.points))
    gone = ids[::3]
    filter.unsubscribe_many(gone)
    peer.remove(gone)
    kept = as_sets(inside(filter).matcher.tree.search(events.points))
    assert peer.response(events.points)[1] == kept
    peer.add(source.subscribe(filter, 1500, 50))  # new ends are rounded to known ones: it may find more
    answers = peer.response(events.points)[1]
    assert all(
        a <= b
        for a, b in zip(as_sets(inside(filter).matcher.tree.search(events.points)), answers, strict=True)
    )


def test_a_workload_of_files_begins_anew_after_the_last():
    source = file_workload("mine", Schema({"a": int}), ["a = 1", "a = 2"], [{"a": 1}, {"a": 2}, {"a": 3}])
    assert source.subscriptions(1, 3) == ["a = 2", "a = 1", "a = 2"]
    assert source.events(2, 2) == [{"a": 3}, {"a": 1}]


# -- the command line ----------------------------------------------------------------------------------

QUICK = ["--subscriptions", "200", "--bursts", "4", "--sizes", "2,9"]


@pytest.mark.slow
def test_replaying_a_workload_writes_what_is_asked_for(tmp_path, capsys):
    paths = [tmp_path / name for name in ("out.json", "out.csv", "out.svg", "log.jsonl")]
    outputs = zip(["--json", "--csv", "--figure", "--log"], map(str, paths), strict=True)
    options = [word for pair in outputs for word in pair]
    assert main(["replay", "narrow", *QUICK, "--insert", "3", "--delete", "2", *options]) == 0
    assert "204 subscriptions" in capsys.readouterr().out
    content = json.loads(paths[0].read_text())
    assert content["updates"] == 20
    assert len(content["rows"]) == 4
    assert content["machine"]["cores"] >= 1
    assert len(paths[1].read_text().splitlines()) == 5
    assert "<svg" in paths[2].read_text()
    from rtfilter.adaptive import CostController

    entries = [json.loads(line) for line in paths[3].read_text().splitlines()]
    replay_log(entries, CostController())  # raises if it would have decided otherwise


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (["--level", "1", "--group", "4"], (1, 4)),
        (["--level", "0", "--group", "all"], (0, None)),
    ],
)
def test_a_fixed_plan_is_kept(tmp_path, options, plan):
    out = tmp_path / "out.json"
    assert main(["replay", "wide", *QUICK, "--capacity", "4", "8", *options, "--json", str(out)]) == 0
    assert {(row["level"], row["group"]) for row in json.loads(out.read_text())["rows"]} == {plan}


def test_an_adaptive_level_with_a_fixed_group(tmp_path):
    out = tmp_path / "out.json"
    assert main(["replay", "wide", *QUICK, "--capacity", "4", "8", "--group", "3", "--json", str(out)]) == 0
    assert {row["group"] for row in json.loads(out.read_text())["rows"]} == {3}


def test_replaying_files(tmp_path, capsys):
    subscriptions, events = tmp_path / "s.jsonl", tmp_path / "e.jsonl"
    subscriptions.write_text('"price > 10"\n{"where": {"symbol": ["A"]}}\n')
    events.write_text('{"price": 11, "symbol": "A"}\n{"price": 1, "symbol": "B"}\n{"price": 12}\n')
    assert main(["replay", str(subscriptions), str(events), "--bursts", "3", "--sizes", "3"]) == 0
    # "price > 10" matches two of the three events, the pattern one
    assert "9 matches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "give a file of events too"),
        (["wide", "--level", "1"], "needs a fixed --group"),
        (["wide", "--level", "top", "--group", "1"], "--level must be"),
        (["wide", "--group", "0"], "--group must be"),
        (["wide", "--sizes", "0"], "at least 1"),
        (["wide", "--poisson", "-3"], "mean size above 0"),
        (["wide", "--figure", "x.foo"], ".png"),
        (["wide", *QUICK, "--metrics-port", "99999"], "choose another port"),
        (["wide", "--subscriptions", "-1"], "is not a whole number"),
        (["missing.jsonl", "missing2.jsonl"], "No such file"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments, message, capsys):
    assert main(["replay", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_taken_metrics_port_is_named(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["replay", "wide", *QUICK, "--metrics-port", str(port)]) == 2
    assert str(port) in capsys.readouterr().err


def test_an_unwritable_output_is_named(tmp_path, capsys):
    assert main(["replay", "wide", *QUICK, "--json", str(tmp_path / "no" / "out.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
