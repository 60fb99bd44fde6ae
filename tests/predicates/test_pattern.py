"""Event patterns: what they mean, that SQL agrees, and how everything else is refused."""

import math
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import events, patterns, schemas, sql, truth
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.combine import MAX_DEPTH
from rtfilter.predicates.predicate import parse

SCHEMA = Schema(
    {"price": float, "symbol": str, "ok": bool, "at": datetime, "url.resource": str, "url.code": int}
)


@cases(
    ("pattern", "same"),
    [
        ({"symbol": ["A"]}, "symbol = 'A'"),
        ({"symbol": ["A", "B"]}, "symbol IN ('A', 'B')"),
        ({"symbol": ("A", "B")}, "symbol IN ('A', 'B')"),
        ({"price": [1, 2.5]}, "price IN (1, 2.5)"),
        ({"ok": [True]}, "ok = TRUE"),
        ({"at": ["2024-05-31T12:00Z"]}, "at = TIMESTAMP '2024-05-31T12:00Z'"),
        ({"symbol": [None]}, "symbol IS NULL"),
        ({"symbol": [None, "A"]}, "symbol IS NULL OR symbol IN ('A')"),
        ({"price": [{"numeric": [">", 10]}]}, "price > 10"),
        ({"price": [{"numeric": [">", 10, "<=", 20]}]}, "price > 10 AND price <= 20"),
        ({"price": [{"numeric": ["=", 10]}]}, "price = 10"),
        ({"at": [{"numeric": ["<", "2024-05-31"]}]}, "at < '2024-05-31'"),
        ({"symbol": [{"prefix": "ab"}]}, "symbol LIKE 'ab%'"),
        ({"symbol": [{"prefix": ""}]}, "symbol LIKE '%'"),
        ({"symbol": [{"anything-but": "A"}]}, "symbol <> 'A'"),
        ({"symbol": [{"anything-but": ["A", "B"]}]}, "symbol NOT IN ('A', 'B')"),
        ({"symbol": [{"anything-but": {"prefix": "ab"}}]}, "symbol NOT LIKE 'ab%'"),
        ({"symbol": [{"suffix": "a_b"}]}, "symbol LIKE '%a\\_b'"),
        ({"symbol": [{"suffix": ""}]}, "symbol LIKE '%'"),
        ({"symbol": [{"wildcard": "a*b*c"}]}, "symbol LIKE 'a%b%c'"),
        ({"symbol": [{"wildcard": "a%\\*\\\\*"}]}, "symbol LIKE 'a\\%*\\\\%'"),
        ({"symbol": [{"wildcard": "he*\\**"}]}, "symbol LIKE 'he%*%'"),
        ({"symbol": [{"wildcard": "abc"}]}, "symbol = 'abc'"),
        ({"symbol": [{"shellstyle": "a\\*b"}]}, "symbol LIKE 'a\\\\%b'"),
        ({"symbol": [{"equals-ignore-case": "AbC"}]}, "LOWER(symbol) = 'abc'"),
        ({"symbol": [{"prefix": {"equals-ignore-case": "A%"}}]}, "LOWER(symbol) LIKE 'a\\%%'"),
        ({"symbol": [{"suffix": {"equals-ignore-case": "AB"}}]}, "LOWER(symbol) LIKE '%ab'"),
        ({"symbol": [{"exactly": "a*"}]}, "symbol = 'a*'"),
        (
            {"symbol": [{"cidr": "10.0.0.0/8"}, {"cidr": "::1/128"}]},
            "CIDR(symbol, '10.0.0.0/8') OR CIDR(symbol, '::1/128')",
        ),
        (
            {"symbol": [{"anything-but": {"prefix": ["a", "b"]}}]},
            "symbol NOT LIKE 'a%' AND symbol NOT LIKE 'b%'",
        ),
        ({"symbol": [{"anything-but": {"suffix": "a"}}]}, "symbol NOT LIKE '%a'"),
        (
            {"symbol": [{"anything-but": {"wildcard": ["a*b", "c"]}}]},
            "symbol NOT LIKE 'a%b' AND symbol <> 'c'",
        ),
        (
            {"symbol": [{"anything-but": {"equals-ignore-case": ["A", "b"]}}]},
            "LOWER(symbol) NOT IN ('a', 'b')",
        ),
        ({"symbol": [{"anything-but": {"cidr": "10.0.0.0/8"}}]}, "NOT CIDR(symbol, '10.0.0.0/8')"),
        ({"symbol": ["A", 5, True, {"numeric": [">", 1]}]}, "symbol IN ('A')"),
        ({"price": ["A", 5, {"prefix": "a"}, {"wildcard": "*a"}, {"cidr": "::/0"}]}, "price IN (5)"),
        ({"price": [{"suffix": "a"}, {"numeric": [">", 1]}]}, "price > 1"),
        ({"price": ["A", None]}, "price IS NULL"),
        ({"ok": ["true", True]}, "ok IN (TRUE)"),
        ({"at": [5, "2024-05-31", {"prefix": "2024"}]}, "at IN (TIMESTAMP '2024-05-31')"),
        ({"price": [{"anything-but": 5}]}, "price <> 5"),
        ({"symbol": [{"exists": True}]}, "symbol IS NOT NULL"),
        ({"symbol": [{"exists": False}]}, "symbol IS NULL"),
        ({"symbol": ["A"], "price": [1]}, "symbol = 'A' AND price = 1"),
        ({"price": [{"numeric": ["<", 1]}, {"numeric": [">", 5]}]}, "price < 1 OR price > 5"),
        ({"url": {"resource": ["/a"], "code": [200]}}, "url.resource = '/a' AND url.code = 200"),
        ({"url.resource": ["/a"], "url": {"code": [200]}}, "url.resource = '/a' AND url.code = 200"),
        ({"$or": [{"symbol": ["A"]}, {"price": [1]}]}, "symbol = 'A' OR price = 1"),
        (
            {"ok": [True], "$or": [{"symbol": ["A"]}, {"price": [1]}]},
            "ok = TRUE AND (symbol = 'A' OR price = 1)",
        ),
        ({"url": {"$or": [{"code": [1]}, {"resource": ["/"]}]}}, "url.code = 1 OR url.resource = '/'"),
        ({"$or": []}, "FALSE"),
    ],
)
def test_meaning(pattern, same):
    assert set(parse(pattern, SCHEMA).filters) == set(parse(same, SCHEMA).filters)


