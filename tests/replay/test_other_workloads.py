"""Workloads of bits and of text: the same rows however they are cut, and what they claim to be."""

import numpy as np
import pytest

from rtfilter import EventFilter
from rtfilter.predicates.predicate import parse
from rtfilter.replay.workloads import workload
from rtfilter.replay.workloads.base import BLOCK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bits", "strings", "suffixes"])
def test_rows_do_not_depend_on_how_the_sequence_is_cut(name):
    made = workload(name, seed=3)
    start, count = BLOCK - 2, 5
    assert made.subscriptions(0, start + count)[start:] == made.subscriptions(start, count)
    own, all_of_them = made.events(start, count), made.events(0, start + count)
    assert list(map(repr, own)) == list(map(repr, all_of_them[start:]))
    assert made.subscriptions(0, 9) != workload(name, seed=4).subscriptions(0, 9)
    assert len(made.subscriptions(7, 0)) == len(made.events(7, 0)) == 0


@pytest.mark.parametrize(
    ("name", "least", "most"), [("bits", 0.5, 10), ("strings", 5, 200), ("suffixes", 0.1, 5)]
)
@pytest.mark.slow
def test_subscriptions_are_read_and_matched(name, least, most):
    made = workload(name)
    filter = EventFilter(made.schema)
    made.subscribe(filter, 0, 2000)
    events = made.schema.read(made.events(0, 200))
    found = filter.match_batch(events)
    predicates = [parse(source, made.schema) for source in made.subscriptions(0, 2000)]
    rows = [events.row(row) for row in range(20)]
    expected = [[i for i, one in enumerate(predicates) if one.matches(row)] for row in rows]
    assert [sorted(own.tolist()) for own in list(found)[:20]] == expected
    assert least < np.mean([len(own) for own in found]) < most


def test_bits_are_few_many_or_half():
    shares = workload("bits").events(0, 2000).mean(axis=1)
    assert [float(np.mean(shares < 0.2)), float(np.mean(shares > 0.8))] == pytest.approx(
        [3 / 7] * 2, abs=0.05
    )
    counts = [len(pattern) for pattern in workload("bits").subscriptions(0, 1000)]
    assert (min(counts), np.mean(counts)) == (min(counts), pytest.approx(10.8, abs=0.4))
    assert min(counts) >= 1


def test_rules_ask_for_equalities_prefixes_sets_and_ranges():
    patterns = workload("strings").subscriptions(0, 3000)
    prefixes = [p for p in patterns if any("prefix" in str(value) for value in p.values())]
    assert 0.7 < len(prefixes) / len(patterns) < 0.9
    assert any(len(p.get("service", [])) > 1 for p in patterns)
