"""Moments relative to that of the batch: how they are written, and what each way to match takes for now."""

import asyncio
import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from kinds import EACH
from predicate_cases import ORDERS, truth
from rtfilter import AsyncFilter, EventFilter, Predicate, PredicateError, Schema
from rtfilter.events.fields import NOW
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.operands.intervals import LONGEST, Now, duration, interval

SCHEMA = Schema({"at": datetime, "x": float})
START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000


def p(source):
    return Predicate.parse(source, SCHEMA)


def filter_at(moment, *sources, **options):
    """A filter whose clock stands still."""
    filter = EventFilter(SCHEMA, clock=moment.timestamp, **options)
    filter.subscribe_many(list(sources))
    return filter


def only(predicate):
    (conjunction,) = predicate.filters
    return conjunction.constraints[0]


@cases(
    ("condition", "text"),
    [
        ("at > NOW()", "at > NOW()"),
        ("at > now() - interval '60 minutes'", "at > NOW() - INTERVAL '1 hour'"),
        ("CURRENT_TIMESTAMP + INTERVAL '1' HOUR >= at", "at <= NOW() + INTERVAL '1 hour'"),
        ("NOT at > NOW() - INTERVAL '1 day 12 hours'", "at <= NOW() - INTERVAL '36 hours'"),
        ("at = NOW() - INTERVAL '1' WEEK + INTERVAL '1' day", "at = NOW() - INTERVAL '6 days'"),
        ("at < NOW() + INTERVAL '1.5 seconds'", "at < NOW() + INTERVAL '1.5 seconds'"),
        ("at < NOW() + INTERVAL '2 weeks' - INTERVAL '14 days'", "at < NOW()"),
        ("at <> NOW() + INTERVAL '90 second'", "at <> NOW() + INTERVAL '90 seconds'"),
        ("at IN (NOW(), '2030-01-01')", "(at = NOW()) OR (at IN (TIMESTAMP '2030-01-01T00:00:00Z'))"),
    ],
)
def test_moments_are_written_and_read_again(condition, text):
    predicate = p(condition)
    assert predicate.to_sql() == text
    assert p(text) == predicate
    assert p(Predicate.from_json(json.loads(json.dumps(predicate.to_json())))) == predicate
    assert pickle.loads(pickle.dumps(predicate)) == predicate


@cases(
    ("pattern", "condition"),
    [
        ({"at": [{"numeric": [">", {"now": "-PT1H"}]}]}, "at > NOW() - INTERVAL '1 hour'"),
        ({"at": [{"numeric": ["=", {"now": "P1W2DT3H4M5.5S"}]}]}, "at = NOW() + INTERVAL '788645.5 seconds'"),
        (
            {"at": [{"numeric": [">=", {"now": "PT0S"}, "<", "2040-01-01"]}]},
            "at >= NOW() AND at < TIMESTAMP '2040-01-01'",
        ),
    ],
)
def test_patterns_of_moments(pattern, condition):
    assert p(pattern) == p(condition)
    assert p(p(pattern).to_pattern()) == p(pattern)


@cases(
    ("source", "message"),
    [
        ("at > NOW() - 5", "only an interval can be added to NOW"),
        ("at > NOW() - INTERVAL '1 month'", "months and years are not all of one length"),
        ("at > NOW() - INTERVAL 'soon'", "is no interval"),
        ("at > NOW() - INTERVAL ''", "is no interval"),
        ("at > NOW() - INTERVAL '0.0000001 seconds'", "no whole number of microseconds"),
        ("at > NOW() - INTERVAL '99999999 weeks'", "at most 10\\*\\*18 microseconds"),
        ("x > NOW()", "'x' is a number, and NOW\\(\\) is a timestamp"),
        ("NOW() > NOW()", "compared with an attribute"),
        ("ANY at > NOW()", "a constraint of one attribute with constants"),
        ({"at": [{"numeric": [">", {"now": "1h"}]}]}, "is no duration; write one as in ISO 8601"),
        ({"at": [{"numeric": [">", {"now": "P1Y"}]}]}, "is no duration"),
        ({"at": [{"numeric": [">", {"now": "PT"}]}]}, "is no duration"),
        ({"at": [{"numeric": [">", {"then": "PT1H"}]}]}, 'expected a constant, or {"now"'),
    ],
)
def test_what_is_no_moment_is_refused(source, message):
    with pytest.raises(PredicateError, match=message):
        p(source)


@given(st.integers(-LONGEST, LONGEST) | st.sampled_from([0, 1, -HOUR, 10**6, 24 * HOUR]))
def test_intervals_are_read_as_they_are_written(offset):
    now = Now(offset)
    assert only(p(f"at = {now}")).right == now
    assert duration(now.duration()) == offset


def test_units_and_limits():
    assert interval("1 week") == 7 * 24 * HOUR
    assert interval(" 1day2hours ") == 26 * HOUR
    for wrong in (LONGEST + 1, 1.5, True):
        with pytest.raises(PredicateError, match="at most"):
            Now(wrong)
    for left, right, family in [("x", Now(), "number"), (Now(), Now(), "timestamp")]:
        with pytest.raises(PredicateError):
            Comparison(left, "<", right, family)


def test_a_name_that_is_the_moment_elsewhere():
    schema = Schema({"now": datetime, "CURRENT_TIMESTAMP": datetime})
    parsed = Predicate.parse("now > NOW() AND CURRENT_TIMESTAMP = now", schema)
    assert str(parsed) == "now > NOW() AND CURRENT_TIMESTAMP = now"