def test_an_empty_list_matches_nothing():
    predicate = parse({"symbol": []}, SCHEMA)
    assert not any(predicate.matches({"symbol": value}) for value in ("", "A", None))


@cases(
    ("pattern", "message", "path"),
    [
        ({}, "use Predicate.everything", "$"),
        ({"url": {}}, "use Predicate.everything", "$.url"),
        ({"$or": [{"symbol": ["A"]}, {}]}, "use Predicate.everything", "$.$or[1]"),
        ({"symbol": "A"}, "expected a list of alternatives; got 'A'", "$.symbol"),
        ({"symbol": None}, "expected a list of alternatives; got None", "$.symbol"),
        ({"symbol": {"wildcard": "A"}}, 'put the matcher into a list: {"symbol": [{"wildcard": ...}]}', "$"),
        ({"symbol": {"prefix": "A"}}, 'put the matcher into a list: {"symbol": [{"prefix": ...}]}', "$"),
        ({"symbl": ["A"]}, "did you mean 'symbol'", "$.symbl[0]"),
        ({"symbl": []}, "did you mean 'symbol'", "$.symbl"),
        ({"url": {"cod": [1]}}, "unknown attribute 'url.cod'; did you mean 'url.code'", "$.url.cod[0]"),
        ({"symbol": [5, True]}, "cannot be compared with the int 5", "$.symbol[0]"),
        (
            {"symbol": [{"numeric": [">", 1]}, 5]},
            "numeric needs an attribute of numbers",
            "$.symbol[0].numeric",
        ),
        ({"price": ["1", {"suffix": "1"}]}, "cannot be compared with the str '1'", "$.price[0]"),
        ({"price": [{"suffix": 5}, 5]}, "suffix needs text; got 5", "$.price[0].suffix"),
        ({"price": [{"anything-but": "5"}, 5]}, "compared with the str '5'", "$.price[0].anything-but"),
        ({"price": [{"anything-but": ["5"]}, 5]}, "the str '5'", "$.price[0].anything-but[0]"),
        ({"price": [{"anything-but": {"suffix": "5"}}, 5]}, "no operator", "$.price[0].anything-but.suffix"),
        ({"price": [{"numeric": ["=", "5"]}, 5]}, "the str '5'", "$.price[0].numeric[1]"),
        ({"at": ["soon", "2024-05-31"]}, "is not an ISO 8601", "$.at[0]"),
        ({"price": [True]}, "cannot be compared with the bool True", "$.price[0]"),
        ({"price": ["1"]}, "cannot be compared with the str '1'", "$.price[0]"),
        ({"price": [math.nan]}, "cannot be compared with NaN", "$.price[0]"),
        ({"price": [1, math.inf]}, "beyond float64", "$.price[1]"),
        ({"price": [[1]]}, "cannot be compared with the list [1]", "$.price[0]"),
        ({"price": [{"numeric": [">", math.nan]}]}, "NaN", "$.price[0].numeric[1]"),
        ({"price": [{"numeric": [">"]}]}, "needs a list of operators", "$.price[0].numeric"),
        ({"price": [{"numeric": []}]}, "needs a list of operators", "$.price[0].numeric"),
        ({"price": [{"numeric": {">": 1}}]}, "needs a list of operators", "$.price[0].numeric"),
        ({"price": [{"numeric": ["!=", 1]}]}, "expected one of <, <=, =", "$.price[0].numeric[0]"),
        ({"price": [{"numeric": [["<"], 1]}]}, "expected one of <, <=, =", "$.price[0].numeric[0]"),
        (
            {"symbol": [{"numeric": [">", 1]}]},
            "numbers or timestamps; 'symbol' is not",
            "$.symbol[0].numeric",
        ),
        ({"price": [{"prefix": "1"}]}, "has no operator 'prefix'", "$.price[0].prefix"),
        ({"symbol": [{"prefix": 1}]}, "prefix needs text; got 1", "$.symbol[0].prefix"),
        ({"symbol": [{"prefix": ["a"]}]}, "prefix needs text; got ['a']", "$.symbol[0].prefix"),
        ({"symbol": [{"prefix": {"wildcard": "a"}}]}, "got ['wildcard']", "$.symbol[0].prefix"),
        (
            {"symbol": [{"suffix": {"equals-ignore-case": 5}}]},
            "suffix needs text; got 5",
            "$.symbol[0].suffix.equals-ignore-case",
        ),
        (
            {"symbol": [{"equals-ignore-case": ["a"]}]},
            "needs text; got ['a']",
            "$.symbol[0].equals-ignore-case",
        ),
        ({"symbol": [{"wildcard": "a**b"}]}, "wildcard has no two * side by side", "$.symbol[0].wildcard"),
        (
            {"symbol": [{"shellstyle": "**"}]},
            "shellstyle has no two * side by side",
            "$.symbol[0].shellstyle",
        ),
        ({"symbol": [{"wildcard": "a\\b"}]}, "must be followed by * or a backslash", "$.symbol[0].wildcard"),
        ({"symbol": [{"wildcard": "a\\"}]}, "must be followed by * or a backslash", "$.symbol[0].wildcard"),
        ({"symbol": [{"cidr": "10.0.0.0"}]}, "'10.0.0.0' is no network", "$.symbol[0].cidr"),
        (
            {"symbol": [{"anything-but": {"wildcard": []}}]},
            "at least one text",
            "$.symbol[0].anything-but.wildcard",
        ),
        (
            {"symbol": [{"anything-but": {"suffix": ["a", 5]}}]},
            "needs text; got 5",
            "$.symbol[0].anything-but.suffix[1]",
        ),
        ({"symbol": [{"exists": 1}]}, "exists needs true or false", "$.symbol[0].exists"),
        ({"symbol": [{"anything-but": []}]}, "at least one value", "$.symbol[0].anything-but"),
        ({"symbol": [{"anything-but": None}]}, "use IS NULL or exists", "$.symbol[0].anything-but"),
        ({"symbol": [{"anything-but": ["A", 1]}]}, "the int 1", "$.symbol[0].anything-but[1]"),
        ({"symbol": [{"anything-but": {"exists": True}}]}, "got ['exists']", "$.symbol[0].anything-but"),
        ({"symbol": [{"anything-but": {"prefix": 1}}]}, "text; got 1", "$.symbol[0].anything-but.prefix"),
        ({"symbol": [{"regexp": "A"}]}, "'regexp' is not supported; supported are numeric", "$.symbol[0]"),
        ({"symbol": [{"prefix": "A", "exists": True}]}, "exactly one key; got 2", "$.symbol[0]"),
        ({"symbol": [{}]}, "exactly one key; got 0", "$.symbol[0]"),
        ({"$or": {"symbol": ["A"]}}, "expected a list", "$.$or"),
        ({"$or": ["symbol"]}, "expected a pattern; got 'symbol'", "$.$or[0]"),
        ({5: ["A"]}, "attribute names are strings; got 5", "$"),
    ],
)
def test_refusals(pattern, message, path):
    with pytest.raises(PredicateError) as caught:
        parse(pattern, SCHEMA)
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"(at {path})")


