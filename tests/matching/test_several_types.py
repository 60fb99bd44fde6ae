"""Attributes of several types, and null as a value: every way to match gives what an oracle says."""

import json
import pickle
from contextlib import suppress
from datetime import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from kinds import EACH
from matching.test_json_text import narrow
from oracle import as_sets
from predicate_cases import ALIENS, POOLS, sql, truth, values
from predicate_cases import tests_of as leaves_of
from rtfilter import EventError, EventFilter, Predicate, PredicateError, Schema
from rtfilter.events.schema import Attribute

KINDS = (float, str, bool, datetime)
NAMES = ("a", "url.code", "é")
MISSING, NULL = "is missing", "is null"


@st.composite
def types(draw):
    """The types of a few attributes; None is that of null."""
    found = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, unique=True))
        found[name] = (*kinds, *draw(st.sampled_from([(), (None,)])))
    return found


def conditions(schema):
    """Conditions, as of `predicate_cases`; each leaf has the type of its constants before."""

    @st.composite
    def leaf(draw):
        name = draw(st.sampled_from(sorted(schema)))
        test = draw(st.sampled_from([MISSING, NULL, *["value"] * 6]))
        if test != "value":
            return (test, name)
        kind = draw(st.sampled_from([kind for kind in schema[name] if kind is not None]))
        return ("leaf", kind, draw(leaves_of(name, kind)))

    return st.recursive(
        leaf(),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=4,
    )


@st.composite
def events(draw, schema):
    """A flat event, with values of all types, of none, null, or without."""
    event = {"unrelated": None}
    for name, kinds in schema.items():
        kind = draw(st.sampled_from([kind for kind in kinds if kind is not None]))
        pool = values(kind) | st.sampled_from([*ALIENS[kind], None]) | st.sampled_from(POOLS[kind])
        if draw(st.integers(0, 5)):
            event[name] = draw(pool)
    return event


def text(condition):
    """The condition in SQL."""
    match condition:
        case ("leaf", _, leaf):
            return sql(leaf)
        case ("not", inner):
            return f"NOT ({text(inner)})"
        case ("and" | "or" as word, parts):
            return f" {word.upper()} ".join(f"({text(part)})" for part in parts)
    name = condition[1] if condition[1].isidentifier() else f'"{condition[1]}"'
    return f"{name} {condition[0].upper()}"


def holds(condition, event, schema, wanted=True):
    """Whether a condition or its negation holds: the obvious way."""
    match condition:
        case ("leaf", kind, leaf):
            return truth(leaf, event, {leaf[1]: kind}, wanted)
        case ("not", inner):
            return holds(inner, event, schema, not wanted)
        case ("and" | "or" as word, parts):
            found = [holds(part, event, schema, wanted) for part in parts]
            return all(found) if (word == "and") == wanted else any(found)
    name = condition[1]
    null = name in event and event[name] is None
    missing = name not in event or (null and None not in schema[name])
    return (missing or (condition[0] == NULL and null)) == wanted


def as_json(event):
    return json.dumps(
        {name: one.isoformat() if isinstance(one, datetime) else one for name, one in event.items()}
    )


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
@settings(max_examples=60)
@given(data=st.data())
def test_every_way_to_match_gives_what_the_types_say(matcher, data):
    kinds = data.draw(types())
    schema = Schema(kinds)
    drawn = data.draw(st.lists(conditions(kinds), min_size=1, max_size=5))
    batch = data.draw(st.lists(events(kinds), min_size=1, max_size=5))
    wanted = [{id for id, one in enumerate(drawn) if holds(one, event, kinds)} for event in batch]
    predicates = [Predicate.parse(text(one), schema) for one in drawn]
    assert [{id for id, one in enumerate(predicates) if one.matches(event)} for event in batch] == wanted
    filter = EventFilter(schema, matcher=matcher)
    filter.subscribe_many(list(map(text, drawn)))
    for each in (filter, pickle.loads(pickle.dumps(filter))):
        assert as_sets(each.match_batch(batch)) == wanted
        assert as_sets([each.match(event) for event in batch]) == wanted
    texts = list(map(as_json, batch))  # a moment becomes text, which both types may have
    told = [{id for id, one in enumerate(drawn) if holds(one, json.loads(given), kinds)} for given in texts]
    for _ in range(2 * ("\\ud800" not in "".join(texts))):  # which is no JSON
        assert as_sets(filter.match_batch(texts)) == told
        assert as_sets([filter.match(given) for given in texts]) == told
        # From now on, only the attributes that are asked for are read.
        narrow(filter)
    complete = pd.DataFrame({name: pd.Series([None] * len(batch), dtype=object) for name in kinds})
    for row, event in enumerate(batch):
        for name in kinds:
            complete.at[row, name] = event.get(name)
    rows = [{name: event.get(name) for name in kinds} for event in batch]
    cells = [{id for id, one in enumerate(drawn) if holds(one, row, kinds)} for row in rows]
    assert as_sets(filter.match_batch(complete)) == cells
    assert as_sets(filter.match_batch([tuple(row.values()) for row in rows])) == cells
    for one in predicates:
        assert Predicate.parse(str(one), schema) == one
        assert Predicate.parse(Predicate.from_json(one.to_json()), schema) == one
        with suppress(PredicateError):  # not all constraints have a form in patterns
            assert Predicate.parse(one.to_pattern(), schema) == one
        assert one.matches(batch[0]) == filter.explain(batch[0], predicates.index(one)).matched