EVENTS = [
    {"at": START + timedelta(microseconds=us)}
    for us in (-2 * HOUR, -HOUR - 1, -HOUR, -HOUR + 1, 0, 1, 5 * HOUR)
]
EVENTS += [
    {},
    {"at": "soon"},
    {"at": [(START - timedelta(hours=2)).isoformat(), START.isoformat()]},
    {"x": 1},
]


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
def test_every_way_to_match_holds_events_against_its_moment(matcher):
    conditions = [("now", "at", operator, timedelta(hours=hours)) for operator in ORDERS for hours in (-1, 0)]
    sources = [f"at {one[2]} NOW() {'- INTERVAL ' + repr('1 hour') if one[3] else ''}" for one in conditions]
    filter = filter_at(START, *sources, matcher=matcher, max_unbounded=None)
    types = {"at": datetime, "x": float}

    def wanted(moment):
        return [
            [
                id
                for id, one in enumerate(conditions)
                if any(
                    truth(one, {"at": value}, types, now=moment)
                    for value in (event["at"] if isinstance(event.get("at"), list) else [event.get("at")])
                )
            ]
            for event in EVENTS
        ]

    def ids(matches):
        return [sorted(own.tolist()) for own in matches]

    now, later = wanted(START), wanted(START + timedelta(hours=1))
    assert ids(filter.match_batch(EVENTS)) == now
    assert ids(filter.match_batch(EVENTS * 20)) == now * 20
    assert ids(map(filter.match, EVENTS)) == now
    assert ids(filter.stream(EVENTS).matches()) == now
    assert filter.match_batch(EVENTS).any.tolist() == [bool(own) for own in now]
    assert ids(filter.match_batch(EVENTS, at=(START + timedelta(hours=1)).timestamp())) == later
    for row, event in enumerate(EVENTS):
        assert [id for id in range(len(sources)) if filter.explain(event, id).matched] == now[row]
        found = [p(one).matches(event, START.timestamp()) for one in sources]
        assert [id for id, matches in enumerate(found) if matches] == now[row]
    assert filter.explain(EVENTS).matched == sum(map(len, now))


def test_without_a_moment_the_clock_of_the_system_tells():
    now = datetime.now(UTC)
    recent = p("at > NOW() - INTERVAL '1 hour'")
    assert recent.matches({"at": now})
    assert not recent.matches({"at": now - timedelta(hours=2)})
    assert not recent.matches({"at": now}, now.timestamp() + 7200)
    assert recent.matches({"at": [now - timedelta(hours=2), now]})


def test_moments_of_deadlines_and_of_coroutines_are_the_same():
    async def main():
        async with AsyncFilter(filter_at(START, "at = NOW()", "at > NOW()")) as feed:
            return await feed.match({"at": START})

    assert asyncio.run(main()).tolist() == [0]
    filter = filter_at(START, "at = NOW()")
    filter.subscribe("at = NOW()", ttl=60)
    assert filter.match({"at": START}).tolist() == [0, 1]


def test_explanations_tell_the_moment():
    filter = filter_at(START, "at > NOW() - INTERVAL '1 hour'")
    (told,) = filter.explain({"at": START - timedelta(hours=1, seconds=5)}, 0).filters[0].constraints
    assert told.reason == (
        "at is 2029-12-31T22:59:55Z and NOW() - INTERVAL '1 hour' is 2029-12-31T23:00:00Z, too low by 5 s"
    )
    assert (told.distance, told.unit) == (5, "s")
    assert filter.match(told.remedy).tolist() == [0]
    assert pickle.loads(pickle.dumps(told)).remedy == told.remedy


@cases(
    ("outer", "inner", "answer"),
    [
        ("at > NOW() - INTERVAL '2 hours'", "at > NOW() - INTERVAL '1 hour'", True),
        ("at > NOW() - INTERVAL '1 hour'", "at > NOW() - INTERVAL '2 hours'", False),
        ("at < NOW() OR at >= NOW()", "at > TIMESTAMP '2030-01-01'", True),
        ("at >= NOW()", "at > NOW() - INTERVAL '0.000001 seconds'", True),
        ("at <> NOW()", "at BETWEEN NOW() + INTERVAL '1 hour' AND NOW() + INTERVAL '2 hours'", True),
        ("at > NOW()", "at > TIMESTAMP '2100-01-01'", None),
        ("x > 5", "at > NOW()", False),
    ],
)
def test_covering_compares_intervals(outer, inner, answer):
    assert p(outer).covers(p(inner)) is answer


def test_a_filter_finds_who_covers_a_moment():
    hours = [f"at > NOW() - INTERVAL '{hours} hours'" for hours in (1, 2, 3)]
    filter = EventFilter(SCHEMA, matcher="rtree")
    filter.subscribe_many(hours)
    assert filter.related(hours[1]).covers.ids.tolist() == [1, 2]
    assert filter.related(hours[1]).covered.ids.tolist() == [0, 1]
    assert filter.related(hours[1]).equal.ids.tolist() == [1]


def test_a_snapshot_keeps_moments_relative(tmp_path):
    filter_at(START, "at > NOW() - INTERVAL '1 hour'").save(tmp_path / "snapshot")
    later = START + timedelta(days=1)
    again = EventFilter.load(tmp_path / "snapshot", clock=later.timestamp)
    assert again.match({"at": START}).tolist() == []
    assert again.match({"at": later}).tolist() == [0]


def test_the_key_of_the_moment_is_no_attribute():
    schema = Schema({"NOW()": float, "at": datetime})
    row = schema.read([{"NOW()": 5}]).at(7).row(0)
    assert row["NOW()"] == 5
    assert row[NOW] == 7_000_000
    assert pickle.loads(pickle.dumps(row))[NOW] == 7_000_000