def test_deep_nesting_is_refused():
    for wrap in (lambda inner: {"a": inner}, lambda inner: {"$or": [inner]}):
        pattern = {"symbol": ["A"]}
        for _ in range(10_000):
            pattern = wrap(pattern)
        with pytest.raises(PredicateError, match=f"nested deeper than {MAX_DEPTH}"):
            parse(pattern, SCHEMA)


def test_exponential_patterns_are_refused():
    attributes = {f"a{i}": [1, None] for i in range(30)}
    with pytest.raises(PredicateError, match="more than 10\\*\\*9 alternatives"):
        parse(attributes, Schema(dict.fromkeys(attributes, int)))


def test_shared_parts_are_refused_before_they_unfold():
    """It would take 2**30 visits. Equal alternatives are dropped, so counting these is not enough."""
    pattern = {"symbol": ["A"]}
    for _ in range(30):
        pattern = {"$or": [pattern, pattern]}
    with pytest.raises(PredicateError, match="more than 10000 objects"):
        parse(pattern, SCHEMA)


def test_large_sets_are_refused():
    with pytest.raises(PredicateError, match=r"a set of 20000 constants.*at \$\.price"):
        parse({"price": list(range(20_000))}, SCHEMA)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_patterns_sql_and_a_naive_evaluator_agree(data):
    types = data.draw(schemas())
    schema = Schema(types)
    pattern, condition = data.draw(patterns(types))
    try:
        by_pattern, by_sql = parse(pattern, schema), parse(sql(condition), schema)
    except PredicateError as error:
        if "alternatives" in error.message:
            return
        raise
    for _ in range(4):
        event = data.draw(events(types))
        assert by_pattern.matches(event) == by_sql.matches(event) == truth(condition, event, types)


KEYS = ["symbol", "price", "url", "code", "$or", "numeric", "prefix", "anything-but", "exists", "suffix"]
KEYS += ["wildcard", "equals-ignore-case", "cidr", "exactly"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["symbol", "price", "url", "$or"]), JSON, max_size=3))
@settings(max_examples=300)
def test_any_mapping_is_a_predicate_or_a_predicate_error(pattern):
    try:
        parse(pattern, SCHEMA)
    except PredicateError as error:
        str(error)
