"""Many predicates at once: each as if it were alone, in fewer steps."""

import json
import re
from datetime import datetime
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import predicate_cases
from cases import cases
from rtfilter import PredicateError, Schema
from rtfilter.predicates import predicate
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.language.pattern import parse_pattern
from rtfilter.predicates.language.sql import parse_sql
from rtfilter.predicates.predicate import parse
from rtfilter.predicates.stored.predicate_store import kept
from rtfilter.predicates.templates import many, template_constants
from rtfilter.predicates.templates.many import compile_many

SCHEMA = Schema({"price": float, "size": int, "symbol": str, "halted": bool, "at": datetime})
CONSTANT = re.compile(r"'(?:[^']|'')*'|(?<![\w.\"])[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?(?![\w.])")


def alone(source, schema):
    """What one predicate comes to: what is kept of it and its boxes, or its error."""
    try:
        predicate = parse(source, schema)
        boxes = compile_predicate(predicate, schema)
    except PredicateError as error:
        return str(error), error.attribute, error.source, error.position, error.reason
    return kept(predicate), *(side.tolist() for side in boxes)


def together(sources, schema):
    """The same of many."""
    found = [None] * len(sources)

    def refused(row, error):
        assert error.row == row
        told = str(error)
        assert told.startswith(f"row {row}, ")
        found[row] = (
            told.removeprefix(f"row {row}, "),
            error.attribute,
            error.source,
            error.position,
            error.reason,
        )

    made = compile_many(sources, schema, refused)
    owners = np.arange(len(made.rows)) if made.owners is None else made.owners
    for place, (row, one) in enumerate(zip(made.rows.tolist(), made.kept, strict=True)):
        own = owners == place
        found[row] = (one, *(side[own].tolist() for side in made.boxes))
    return found


def assert_same(sources, schema):
    for source, got in zip(sources, together(sources, schema), strict=True):
        wanted = alone(source, schema)
        assert got == wanted, source
        assert _written(got) == _written(wanted), source  # -0.0 is not 0.0


def _written(found):
    """Its repr, with sets in one order: -1 and -2 have the same hash."""
    return re.sub(r"frozenset\(\{(.*?)\}\)", lambda items: str(sorted(items[1].split(", "))), repr(found))


ODD = [
    "0",
    "0",
    "5",
    "5.0",
    "0.0",
    "1e3",
    "9007199254740993",
    "1e400",
    "012",
    "1.",
    ".5",
    "0x1F",
    "7L",
    "1" * 320,
]
ODD += [
    "''",
    "'a'",
    "'abcdefg'",
    "'it''s'",
    "'2024-05-31T12:00:00Z'",
    "'a%'",
    "'%a'",
    "'a_'",
    "'a\\%'",
    "NULL",
    "TRUE",
]


@st.composite
def with_other_constants(draw, text, constants):
    """A condition, of whose constants none, some or all are replaced."""
    rate, chance = draw(st.sampled_from([0.0, 0.5, 1.0])), draw(st.randoms(use_true_random=False))
    return CONSTANT.sub(lambda found: chance.choice(constants) if chance.random() < rate else found[0], text)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_each_is_as_if_it_were_alone(data):
    attributes = data.draw(predicate_cases.schemas())
    schema = Schema(attributes)
    texts = [predicate_cases.sql(data.draw(predicate_cases.conditions(attributes))) for _ in range(2)]
    constants = [found for text in texts for found in CONSTANT.findall(text)] + ODD
    sources = [data.draw(with_other_constants(text, constants)) for text in texts for _ in range(6)]
    assert_same(sources, schema)


ORDERS = ("<", "<=", "=", ">=", ">")
ODD_VALUES = [
    0,
    0.0,
    -0.0,
    5,
    5.0,
    2**53 + 1,
    -(2**53),
    1e308,
    10**400,
    float("nan"),
    True,
    None,
    "",
    "a",
    "%",
]
ODD_VALUES += [
    "abcdef",
    "abcdefg",
    "Straße",
    "a*",
    "*a",
    "a*b",
    "a**b",
    "a\\",
    "\\*a",
    "10.0.0.0/8",
    "\ud800",
]
ODD_VALUES += ["2024-05-31T12:00:00Z", "10.1.2.3/8", "=", "ABC*"]


