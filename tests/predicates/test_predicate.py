"""What constraints, filters and predicates mean."""

import json
import pickle
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import NETWORKS, conditions, defined, events, like, schemas, sql, truth
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.events.encoding import Timestamp
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.constraints import COMPARE, NEGATED, OPERATORS_OF, Constraint, Filter
from rtfilter.predicates.predicate import Predicate, parse

LOG = Schema({"application": str, "severity": int})


def matching(subscriptions, event, schema=LOG):
    """Names of the subscriptions whose condition the event satisfies."""
    row = schema.read(event).row(0)
    return {name for name, source in subscriptions.items() if parse(source, schema).matches(row)}


# Examples of Novák 2013


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"application": "Apache Server", "severity": 5}, {"c1", "c2"}),
        ({"application": "PostgreSQL", "severity": 3}, set()),
        ({"application": "Apache Server", "severity": 2}, {"c1"}),
        ({"application": "PostgreSQL", "severity": 4}, {"c2"}),
        ({"application": "Apache Server"}, set()),
    ],
)
def test_example_of_two_severities(event, expected):
    subscriptions = {"c1": "application = 'Apache Server' AND severity >= 2", "c2": "severity >= 4"}
    assert matching(subscriptions, event) == expected


@cases(
    ("severity", "expected"),
    [(10, "123"), (7, "13"), (25, "1"), (3, "3"), (5, "3"), (20, "1")],
)
def test_example_of_three_comparisons(severity, expected):
    apache = "application = 'Apache Server' AND severity "
    subscriptions = {"1": apache + "> 5", "2": apache + "= 10", "3": apache + "< 20"}
    assert matching(subscriptions, {"application": "Apache Server", "severity": severity}) == set(expected)
    assert matching(subscriptions, {"application": "other", "severity": severity}) == set()


def test_example_of_a_chain_of_thresholds():
    subscriptions = {consumer: f"severity >= {consumer + 1}" for consumer in (1, 2, 3, 4)}
    assert matching(subscriptions, {"severity": 4}) == {1, 2, 3}


def test_example_of_counting():
    schema = Schema(
        {"type": str, "hostname": str, "application": str, "process": str, "severity": int}
        | {"occurrenceTime": datetime, "http.response": int}
    )
    event = {
        "type": "org.apache.httpd.request.GET",
        "hostname": "lykomedes.fi.muni.cz",
        "application": "Apache Server",
        "process": "httpd",
        "processId": 4219,
        "severity": 1,
        "id": 16051986,
        "occurrenceTime": "2012-04-11T08:25:13.129Z",
        "http": {"resource": "/apache_pb.gif", "protocol": "HTTP/1.0", "response": 200},
    }
    subscriptions = {
        "F1": "type = 'org.apache.httpd.request.GET'",
        "F2": "type = 'org.apache.httpd.request.POST'",
        "F3": "type = 'org.apache.httpd.request.GET' AND hostname = 'example.com'",
        "F4": "process = 'httpd' AND severity <= 2",
        "F5": "process = 'postgresql' AND severity > 3",
        "nested": {"http": {"response": [200]}},
        "time": "occurrenceTime < TIMESTAMP '2012-04-11T08:25:13.130Z'",
    }
    assert matching(subscriptions, event, schema) == {"F1", "F4", "nested", "time"}


def test_examples_of_single_constraints():
    assert Constraint("x", "<", 5).matches({"x": 2})
    assert not Constraint("x", "=", "httpd").matches({"x": "postgresql"})


# Meaning


@given(st.data())
@settings(max_examples=200)
def test_sql_means_what_a_naive_evaluator_says(data):
    types = data.draw(schemas())
    condition = data.draw(conditions(types))
    schema = Schema(types)
    predicate = parse(sql(condition), schema)
    for _ in range(4):
        event = data.draw(events(types))
        assert predicate.matches(event) == truth(condition, event, types)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150)