@settings(max_examples=200)
@given(data=st.data())
def test_covering_is_never_wrong(data):
    kinds = data.draw(types())
    one, two = data.draw(conditions(kinds)), data.draw(conditions(kinds))
    first, second = (Predicate.parse(text(given), Schema(kinds)) for given in (one, two))
    for event in data.draw(st.lists(events(kinds), min_size=1, max_size=8)):
        if holds(two, event, kinds) and not holds(one, event, kinds):
            assert first.covers(second) is not True
        if holds(one, event, kinds) and holds(two, event, kinds):
            assert first.intersects(second) is not False


SCHEMA = Schema({"a": ["float", "str", "null"], "b": "int"})


@cases(
    ("outer", "inner", "expected"),
    [
        ("a IS NOT MISSING", "a = 5", (True, None)),
        ("a IS NULL", "a IS MISSING", (True,)),
        ("a < 6", "a = 5", (True,)),
        ("a = 'x'", "a = 5", (False,)),
        ("a IS MISSING", "a IS NULL", (False,)),
        ("a > 5", "a IS NULL", (False,)),
    ],
)
def test_a_predicate_covers_another_one(outer, inner, expected):
    assert Predicate.parse(outer, SCHEMA).covers(Predicate.parse(inner, SCHEMA)) in expected


PATTERNS = [
    ({"a": ["x", 3, None, {"prefix": "y"}]}, "3 'x' 'yy' null [null] [1,'x']"),
    ({"a": [None]}, "null [null]"),
    ({"a": [{"exists": False}]}, "absent []"),
    ({"a": [{"exists": True}]}, "3 4 'x' 'yy' null true [null] [1,'x']"),
    ({"a": [{"anything-but": ["x", 4]}]}, "3 'yy' [1,'x']"),
    ({"a": [{"anything-but": {"prefix": "y"}}]}, "'x' [1,'x']"),
    ({"a": [{"numeric": [">=", 3]}, {"suffix": "y"}]}, "3 4 'yy'"),
    ({"a": [{"any": [{"numeric": ["<", 3]}]}]}, "[1,'x']"),
]


@cases(("pattern", "matched"), PATTERNS)
def test_patterns_have_alternatives_of_several_types(pattern, matched):
    filter = EventFilter(SCHEMA)
    filter.subscribe(pattern)
    values = ("3", "4", "'x'", "'yy'", "null", "true", "absent", "[]", "[null]", "[1,'x']")
    batch = [{} if value == "absent" else {"a": json.loads(value.replace("'", '"'))} for value in values]
    verdicts = [value in matched.split() for value in values]
    for value, event, wanted in zip(values, batch, verdicts, strict=True):
        assert filter.match_batch([event]).any.tolist() == [wanted], value
        assert filter.match_batch(json.dumps(event)).any.tolist() == [wanted], value
        assert Predicate.parse(pattern, SCHEMA).matches(event) == wanted, value
    for part in (slice(None), slice(5)):  # with lists and other types, and without
        text = list(map(json.dumps, batch[part]))
        assert filter.match_batch(text).any.tolist() == verdicts[part]
        # From now on, only the attributes that are asked for are read.
        narrow(filter)
        assert filter.match_batch(text).any.tolist() == verdicts[part]