def with_other_values(given, chance, rate, values):
    """A pattern, of whose constants some are replaced, mostly by others of the same type."""
    if isinstance(given, dict):
        return {name: with_other_values(inner, chance, rate, values) for name, inner in given.items()}
    if isinstance(given, list):
        return [with_other_values(inner, chance, rate, values) for inner in given]
    if given in ORDERS or chance.random() >= rate:
        return given
    alike = [value for value in values if type(value) is type(given)]
    return chance.choice(values if not alike or chance.random() < 0.1 else alike)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_each_pattern_is_as_if_it_were_alone(data):
    attributes = data.draw(predicate_cases.schemas())
    chance, values = data.draw(st.randoms(use_true_random=False)), ODD_VALUES + predicate_cases.STRINGS
    sources = []
    for _ in range(2):
        pattern, _ = data.draw(predicate_cases.patterns(attributes))
        rate = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
        sources += [with_other_values(pattern, chance, rate, values) for _ in range(6)]
    assert_same(sources, Schema(attributes))


PATTERNS = [
    {"symbol": ["{}"]},
    {"symbol": ["{}", "x{}"], "halted": [True]},
    {"symbol": [{"prefix": "{}"}], "price": [{"numeric": [">=", 1, "<", 2]}]},
    {"symbol": [{"suffix": "{}"}, None]},
    {"symbol": [{"wildcard": "{}*a"}]},
    {"symbol": [{"anything-but": {"wildcard": ["*{}*", "a*{}"]}}]},
    {"symbol": [{"equals-ignore-case": "A{}"}]},
    {"symbol": [{"prefix": {"equals-ignore-case": "A{}"}}, {"suffix": {"equals-ignore-case": "A{}"}}]},
    {"symbol": [{"anything-but": ["{}", "A"]}], "size": [{"anything-but": 5}]},
    {"symbol": [{"anything-but": {"prefix": "{}"}}]},
    {"symbol": [{"cidr": "10.0.0.0/8"}, {"exactly": "{}"}]},
    {"at": ["2024-05-31T12:00:00Z"], "size": [1, 2, {"numeric": ["=", 3]}]},
    {"cidr": ["{}"], "wildcard": ["{}*"]},
    {"suffix": ["{}", "a{}"], "equals-ignore-case": ["A{}"]},
    {"$or": [{"price": [1]}, {"url": {"path": [{"exists": False}], "host": ["{}"]}}]},
]


NAMED_AS_MATCHERS = dict.fromkeys(("cidr", "wildcard", "suffix", "equals-ignore-case"), str)


@cases("pattern", PATTERNS)
def test_odd_values_in_a_pattern(pattern):
    chance = Random(7)
    schema = Schema({**SCHEMA.attributes, **NAMED_AS_MATCHERS, "url.path": str, "url.host": str})
    assert_same([with_other_values(pattern, chance, 0.7, ODD_VALUES) for _ in range(40)], schema)


def test_each_pattern_template_is_parsed_twice(monkeypatch):
    parsed = []

    def counted(pattern, schema):
        parsed.append(pattern)
        return parse_pattern(pattern, schema)

    monkeypatch.setattr(predicate, "parse_pattern", counted)
    monkeypatch.setattr(template_constants, "parse_pattern", counted)
    schema = Schema({**SCHEMA.attributes, **NAMED_AS_MATCHERS, "url.path": str, "url.host": str})
    texts = list(map(json.dumps, PATTERNS))
    sources = [json.loads(text.replace("{}", str(k))) for k in range(4) for text in texts]
    assert_same(sources, schema)
    parsed.clear()
    compile_many(sources, schema)
    assert len(parsed) == 2 * len(PATTERNS)