def test_not_is_the_complement_on_complete_events(data):
    types = data.draw(schemas())
    condition = data.draw(conditions(types))
    schema = Schema(types)
    predicate, negation = (parse(text, schema) for text in (sql(condition), sql(("not", condition))))
    for _ in range(4):
        event = data.draw(events(types, complete=True))
        if defined(condition, event, types):
            assert predicate.matches(event) is not negation.matches(event)


@cases("operator", [*COMPARE, "is null", "exists"])
def test_missing_and_ill_typed_values(operator):
    """A missing value satisfies only ``is null``, one of another type only ``exists``; nothing raises."""
    text = operator in COMPARE and operator not in OPERATORS_OF["number"]
    constant = "10.0.0.0/8" if text else ["x"] if operator in ("in", "not in") else 5
    constraint = Constraint("a", operator, constant)
    assert constraint.matches({}) == constraint.matches({"a": None}) == (operator == "is null")
    for odd in (True, [5], b"x", 1j, object(), np.timedelta64(5), 5 if text else {5}):
        assert constraint.matches({"a": odd}) == (operator == "exists")


@cases(("operator", "negated"), NEGATED.items())
def test_negation_is_mutual(operator, negated):
    assert NEGATED[negated] == operator


def test_integers_compare_exactly():
    """2**53 + 1 and 2**53 have the same coordinate, but they are not equal."""
    assert not Constraint("x", "=", 2**53).matches({"x": 2**53 + 1})
    assert Constraint("x", ">", 2**53).matches({"x": 2**53 + 1})
    assert Constraint("x", "in", [2**53 + 1]).matches({"x": np.int64(2**53 + 1)})


def test_nan_in_a_row_satisfies_only_presence():
    """Reading refuses NaN; a row made by hand must not match by accident."""
    row = {"x": float("nan")}
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        assert not Constraint("x", operator, 5).matches(row)
    assert not Constraint("x", "not in", [5]).matches(row)
    assert Constraint("x", "exists").matches(row)


def test_everything_and_nothing():
    assert Predicate.everything().matches({})
    assert not Predicate(()).matches({"x": 1})
    assert str(Predicate.everything()) == "TRUE"
    assert str(Predicate(())) == "FALSE"


def test_monotonicity():
    """Another constraint never adds a match."""
    constraints = [Constraint("x", ">", 2), Constraint("x", "<>", 5), Constraint("y", "exists")]
    for x, y in product([1, 3, 5, None], [1, None]):
        row = {"x": x, "y": y}
        results = [Filter(tuple(constraints[:n])).matches(row) for n in range(4)]
        assert results == sorted(results, reverse=True)


# Values


def test_constants_are_canonical():
    assert Constraint("t", "<", datetime(1970, 1, 1, 0, 0, 1)).value == Timestamp(1_000_000)
    assert type(Constraint("t", "<", date(1970, 1, 2)).value) is Timestamp
    assert type(Constraint("x", "<", np.float32(0.5)).value) is float
    assert type(Constraint("x", "<", np.int8(5)).value) is int
    assert Constraint("x", "in", [3, 1, 3]) == Constraint("x", "in", (1, 3))
    assert str(Constraint("x", "not in", [])) == "x NOT IN ()"


@cases(
    ("operator", "value", "message"),
    [
        ("~", 5, "unknown operator '~'"),
        ("<", float("nan"), "cannot be a constant"),
        ("<", float("inf"), "cannot be a constant"),
        ("<", None, "cannot be a constant"),
        ("=", [1], "cannot be a constant"),
        ("in", "abc", "need a collection"),
        ("in", 5, "need a collection"),
        ("prefix", 5, "prefix needs a string"),
        ("not like", 5, "not like needs a string"),
        ("ignore case", True, "ignore case needs a string"),
        ("like", "a\\b", "must be followed by %, _"),
        ("like", "a_" * 65, "at most 64 texts between _"),
        ("cidr", "10.0.0.0", "is no network; write one as"),
    ],
)
def test_unusable_constraints(operator, value, message):
    with pytest.raises(PredicateError, match=message):
        Constraint("x", operator, value)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=100)