def test_subscriptions_of_one_template_have_constants_of_several_types():
    kinds = ["timestamp", "str", "float", "null"]
    schema = Schema({"a": kinds})
    constants = ["x", "2024-01-01", 3, 2.5, "2024", "y", "2024-01-02", 7, "z", "2024-01-03"]
    sources = [{"a": [one, other, None]} for one in constants for other in constants]
    sources += [f"a <> {one!r}" for one in constants]
    filter = EventFilter(schema)
    filter.subscribe_many(sources)
    predicates = [Predicate.parse(source, schema) for source in sources]
    assert [filter[id].predicate for id in range(len(sources))] == predicates
    batch = [{"a": one} for one in (*constants, None)]
    wanted = [{id for id, one in enumerate(predicates) if one.matches(event)} for event in batch]
    assert as_sets(filter.match_batch(batch)) == wanted


def test_a_constant_of_no_type_is_refused():
    with pytest.raises(
        PredicateError, match="'a' is a number or a string, it cannot be compared with the bool"
    ):
        Predicate.parse("a = TRUE", SCHEMA)
    assert str(Predicate.parse({"a": [True, 3]}, SCHEMA)) == "a IN (3)"


def test_null_in_a_list_of_objects_is_an_element():
    schema = Schema({"staff.name": ["str", "null"], "staff.role": "str"})
    filter = EventFilter(schema)
    filter.subscribe({"staff": {"name": [None], "role": ["bass"]}})
    filter.subscribe("staff.name IS MISSING AND staff.role = 'bass'")
    bob, none = {"name": "Bob", "role": "guitar"}, {"name": None, "role": "bass"}
    batch = [
        {"staff": [bob, none]},
        {"staff": [bob, {"role": "bass"}]},
        {"staff": [bob, bob | {"role": "bass"}]},
    ]
    assert as_sets(filter.match_batch(batch)) == [{0}, {1}, set()]
    assert as_sets([filter.match(json.dumps(event)) for event in batch]) == [{0}, {1}, set()]
    assert filter.explain(batch[0], 0).matched
    assert not filter.explain(batch[1], 0).matched


def test_a_null_cell_is_null_and_a_column_that_is_not_there_is_missing():
    filter = EventFilter(Schema({"a": ["float", "null"], "s": ["str", "null"], "b": "int"}))
    filter.subscribe_many(["a IS NULL AND a IS NOT MISSING", "a IS MISSING", "a > 1", "s IS NOT NULL"])
    table = pa.table({"a": [1.5, None], "s": [None, "x"]})
    for given_table in (table, table.to_pandas()):
        assert as_sets(filter.match_batch(given_table)) == [{2}, {0, 3}]
    assert as_sets(filter.match_batch(table.select(["s"]))) == [{1}, {1, 3}]
    masked = np.ma.MaskedArray([[2.0, 3.0]], mask=[[False, True]])
    only = EventFilter(Schema({"a": ["float", "null"], "b": ["float", "null"]}))
    only.subscribe_many(["a > 1 AND b IS NULL AND b IS NOT MISSING"])
    assert as_sets(only.match_batch(masked)) == [{0}]
    assert as_sets(only.match_batch(np.array([[2.0, 3.0]]))) == [set()]


def test_bounds_are_those_of_the_first_type():
    filter = EventFilter(Schema({"a": ["float", "str", "null"], "s": ["str", "null"], "b": "float"}))
    low, high = np.array([[1, -np.inf, 2]]), np.array([[5, np.inf, 2]])
    filter.subscribe_boxes(low=low, high=high)
    filter.subscribe_boxes(low={"a": [2**53 + 1]}, high={"a": [2**53 + 1]})
    batch = [{"a": 3, "b": 2}, {"a": "x", "b": 2}, {"a": 2**53 + 1}, {"a": 2**53}, {"a": 3, "b": 3}]
    assert as_sets(filter.match_batch(batch)) == [{0}, set(), {1}, set(), set()]
    assert str(filter[0].predicate) == "a >= 1.0 AND a <= 5.0 AND b = 2.0"


def test_a_value_of_any_of_the_types_is_nothing_odd():
    filter = EventFilter(Schema({"a": ["float", "str", "null"]}, strict=True))
    filter.match_batch([{"a": 1}, {"a": "x"}, {"a": None}, {}, {"a": [1, "x", None]}])
    with pytest.raises(EventError, match="'a' is a number or a string, and True is none"):
        filter.match({"a": True})
    with pytest.raises(EventError, match="unknown attribute 'a:str'"):
        filter.match({"a:str": "x"})