def test_a_pattern_that_unfolds_into_a_huge_one_is_not_cut():
    pattern = {"price": [1]}
    for _ in range(40):
        pattern = {"$or": [pattern, pattern]}
    assert template_constants.cut(pattern) is None


TEMPLATES = [
    "price > {n}",
    "price BETWEEN {n} AND {m} AND size >= -{n}",
    "price > {n} AND price > {m}",
    "price = {n} OR price = {m} OR size < 3",
    "(price > {n} OR size > {n}) AND symbol = {s}",
    "symbol IN ({s}, {t}) AND NOT halted",
    "symbol IN ({s}, {t}, {s}) AND size NOT IN ({n}, {m}, 5)",
    "symbol LIKE {s} AND price < {n}",
    "symbol NOT LIKE ({s})",
    "symbol LIKE {s} ESCAPE {t}",
    "LOWER(symbol) = {s}",
    "symbol > {s} AND symbol <> {t}",
    "at >= {s} AND price <> {n}",
    "at < TIMESTAMP {s}",
    "price * {n} > {m} AND size < {n}",
    "price > {n} * {m}",
    "price > size AND size > {n}",
    "price > .5 AND size < {n}",
    "{n} < {m} AND price > 1",
    "{n} < price",
    '"price" > {n} AND "symbol" = {s}',
    "price > {n} -- {s}",
    "price > {n} AND /* {m} */ size < {m}",
    "prise > {n}",
    "price > {s}",
    "price >> {n}",
    "price > {n}{n}",
    "halted AND size IN ({n}, {m}, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)",
    "halted",
    "TRUE",
    "",
    "select > {n}",
    "price IS NULL OR size > {n}",
    "price > {n} AND price < 0",
    "size IN ({n}, {m})",
    "size IN ({n}, {m}) OR size IN ({m}, {n})",
    "price IN (0, -{n}) AND size = -{m}",
]


@pytest.mark.slow
@cases("template", TEMPLATES)
def test_odd_constants_in_a_template(template):
    chance = np.random.default_rng(7)
    sources = [
        template.format(**dict(zip("nmst", chance.choice(ODD, 4).tolist(), strict=True))) for _ in range(60)
    ]
    assert_same(sources, SCHEMA)


def test_equal_filters_are_kept_once_where_not_all_of_their_tests_have_constants():
    sources = [f"size = 1 AND price IS NULL OR size = {end} AND price IS NULL" for end in (1, 2)]
    assert_same(sources * 10, SCHEMA)


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "="])
def test_the_last_numbers_of_float64_in_a_template(operator):
    ends = ["-1.7976931348623157e308", "1.7976931348623157e308", "1.5"]
    assert_same([f"price {operator} {end}" for end in ends * 20], SCHEMA)


@pytest.mark.slow
def test_each_template_is_parsed_twice(monkeypatch):
    parsed = []

    def counted(source, schema):
        parsed.append(source)
        return parse_sql(source, schema)

    monkeypatch.setattr(predicate, "parse_sql", counted)
    monkeypatch.setattr(template_constants, "parse_sql", counted)
    good = [
        "price > {} AND size < {}",
        "symbol = '{}' OR price < {}",
        "symbol IN ('{}', 'x') AND size = {}",
        "symbol LIKE '{}%' AND at > '2024-05-31T12:00:0{}Z'",
    ]
    sources = [text.format(k, k % 10) for k in range(2000) for text in good]
    compile_many(sources, SCHEMA)
    assert len(parsed) == 2 * len(good)


def test_the_first_bad_row_is_told():
    sources = ["price > 1", "price > 2", "price > 3", "price > 4", "price > 1e999", "prise > 2"]
    with pytest.raises(PredicateError, match=r"row 4, .*1e\+?999|row 4, ") as error:
        compile_many(sources, SCHEMA)
    assert error.value.row == 4


def test_slices_are_put_together(monkeypatch):
    monkeypatch.setattr(many, "SLICE", 7)
    assert_same(
        [f"price > {k} OR size = {k % 3}" if k % 4 else f"symbol = 'a{k}'" for k in range(40)], SCHEMA
    )
