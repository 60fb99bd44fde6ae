"""Events and patterns of the benchmark with event-ruler and quamina, and the turns that programs take."""

import argparse

import msgspec
import pytest

from experiments import ResultError
from experiments.ruler import run, worlds
from experiments.ruler.own import WAYS
from experiments.ruler.peers import build_quamina, build_ruler
from rtfilter import EventFilter, Schema

GIVEN = argparse.Namespace(seed=1, events=5, limit=60.0, seconds=5.0, warm=0.01, rounds=2)


@pytest.mark.parametrize("kind", worlds.NAMES)
def test_patterns_match_some_events_and_all_ways_find_the_same(kind):
    events, patterns = worlds.events(kind, 300, 1), worlds.patterns(kind, 300, 2)
    for pattern in patterns[:20]:
        event = msgspec.json.decode(events[0])
        event["properties"] |= {
            name: value[0]
            for name, value in pattern.get("properties", {}).items()
            if isinstance(value[0], str)
        }
        events.append(msgspec.json.encode(event))
    filter = EventFilter(Schema(worlds.attributes(kind)), max_unbounded=None)
    filter.subscribe_many(patterns)
    found = [sorted(way(filter, events)) for way in WAYS.values()]
    assert found[0] == found[1]
    assert found[0] or kind in ("ignore case", "numeric", "wildcard")  # of few events


def test_the_same_seed_draws_the_same():
    for kind in worlds.NAMES:
        assert worlds.events(kind, 3, 1) == worlds.events(kind, 3, 1) != worlds.events(kind, 3, 2)
        assert worlds.patterns(kind, 3, 1) == worlds.patterns(kind, 3, 1) != worlds.patterns(kind, 3, 2)


def test_what_accepts_nearly_everything_is_joined_with_a_block_where_there_are_many():
    assert all(len(one["properties"]) == 1 for one in worlds.patterns("anything-but", worlds.FEW, 1))
    assert all("BLOCK_NUM" in one["properties"] for one in worlds.patterns("anything-but", 6, 1))


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("a", "a"),
        ({"suffix": "a"}, {"wildcard": "*a"}),
        ({"prefix": "a"}, {"prefix": "a"}),
        ({"anything-but": ["a"]}, {"anything-but": ["a"]}),
        ({"prefix": {"equals-ignore-case": "a"}}, None),
        ({"anything-but": {"prefix": "a"}}, None),
        ({"numeric": [">", 1]}, None),
    ],
)
def test_a_pattern_for_quamina_means_the_same_or_is_none(condition, wanted):
    made = worlds.for_quamina({"properties": {"STREET": [condition]}})
    assert made == (None if wanted is None else {"properties": {"STREET": [wanted]}})


class Fake:
    """A program that says what it is told to."""

    def __init__(self, counts, rules=3):
        self.counts, self.rules = counts, rules
        self.closed = False

    def ask(self, **command):
        if "rules" in command:
            return {"seconds": 0.5, "rules": self.rules, "bytes": 300}
        return {"events": 5} if "events" in command else {"seconds": 0.001, "counts": self.counts}

    def close(self):
        self.closed = True


def test_times_are_ratios_to_those_of_the_same_turn():
    starts = {who: lambda: Fake({"0": 2}) for who in (*run.OURS, "event-ruler")}
    rows = run.measured("exact", 3, starts, GIVEN)
    assert [row["of_ruler"] for row in rows[:2]] == pytest.approx([1, 1])
    assert [row["us"] for row in rows] == pytest.approx([200] * 3)
    assert rows[0]["load_us"] == pytest.approx(0.5e6 / 3)


def test_other_answers_end_the_run_and_every_program():
    programs = [Fake({"0": 2}), Fake({"0": 3})]
    starts = dict(zip(("event-ruler", "quamina"), ((lambda one=one: one) for one in programs), strict=True))
    with pytest.raises(ResultError, match="quamina finds other matches than event-ruler"):
        run.measured("exact", 3, starts, GIVEN)
    assert all(program.closed for program in programs)


def test_who_adds_too_few_rules_in_time_is_not_asked():
    slow = Fake({}, rules=2)
    (row,) = run.measured("exact", 3, {"event-ruler": lambda: slow}, GIVEN)
    assert row["note"] == "2 rules added in 60 s"
    assert "us" not in row
    assert slow.closed


@pytest.mark.slow
def test_rtfilter_alone_is_measured_and_drawn(tmp_path, capsys):
    few = ["--kinds", "exact", "--rules", "5", "--events", "50", "--rounds", "1", "--warm", "0.01"]
    assert run.main([*few, "--out", str(tmp_path / "a.json"), "--figure", str(tmp_path / "a.png")]) == 0
    assert "rtfilter, 1000 a call" in capsys.readouterr().out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("build", [build_ruler, build_quamina])
def test_a_folder_that_is_no_checkout_is_told(build, tmp_path):
    with pytest.raises(ResultError, match="is no checkout of"):
        build(tmp_path, tmp_path)