def test_json_and_pickle_round_trips(data):
    types = data.draw(schemas())
    schema = Schema(types)
    predicate = parse(sql(data.draw(conditions(types))), schema)
    again = Predicate.from_json(json.loads(json.dumps(predicate.to_json())))
    assert again == predicate
    assert hash(again) == hash(predicate)
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    before, after = (
        [type(c.value) for f in one.filters for c in f.constraints if isinstance(c, Constraint)]
        for one in (predicate, again)
    )
    assert before == after
    assert parse(predicate, schema) == predicate


@cases("data", [5, [5], [[5]], [[["x"]]], [[["x", "<", 5, 5]]], [[["x", "<"]]], [[["x", "?", 5]]]])
def test_json_of_something_else(data):
    with pytest.raises(PredicateError):
        Predicate.from_json(data)


def test_str_is_readable():
    filters = (
        Filter((Constraint("price", "<", 10), Constraint("symbol", "prefix", "it's 5%"))),
        Filter((Constraint("a b", "in", [3, 1]), Constraint("t", "is null"), Constraint("ok", "=", True))),
    )
    assert str(Predicate(filters)) == (
        "(price < 10 AND symbol LIKE 'it''s 5\\%%') OR (\"a b\" IN (1, 3) AND t IS NULL AND ok = TRUE)"
    )


@cases(
    ("operator", "value", "same"),
    [
        ("like", "abc%", ("prefix", "abc")),
        ("like", "abc%%", ("prefix", "abc")),
        ("like", "a\\%c", ("=", "a%c")),
        ("not like", "a\\_%", ("not prefix", "a_")),
        ("not like", "", ("<>", "")),
        ("like", "a%_%%_", ("like", "a__%")),
        ("like", "%_", ("like", "_%")),
        ("like ignore case", "ABC", ("ignore case", "abc")),
        ("not like ignore case", "Straße\\%", ("not ignore case", "STRASSE%")),
        ("like ignore case", "ABC%", ("like ignore case", "abc%")),
        ("cidr", "10.1.2.3/8", ("cidr", "10.0.0.0/8")),
        ("cidr", "2001:0DB8:0:0::/32", ("cidr", "2001:db8::/32")),
    ],
)
def test_equal_tests_of_text_are_equal_constraints(operator, value, same):
    assert Constraint("x", operator, value) == Constraint("x", *same)
    schema = Schema({"x": str})
    parsed = parse(Predicate((Filter((Constraint("x", operator, value),)),)), schema)
    assert parse(str(parsed), schema) == parsed
    assert parsed.filters[0].constraints == (Constraint("x", *same),)


def test_tests_of_text_are_readable():
    constraints = [
        ("like", "a%c", "x LIKE 'a%c'"),
        ("not like", "it's_", "x NOT LIKE 'it''s_'"),
        ("ignore case", "ABC", "LOWER(x) = 'abc'"),
        ("not ignore case", "ABC", "LOWER(x) <> 'abc'"),
        ("like ignore case", "%C", "LOWER(x) LIKE '%c'"),
        ("not like ignore case", "%C", "LOWER(x) NOT LIKE '%c'"),
        ("cidr", "10.0.0.0/8", "CIDR(x, '10.0.0.0/8')"),
        ("not cidr", "::/0", "NOT CIDR(x, '::/0')"),
    ]
    for operator, value, text in constraints:
        assert str(Constraint("x", operator, value)) == text


# Checking against a schema


def test_what_was_parsed_is_not_parsed_anew():
    predicate = Predicate((Filter((Constraint("severity", ">", 5),)),))
    for source in ("severity > 5", {"severity": [5]}, predicate):
        parsed = parse(source, LOG)
        assert parse(parsed, LOG) is parsed


@pytest.mark.parametrize("copied", [copy, lambda one: pickle.loads(pickle.dumps(one)), replace])
def test_a_copy_is_parsed_anew(copied):
    """What it was checked against is no part of its value."""
    parsed = parse("severity > 5", LOG)
    assert copied(parsed) == parsed
    assert hash(copied(parsed)) == hash(parsed)
    again = parse(copied(parsed), LOG)
    assert again == parsed
    assert again is not parsed


