"""The attributes that subscriptions ask for, whatever they ask and however they came."""

import numpy as np
import pytest

from rtfilter import EventFilter, Schema
from rtfilter.adaptive import MatcherChooser
from rtfilter.filter import part_of

SCHEMA = Schema({"a": float, "b": str, "c.d": float, "e": "timestamp", "f": {"type": "int", "low": 0}})


def asked(filter):
    return set(filter._subscriptions.used.names)


@pytest.mark.parametrize("matcher", ["scan", "rtree", "counting"])
@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("a < 1", {"a"}),
        ("a IS NULL", {"a"}),
        ("b = 'x' OR c.d > 2", {"b", "c.d"}),
        ("b LIKE '%x'", {"b"}),
        ("b <> 'long enough'", {"b"}),
        ("a <> c.d", {"a", "c.d"}),
        ("e > NOW()", {"e"}),
        ({"c": {"d": [{"all": [{"numeric": [">", 1]}]}]}}, {"c.d"}),
    ],
)
def test_of_predicates(matcher, where, names):
    filter = EventFilter(SCHEMA, matcher=matcher)
    assert asked(filter) == {"f"}
    try:
        filter.subscribe(where)
    except ValueError:
        pytest.skip("this matcher does not take it")
    assert asked(filter) == names | {"f"}


def test_of_bounds():
    filter = EventFilter(Schema({"a": float, "b": float, "c": float}))
    low = np.array([[0, -np.inf, -np.inf], [-np.inf, -np.inf, 5]])
    filter.subscribe_boxes(low=low, high=np.full((2, 3), np.inf))
    assert asked(filter) == {"a", "c"}


def test_an_update_asks_for_more(tmp_path):
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe("a < 1", id=1)
    filter.update(1, "c.d < 1 AND b LIKE '%x'")
    assert asked(filter) == {"a", "b", "c.d", "f"}
    filter.repack()
    assert asked(filter) == {"b", "c.d", "f"}
    filter.save(tmp_path / "saved")
    assert asked(EventFilter.load(tmp_path / "saved")) == {"b", "c.d", "f"}
    assert asked(part_of(filter, [1])) == {"b", "c.d", "f"}
    assert asked(EventFilter.load(tmp_path / "saved", matcher=MatcherChooser())) == {"b", "c.d", "f"}
