"""Batches that find much are matched in parts."""

import numpy as np
import pytest
from box_cases import drawn, schema

from rtfilter.matchers import BoxColumns, Filters, layers, make_matcher

NAMES = [f"a{j}" for j in range(3)]


@pytest.mark.parametrize("name", ["masks", "counting", "hem", "rein", "tama"])
@pytest.mark.parametrize("inexact", [0.0, 0.1])
def test_parts_of_a_batch_have_about_so_many_hits_and_are_joined(name, inexact, monkeypatch):
    rng = np.random.default_rng(8)
    low, high = drawn(rng, 300, 3)
    matcher, asked = make_matcher(name, schema(3)), []
    exact = rng.random(300) >= inexact
    matcher.add(Filters.of_boxes(schema(3), BoxColumns(np.arange(300), low, high, exact)))
    matcher.remove(np.arange(0, 300, 7))
    events = schema(3).read([dict(zip(NAMES, row, strict=True)) for row in rng.uniform(0, 20, (100, 3))])
    whole, inner = matcher.match(events), matcher._match
    most = int(10 * np.diff(whole.offsets).mean())
    assert most > 100
    assert (whole.exact is None) == (inexact == 0)
    monkeypatch.setattr(layers, "PIECE", most)
    monkeypatch.setattr(matcher, "_match", lambda points: asked.append(len(points)) or inner(points))
    parts = matcher.match(events)
    assert sum(asked) == 100
    assert 7 <= len(asked) <= 15
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_single_event_that_finds_more_is_a_part(monkeypatch):
    matcher = make_matcher("masks", schema(3))
    low = np.zeros((50, 3))
    matcher.add(Filters.of_boxes(schema(3), BoxColumns(np.arange(50), low, low + 1, np.ones(50, np.bool_))))
    events = schema(3).read([dict.fromkeys(NAMES, 0.5)] * 3)
    monkeypatch.setattr(layers, "PIECE", 10)
    for _ in range(2):
        assert matcher.match(events).offsets.tolist() == [0, 50, 100, 150]
    assert matcher.match(events.rows(range(0))).offsets.tolist() == [0]


def test_the_first_batch_begins_with_few_events(monkeypatch):
    """Or all that it finds would be in memory several times, which nobody had touched."""
    matcher, asked = make_matcher("masks", schema(3)), []
    low = np.zeros((50, 3))
    matcher.add(Filters.of_boxes(schema(3), BoxColumns(np.arange(50), low, low + 1, np.ones(50, np.bool_))))
    events = schema(3).read([dict.fromkeys(NAMES, 0.5)] * 1000)
    inner = matcher._match
    monkeypatch.setattr(matcher, "_match", lambda points: asked.append(len(points)) or inner(points))
    assert matcher.match(events).offsets[-1] == 50_000
    assert asked == [layers.FIRST, 1000 - layers.FIRST]