def test_what_was_parsed_is_checked_against_another_schema():
    parsed = parse("application = '2024-05-31'", LOG)
    moment = Schema({"application": datetime})
    assert parse(parsed, moment) == parse("application = TIMESTAMP '2024-05-31'", moment)
    with pytest.raises(PredicateError, match="unknown attribute 'application'"):
        parse(parsed, Schema({"severity": int}))


def test_parse_of_a_predicate_fits_constants_to_the_schema():
    schema = Schema({"t": datetime})
    given_text = Predicate((Filter((Constraint("t", ">", "2024-05-31"),)),))
    parsed = parse(given_text, schema)
    assert parsed.matches({"t": datetime(2024, 6, 1, tzinfo=UTC)})
    assert parsed == parse("t > '2024-05-31'", schema)


@cases(
    ("constraint", "message"),
    [
        (Constraint("severty", "=", 5), "did you mean 'severity'"),
        (Constraint("severity", "=", "5"), "cannot be compared with the str '5'"),
        (Constraint("severity", "=", True), "cannot be compared with the bool True"),
        (Constraint("severity", "in", ["7"]), "cannot be compared with the str '7'"),
        (Constraint("severity", "prefix", "5"), "has no operator 'prefix'"),
        (Constraint("application", "=", 5), "cannot be compared with the int 5"),
        (Constraint("severity", "=", 10**400), "beyond float64"),
    ],
)
def test_parse_of_a_predicate_that_does_not_fit(constraint, message):
    with pytest.raises(PredicateError, match=message):
        parse(Predicate((Filter((constraint,)),)), LOG)


def test_parse_of_something_else():
    with pytest.raises(PredicateError, match="got list"):
        parse(["severity > 5"], LOG)


# Predicates as text

TYPES = {"number": float, "count": int, "text": str, "flag": bool, "moment": datetime}
WORDS_OF_SQL = [
    "select",
    "IN",
    "not",
    "Null",
    "when",
    "order by",
    "date",
    "timestamp",
    "escape",
    "case",
    "a.in",
]
INT64 = 2**63 - 1


@st.composite
def any_names(draw):
    """Names of every kind, also words of SQL."""
    part = st.text(min_size=1, max_size=6).map(lambda text: text.replace(".", "_"))
    parts = draw(st.lists(part | st.sampled_from(WORDS_OF_SQL), min_size=1, max_size=3))
    return draw(st.sampled_from(["a", "x.y", *WORDS_OF_SQL])) if draw(st.booleans()) else ".".join(parts)


def any_constants(kind):
    """Constants of every size and form."""
    if kind in (int, float):
        return st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False)
    if kind is datetime:
        return st.datetimes() | st.integers(-200_000 * 10**12, 200_000 * 10**12).map(
            lambda us: np.datetime64(us, "us")
        )
    if kind is str:
        return st.text(st.characters(codec=None) | st.sampled_from("'\"\\%_\n\r\0-/*;\ud800"), max_size=8)
    return st.booleans()


@st.composite
def any_predicates(draw):
    """A schema of one to three attributes, and a predicate over it."""
    names = draw(
        st.lists(any_names().filter(lambda name: name != "$or"), min_size=1, max_size=3, unique=True)
    )
    kinds = {name: draw(st.sampled_from(list(TYPES.values()))) for name in names}

    def constraint(name):
        constants = any_constants(kinds[name])
        forms = [
            st.tuples(st.sampled_from(["is null", "exists"])),
            st.tuples(st.sampled_from(["=", "<>"]), constants),
            st.tuples(st.sampled_from(["in", "not in"]), st.lists(constants, max_size=4)),
        ]
        if kinds[name] is not bool:
            forms.append(st.tuples(st.sampled_from(["<", "<=", ">", ">="]), constants))
        if kinds[name] is str:
            forms.append(st.tuples(st.sampled_from(["prefix", "not prefix"]), constants))
            forms.append(st.tuples(st.sampled_from(["ignore case", "not ignore case"]), constants))
            forms.append(st.tuples(st.sampled_from(["cidr", "not cidr"]), st.sampled_from(NETWORKS)))
            likes = st.lists(constants.map(like) | st.sampled_from("%_"), max_size=5).map("".join)
            names_of_like = [name for name in COMPARE if "like" in name]
            forms.append(st.tuples(st.sampled_from(names_of_like), likes))
        return st.one_of(forms).map(lambda form: Constraint(name, *form))

    conjunctions = st.lists(st.sampled_from(names).flatmap(constraint), max_size=3).map(
        lambda found: Filter(tuple(found))
    )
    return Schema(kinds), Predicate(tuple(draw(st.lists(conjunctions, max_size=3))))


