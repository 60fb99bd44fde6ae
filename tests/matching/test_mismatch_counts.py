"""A filter counts odd values, and logs each name once."""

import logging
import threading

import pytest

from rtfilter import EventFilter
from rtfilter.basics.errors import EventError
from rtfilter.events.mismatches import MismatchCounts
from rtfilter.events.schema import Schema
from rtfilter.events.table import Mismatch
from rtfilter.filter import inside
from rtfilter.watch.metrics import Metrics

SCHEMA = {"price": float, "symbol": str}


def logged(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "rtfilter.events"]


def test_each_name_is_logged_once_and_every_event_counts(caplog):
    filter = EventFilter(Schema(SCHEMA), metrics=Metrics())
    filter.subscribe("price < 10")
    with caplog.at_level(logging.WARNING):
        filter.match({"prise": 5})
        filter.match_batch([{"prise": 5}, {"price": "9"}, {"price": "8", "symbol": "A"}])
        list(filter.stream([{"price": True}]))
        filter.match_batch([{"price": 1, "symbol": "A"}])
    assert logged(caplog) == [
        "event 0: unknown attribute 'prise'; did you mean 'price'? (logged once; stats() counts them)",
        "event 1: attribute 'price' is a number, and '9' is none (logged once; stats() counts them)",
    ]
    stats = filter.stats()
    assert (stats["misspelt"], stats["ill_typed"]) == (2, 3)
    registry = inside(filter).metrics.registry
    assert registry.get_sample_value("rtfilter_values_misspelt_total") == 2
    assert registry.get_sample_value("rtfilter_values_ill_typed_total") == 3


def test_new_names_without_end_are_logged_for_some(caplog):
    filter = EventFilter(
        Schema({f"{'abcdefghij'[i // 20]}{chr(97 + i % 20)}stem": float for i in range(200)})
    )
    with caplog.at_level(logging.WARNING):
        for name in filter.schema.names:
            filter.match({name: "1"})
    assert len(logged(caplog)) == 100
    assert filter.stats()["ill_typed"] == 200


def test_a_strict_filter_stays_strict(tmp_path):
    filter = EventFilter(Schema(SCHEMA, strict=True), metrics=Metrics())
    filter.subscribe("price < 10")
    filter.save(tmp_path / "saved")
    for one in (filter, EventFilter.load(tmp_path / "saved", metrics=Metrics())):
        with pytest.raises(EventError, match="unknown attribute 'prise'"):
            one.match_batch([{"price": 1}, {"prise": 1}])
        assert inside(one).metrics.refused_events == 2
        assert one.match({"price": 1}).tolist() == [0]


def test_a_signal_handler_may_match_while_odd_values_are_counted():
    """An interrupt of the loop over the oddities stands for the signal."""
    values, one, left = MismatchCounts(), Mismatch("price", False, "is odd", 0, 1), [True] * 3

    class Interrupted(tuple):
        __slots__ = ()

        def __iter__(self):
            if left:
                left.pop()
                values.note((one,))
            return super().__iter__()

    noting = threading.Thread(target=values.note, args=(Interrupted((one,)),), daemon=True)
    noting.start()
    noting.join(30)
    assert not noting.is_alive()
    assert (values.ill_typed, values.misspelt) == (4, 0)