def test_a_filter_with_several_types_is_saved_and_grows(tmp_path):
    filter = EventFilter(SCHEMA)
    filter.subscribe({"a": [None, "x"]})
    filter.save(tmp_path / "saved")
    found = EventFilter.load(tmp_path / "saved")
    assert found.schema == SCHEMA
    found.add_attributes({"c": ["int", "null"]})
    found.subscribe({"c": [None]})
    batch = [{"a": None}, {"a": "x", "c": None}, {"c": 1}]
    assert as_sets(found.match_batch(batch)) == [{0}, {0, 1}, set()]
    assert list(found.schema.attributes) == ["a", "a:str", "a:null", "b", "c", "c:null"]
    assert found.schema.names == ("a", "b", "c")


@cases(
    ("entry", "message"),
    [
        (["float", "int"], "attribute 'a': the types float, int have the same values twice; keep one"),
        ([], "attribute 'a': a list of types needs at least one"),
        (["null"], "attribute 'a': the type 'null' is unknown"),
        ("null", "attribute 'a': the type 'null' is unknown"),
        (["float", "long"], "attribute 'a': the type 'long' is unknown"),
        (
            {"type": ["str", "null"], "low": 1},
            "attribute 'a': a domain needs one type of numbers or timestamps",
        ),
        ({"type": ["str", "null"], "lo": 1}, "attribute 'a': 'lo' is unknown"),
        (Attribute(str, of="b"), "attribute 'a' is of 'b', which is no other attribute"),
        ({"type": "str", "of": "b"}, "attribute 'a' is of 'b', which is no other attribute"),
    ],
)
def test_a_list_of_types_is_refused(entry, message):
    with pytest.raises(ValueError, match=message):
        Schema({"a": entry})


def test_a_name_for_a_further_type_must_be_free():
    both = {"a:str": "int", "a": ["float", "str"]}
    with pytest.raises(ValueError, match="'a:str', one for a further type; keep one"):
        Schema(both)
    with pytest.raises(ValueError, match="'a:str' occurs twice"):
        Schema.from_json(both)


def test_a_list_of_types_has_a_domain_and_a_json_form():
    schema = Schema({"a": {"type": ["str", "int", "null"], "low": 0}})
    assert Schema.from_json(schema.to_json()) == schema == Schema.from_json({"a": schema_entry()})
    with pytest.raises(EventError, match="outside its domain"):
        schema.read({"a": -1})
    assert len(schema.read([{"a": "x"}, {"a": None}])) == 2


def schema_entry():
    return {"type": ["str", "int", "null"], "low": 0}


def test_quantifiers_are_about_one_type():
    with pytest.raises(PredicateError, match="one attribute"):
        Predicate.parse({"a": [{"none": ["x", 3]}]}, SCHEMA)


def test_an_attribute_without_null_is_missing_where_it_is_null():
    schema = Schema({"x": float})
    for condition in ("x IS MISSING", "x IS NULL"):
        assert str(Predicate.parse(condition, schema)) == "x IS NULL"
    assert str(Predicate.parse("x IS NOT MISSING", schema)) == "x IS NOT NULL"


def test_what_is_satisfied_by_null_is_related():
    filter = EventFilter(Schema({"x": ["float", "null"]}))
    filter.subscribe_many(["x IS NOT MISSING", "x IS NULL", "x IS NOT NULL"])
    present = filter.related("x IS NOT MISSING")
    assert present.covers.ids.tolist() == present.equal.ids.tolist() == [0]
    assert present.covered.ids.tolist() == [0, 2]
    assert filter.related("x IS NULL AND x IS NOT MISSING").covers.ids.tolist() == [0, 1]


@pytest.mark.parametrize("bounds", [{"x:null": [1]}, {"x": [1], "x:null": [1]}])
def test_further_types_have_no_bounds(bounds):
    filter = EventFilter(Schema({"x": ["float", "null"], "y": int}))
    with pytest.raises(
        PredicateError, match="'x:null' is a further type of an attribute, which has no bounds"
    ):
        filter.subscribe_boxes(bounds, bounds)
    named = {f"{side}.{name}": cells for name, cells in bounds.items() for side in ("low", "high")}
    with pytest.raises(
        PredicateError, match="'x:null' is a further type of an attribute, which has no bounds"
    ):
        filter.subscribe_many(named)