@pytest.mark.slow
@given(any_predicates())
@settings(max_examples=150)
def test_the_text_of_a_predicate_is_an_sql_condition_that_means_the_same(case):
    schema, predicate = case
    assert parse(str(predicate), schema) == parse(predicate, schema)


@given(st.data())
@settings(max_examples=50)
def test_the_text_of_a_parsed_condition_is_read_again(data):
    schema = data.draw(schemas())
    parsed = parse(sql(data.draw(conditions(schema))), Schema(schema))
    assert parse(str(parsed), Schema(schema)) == parsed


@cases(
    ("name", "text"),
    [
        ("select", "select = 1"),
        ("date", "date = 1"),
        ("a.b", "a.b = 1"),
        ("in", '"in" = 1'),
        ("Null", '"Null" = 1'),
        ("url.not", '"url.not" = 1'),
        ("a b", '"a b" = 1'),
        ('a"b', '"a""b" = 1'),
        ("1a", '"1a" = 1'),
        ("ünï", "ünï = 1"),
    ],
)
def test_names_are_quoted_where_sql_needs_it(name, text):
    assert str(Constraint(name, "=", 1)) == text
    assert str(parse(text, Schema({name: int}))) == text


@pytest.mark.parametrize("us", [-INT64 // 2, -62_135_596_800_000_001, 253_402_300_800_000_000, INT64 // 2])
def test_timestamps_of_far_years_are_written_and_read(us):
    text = f"at = TIMESTAMP '{Timestamp(us)}'"
    assert str(parse(text, Schema({"at": datetime}))) == text
    assert parse(text, Schema({"at": datetime})).filters[0].constraints[0].value == us


def test_the_text_of_a_far_year_has_a_sign_and_six_digits():
    assert str(Timestamp(253_402_300_800_000_000)) == "+010000-01-01T00:00:00.000000Z"
    assert str(Timestamp(-62_167_219_200_000_001)) == "-000001-12-31T23:59:59.999999Z"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "in", [1, "a"]), "constants of one type"),
        (("x", "in", [1, True, 2.5]), "constants of one type"),
        ((5, "=", 1), "name is a string"),
        (("x", "=", Timestamp(2**63)), "cannot be a constant"),
    ],
)
def test_a_constraint_that_no_text_could_hold_is_refused(arguments, message):
    with pytest.raises(PredicateError, match=message):
        Constraint(*arguments)


@cases(
    "data",
    [
        [[["x", "=", {"us": "soon"}]]],
        [[["x", "=", {"us": 10**30}]]],
        [[["x", "=", {"us": None}]]],
        [[[5, "=", 1]]],
        [["xyz"]],
        [[["x", "in", 5]]],
        5,
        [5],
    ],
)
def test_json_that_is_no_predicate_is_refused(data):
    with pytest.raises(PredicateError):
        Predicate.from_json(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1}, timedelta(1)], ids=repr)
def test_a_predicate_alone_refuses_what_no_event_has(value):
    schema = Schema({"price": float, "other": float})
    for source in ("price IS NOT NULL", "ANY price > 5"):
        with pytest.raises(EventError, match="attribute 'price'"):
            Predicate.parse(source, schema).matches({"price": value})
        assert not Predicate.parse("price > 5", schema).matches({"other": value, "price": 1})
