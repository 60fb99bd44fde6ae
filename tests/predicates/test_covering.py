"""Covering and intersecting predicates: never wrong, and seldom unknown."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import conditions, events, schemas, sql
from rtfilter import Attribute, Predicate, PredicateError, Schema
from rtfilter.predicates.covers import covering

SCHEMA = Schema({"a": float, "b": int, "s": str, "ok": bool, "at": datetime})
BIG = 2**53
NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)

# A small world: all of its events are tried.
WORLD = Schema({"a": float, "s": str, "ok": bool})
NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 1000, BIG, BIG + 1, "none", None]
TEXTS = ["", "a", "A", "ab", "abcdefg", "abcdefgh", "b", "10.0.0.1", "10.1.0.1", "::1", 7, None]
FLAGS = [False, True, 0, None]
EVENTS = [
    {name: value for name, value in zip(("a", "s", "ok"), row, strict=True) if value is not None}
    for row in product(NUMBERS, TEXTS, FLAGS)
]
CONSTANTS = st.sampled_from([0, 0.5, 1, 2, BIG, BIG + 1])
WORDS = st.sampled_from(["", "a", "ab", "abcdefg", "abcdefgh", "b", "10.0.0.1"])
PATTERNS = st.sampled_from(["%b", "a%g", "%", "%b%", "_", "a_c%", "%a%b%", "__%", "%\\_"])
NETWORKS = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "::/0"])


def quoted(text):
    return f"'{text}'"


TESTS = st.one_of(
    st.builds("a {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), CONSTANTS),
    st.builds("s {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), WORDS.map(quoted)),
    st.builds("a IN ({}, {})".format, CONSTANTS, CONSTANTS),
    st.builds("s IN ({}, {})".format, WORDS.map(quoted), WORDS.map(quoted)),
    st.builds("s LIKE {}".format, WORDS.map(lambda word: quoted(word + "%"))),
    st.builds("s LIKE {}".format, PATTERNS.map(quoted)),
    st.builds("LOWER(s) LIKE {}".format, PATTERNS.map(quoted)),
    st.builds("LOWER(s) = {}".format, WORDS.map(quoted)),
    st.builds("CIDR(s, {})".format, NETWORKS.map(quoted)),
    st.sampled_from(["a IS NULL", "s IS NULL", "ok IS NULL", "ok", "TRUE", "a * 2 > 1", "a + 1 = 2"]),
)
PREDICATES = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("NOT ({})".format, inner),
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
    ),
    max_leaves=5,
).map(lambda text: Predicate.parse(text, WORLD))


def p(text, schema=SCHEMA):
    return Predicate.parse(text, schema)


@pytest.mark.slow
@given(PREDICATES, PREDICATES)
@settings(max_examples=150)
def test_answers_are_never_wrong_in_a_small_world(one, two):
    satisfied = [(one.matches(event), two.matches(event)) for event in EVENTS]
    if one.covers(two):
        assert all(own for own, other in satisfied if other)
    # The world has not all events: what is not covered may show in others.
    if (True, True) in satisfied:
        assert one.intersects(two) is not False
    if any(other and not own for own, other in satisfied):
        assert one.covers(two) is not True
    assert one.covers(one) is True
    assert one.intersects(two) == two.intersects(one)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=120)
def test_answers_are_never_wrong_over_all_operators(data):
    types = data.draw(schemas())
    schema = Schema(types)
    one, two = (p(sql(data.draw(conditions(types))), schema) for _ in range(2))
    covers, intersects = one.covers(two), one.intersects(two)
    for event in data.draw(st.lists(events(types), max_size=8)):
        row = schema.read([event]).row(0)
        if two.matches(row):
            assert one.matches(row) or covers is not True
            assert not one.matches(row) or intersects is not False
    # Without the schema less is known, but nothing else.
    apart = Predicate.from_json(one.to_json()).covers(Predicate.from_json(two.to_json()))
    assert apart is None or covers is None or apart == covers


def test_a_no_is_an_event_that_shows_it(monkeypatch):
    """Nothing but an event makes a no."""
    shown = []
    event = covering._event
    monkeypatch.setattr(covering, "_event", lambda *given: shown.append(event(*given)) or shown[-1])
    assert p("a < 5").covers(p("a <= 5 AND s LIKE 'x%'")) is False
    assert shown == [{"a": 5, "s": "x"}]


COVERED = [
    ("a < 5", "a < 4"),
    ("a <= 5", "a < 5"),
    ("a >= 5", "a > 5"),
    ("a < 5 OR a >= 5", "a BETWEEN 0 AND 10"),
    ("a < 5 OR a BETWEEN 5 AND 7 OR a > 7", "a <> 3"),
    ("a >= 0 AND b >= 0 OR a >= 0 AND b < 0 OR a < 0", "b IN (1, 2) AND a < 99"),
    (f"b > {BIG}", f"b = {BIG + 1}"),
    (f"b > {BIG}", f"b >= {BIG + 1}"),
    (f"b < {BIG + 1} OR b > {BIG}", f"b = {BIG}"),
    ("a >= 0", "a >= -0.0"),
    ("b IN (1, 2, 3)", "b = 1 OR b = 3"),
    ("b NOT IN (1, 2)", "b > 2"),
    ("ok = TRUE OR ok = FALSE", "ok IS NOT NULL AND ok <> TRUE"),
    ("s LIKE 'long prefix%'", "s = 'long prefix of a text'"),
    ("s >= 'a' AND s < 'b'", "s LIKE 'a%'"),
    ("s LIKE 'a%'", "s >= 'a' AND s < 'b'"),
    ("s <> 'long text one'", "s = 'long text two'"),
    ("s LIKE '%'", "s NOT LIKE '%.jpg'"),
    ("s LIKE '%.jpg' OR s NOT LIKE '%.jpg'", "s < 'm'"),
    ("s LIKE '%.jpg'", "s = 'a.jpg'"),
    ("s LIKE '%.jpg'", "s LIKE '%a%.jpg'"),
    ("s LIKE '%g'", "s LIKE '%.jpg'"),
    ("s NOT LIKE '%.jpg'", "s LIKE '%_.png'"),
    ("LOWER(s) LIKE '%.jpg'", "s = 'A.JPG'"),
    ("s LIKE '%.jpg'", "s IN ('a.jpg', 'b.jpg')"),
    ("s LIKE '%a%'", "s LIKE 'x%a_'"),
    ("s NOT LIKE 'x%aa'", "s NOT LIKE '%a%'"),
    ("LOWER(s) = 'abc'", "s IN ('ABC', 'aBc')"),
    ("LOWER(s) LIKE 'ab%'", "LOWER(s) = 'abc'"),
    ("LOWER(s) LIKE '%b%'", "LOWER(s) LIKE 'ab%c'"),
    ("LOWER(s) <> 'abc'", "s = 'abcd'"),
    ("CIDR(s, '10.0.0.0/8')", "CIDR(s, '10.1.0.0/16')"),
    ("CIDR(s, '10.0.0.0/9') OR CIDR(s, '10.128.0.0/9')", "CIDR(s, '10.0.0.0/8')"),
    ("NOT CIDR(s, '::/0')", "CIDR(s, '10.0.0.0/8')"),
    ("CIDR(s, '10.0.0.0/8')", "s IN ('10.0.0.1', '10.9.9.9')"),
    ("a < b", "b > a AND ok"),
    ("a <= b", "a = b"),
    ("a < b OR a >= b", "a > 0 AND b > 0"),
    ("a * b > 500", "a * b > 1000"),
    ("a IS NOT NULL", "a * b > 500"),
    ("a > 4", "a * 2 > 10"),
    ("at > TIMESTAMP '2024-05-31T12:00:00Z'", "at >= TIMESTAMP '2024-05-31T12:00:00.000001Z'"),
    ("a IS NULL OR b IS NULL", "a IS NULL"),
    ("a IS NOT NULL", "a NOT IN ()"),
    ("TRUE", "a < 5"),
    ("a < 5", "FALSE"),
    ("FALSE", "a < 3 AND a > 5"),
    ("FALSE", "s = 'abc' AND s LIKE '%d'"),
    ("FALSE", "a < b AND a > b"),
]
NOT_COVERED = [
    ("a < 5", "a <= 5"),
    ("a < 5 OR a > 5", "a BETWEEN 0 AND 10"),
    ("b > 3", "b > 2"),
    ("b <= 3 OR b >= 4", "b > 0"),  # an attribute of integers may have 3.5
    ("a < 5", "b < 5"),
    ("a < 5", "TRUE"),
    ("a < 5 OR a >= 5", "TRUE"),
    ("a < 5 OR a >= 5 OR a IS NULL", "TRUE"),  # a value of another type
    ("a < 5 OR a >= 5", "a IS NOT NULL"),
    ("a <> 5", "a IS NULL"),
    ("a < 5 AND ok", "a < 5"),
    (f"b > {BIG}", f"b >= {BIG}"),
    ("ok", "ok IS NOT NULL"),
    ("s LIKE 'a%'", "s <= 'b'"),
    ("s < 'b'", "s <= 'b'"),
    ("s = 'a'", "s >= 'a' AND s <= 'a\0'"),
    ("s LIKE '%.jpg'", "s LIKE '%.png'"),
    ("s LIKE '_%a'", "s LIKE '%a'"),
    ("LOWER(s) = 'abc'", "s LIKE 'abc%'"),
    ("CIDR(s, '10.1.0.0/16')", "CIDR(s, '10.0.0.0/8')"),
    ("a < b", "a <= b"),
    ("a < b OR a > b", "a > 0 AND b > 0"),
    ("at > TIMESTAMP '2024-05-31T12:00:00Z'", "at >= TIMESTAMP '2024-05-31T12:00:00Z'"),
    ("FALSE", "TRUE"),
]
DISJOINT = [
    ("a < 5", "a >= 5"),
    ("a < 5", "a > 4.5 AND a > 5"),
    ("a < 5", "a IS NULL"),
    ("s LIKE 'ab%'", "s LIKE 'ac%'"),
    ("s LIKE '%.jpg'", "s NOT LIKE '%.jpg'"),
    ("s LIKE 'x%a'", "s NOT LIKE '%a'"),
    ("s LIKE '%.jpg'", "s LIKE '%.png'"),
    ("s LIKE '%.jpg'", "s LIKE '%a%.png'"),
    ("LOWER(s) LIKE '%.jpg'", "LOWER(s) LIKE '%_.png'"),
    ("s LIKE '%.jpg'", "s = 'a.png'"),
    ("CIDR(s, '10.0.0.0/9')", "CIDR(s, '10.128.0.0/9')"),
    ("LOWER(s) = 'abc'", "s = 'abd'"),
    ("a < b", "a = b"),
    ("ok", "NOT ok"),
    ("a = 1", "a = 1.5"),
    ("TRUE", "FALSE"),
]


@cases(("outer", "inner"), COVERED)
def test_covered(outer, inner):
    assert p(outer).covers(p(inner)) is True


@cases(("outer", "inner"), NOT_COVERED)
def test_not_covered(outer, inner):
    assert p(outer).covers(p(inner)) is False


@cases(("one", "two"), DISJOINT)
def test_disjoint(one, two):
    assert p(one).intersects(p(two)) is False
    assert p(two).intersects(p(one)) is False


@cases(("one", "two"), [pair for pair in NOT_COVERED if "FALSE" not in pair])
def test_intersecting(one, two):
    both = p(one).intersects(p(two))
    assert both is not None
    assert both == any(map(p(f"({one}) AND ({two})").matches, [{"a": 1, "b": 0}, *EVENTS])) or both


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("s LIKE '%a%' OR s NOT LIKE '%b%a%'", "s LIKE '%c%d'"),
        ("a * 2 > 10", "a > 5"),  # arithmetic may round
        ("a < ab", "a < 3 AND ab > 4"),
        ("s LIKE '%b%'", "s LIKE 'abc%'"),
        ("s > 'a'", "s LIKE 'a_%'"),
    ],
)
def test_unknown(outer, inner):
    schema = Schema({"a": float, "ab": float, "s": str})
    assert p(outer, schema).covers(p(inner, schema)) is None


def test_too_much_work_is_unknown():
    names = [f"x{n}" for n in range(9)]
    schema = Schema(dict.fromkeys(names, float))
    outer = " OR ".join(f"({' AND '.join(f'{name} <> {n}' for name in names)})" for n in range(200))
    assert p(outer, schema).covers(p(" AND ".join(f"{name} >= 0" for name in names), schema)) in (None, False)
    inner = p(" AND ".join(f"{name} IN (0.5, 1.5)" for name in names), schema)
    assert p(outer, schema).covers(inner) is True  # the first filter is enough


def test_domains_bound_events():
    schema = Schema({"size": Attribute(int, 0, 100), "at": Attribute(datetime, high=NOON)})
    assert p("size >= 0", schema).covers(p("size < 7", schema))
    assert p("size < 0 OR size > 100", schema).intersects(p("TRUE", schema)) is False
    assert p("size <= 50 OR size > 50", schema).covers(p("size NOT IN ()", schema))
    assert p("at <= TIMESTAMP '2024-05-31T12:00:00Z'", schema).covers(p("at NOT IN ()", schema))
    assert not p("size >= 0").schema if "size" in SCHEMA.attributes else True
    free = Predicate.from_json(p("size >= 0", schema).to_json())
    assert free.covers(Predicate.from_json(p("size < 7", schema).to_json())) is False
    assert free.covers(p("size < 7", schema)) is True  # the schema of either counts


def test_schemas_must_agree():
    one, other = p("a < 5"), p("a < 5", Schema({"a": float}))
    with pytest.raises(PredicateError, match="different schemas"):
        one.covers(other)
    with pytest.raises(PredicateError, match="cannot be compared with the str 'x'"):
        one.intersects(Predicate.from_json([[["a", "=", "x"]]]))
    assert one.covers(p("a < 3", Schema(SCHEMA.attributes)))


def test_constants_of_several_types_without_a_schema():
    one, two = (Predicate.from_json([[["a", "=", value]]]) for value in (5, "x"))
    assert one.covers(two) is None
    assert one.intersects(two) is None


@pytest.mark.slow
def test_few_answers_are_unknown():
    """Of pairs drawn from the tables above; their number may fall, not rise."""
    texts = sorted({text for pair in COVERED + NOT_COVERED + DISJOINT for text in pair})
    predicates = [p(text) for text in texts]
    answers = Counter(
        str(answer)
        for one in predicates[::2]
        for two in predicates[::2]
        for answer in (one.covers(two), one.intersects(two))
    )
    assert answers["None"] <= 0.03 * answers.total()


def test_moments_and_end_of_time():
    late = p(f"at > TIMESTAMP '{(NOON + timedelta(days=1)).isoformat()}'")
    assert p("at >= TIMESTAMP '0001-01-01T00:00:00Z'").covers(late)
    assert late.intersects(p("at = TIMESTAMP '2024-06-02T00:00:00Z'"))
