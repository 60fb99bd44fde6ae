"""The normative page: every example in it is run, in both notations and through the boxes."""

import json
import re
from pathlib import Path

import pytest

from predicate_cases import inside
from rtfilter.errors import EventError, PredicateError
from rtfilter.events import elements, nesting
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.predicates import boxes, combine, expressions, model, sql
from rtfilter.predicates.elements import Elements
from rtfilter.predicates.parse import parse

PAGE = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```([a-z-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind):
    """Blocks of one kind as lists of (key, text), with the line they are on."""
    params = []
    for found in BLOCK.finditer(PAGE):
        if found[1] == kind:
            line = PAGE.count("\n", 0, found.start()) + 1
            entries = [tuple(entry.split(": ", 1)) for entry in found[2].splitlines()]
            params.append(pytest.param(entries, id=f"line {line}"))
    return params


def schema_of(entries):
    text = dict(entries).get("schema") or next(
        found[2] for found in BLOCK.finditer(PAGE) if found[1] == "schema"
    )
    return Schema.from_json([{"name": name, "type": kind} for name, kind in json.loads(text).items()])


def sources(entries):
    """The predicate in each notation of the block."""
    return [text if key == "sql" else json.loads(text) for key, text in entries if key in ("sql", "pattern")]


def by_definition(schema, source, event):
    parsed, table = parse(source, schema), schema.read(event)
    if table.choices is not None:
        return Elements(table.row(0), table.choices.lists[0]).satisfy(parsed)
    return parsed.matches(table.row(0))


def by_boxes(schema, source, event):
    """As an index does it: boxes first, the definition where they are not exact."""
    parsed = parse(source, schema)
    table = schema.read([{}, event])
    compiled = boxes.compile_predicate(parsed, schema)
    points = table.searched.points[1:]  # of an event with lists those of its choices
    hits = [
        exact for low, high, exact in zip(*compiled, strict=True) for one in points if inside(one, low, high)
    ]
    if table.choices is not None:
        return bool(hits) and Elements(table.row(1), table.choices.lists[1]).satisfy(parsed)
    return any(hits) or (bool(hits) and parsed.matches(table.row(1)))


def by_filter(schema, source, event):
    subscriptions = EventFilter(schema)
    subscriptions.subscribe(source)
    return subscriptions.match(event).tolist() == [0]


@pytest.mark.parametrize("decide", [by_definition, by_boxes, by_filter])
@pytest.mark.parametrize("entries", blocks("example"))
def test_example(entries, decide):
    schema = schema_of(entries)
    wanted = {"match": True, "no match": False}
    cases = [(wanted[key], text) for key, text in entries if key in wanted]
    assert cases
    assert sources(entries)
    for source in sources(entries):
        for matches, text in cases:
            assert decide(schema, source, json.loads(text)) == matches, f"{source} and {text}"


@pytest.mark.parametrize("entries", blocks("error"))
def test_error(entries):
    message = dict(entries)["message"]
    for source in sources(entries):
        with pytest.raises(PredicateError, match=re.escape(message)):
            parse(source, schema_of(entries))


@pytest.mark.parametrize("entries", blocks("event-error"))
def test_event_error(entries):
    found = dict(entries)
    with pytest.raises(EventError, match=re.escape(found["message"])):
        schema_of(entries).read(json.loads(found["event"]))


def test_every_block_is_run():
    kinds = [found[1] for found in BLOCK.finditer(PAGE)]
    assert set(kinds) == {"schema", "example", "error", "event-error"}
    assert len(kinds) == PAGE.count("```") // 2
    known = {"schema", "sql", "pattern", "match", "no match", "event", "message"}
    for kind in ("example", "error", "event-error"):
        for block in blocks(kind):
            assert {key for key, _ in block.values[0]} <= known


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("filters after", combine.MAX_FILTERS),
        ("constants in", model.MAX_TERMS),
        ("boxes in", boxes.MAX_BOXES),
        ("boxes of one", boxes.MAX_SPLIT),
        ("characters", sql.MAX_LENGTH),
        ("operations of one", expressions.MAX_OPERATIONS),
        ("subscriptions of a filter", boxes.MAX_UNBOUNDED),
        ("levels of parentheses", combine.MAX_DEPTH),
        ("levels of objects", nesting.MAX_NESTING),
        ("choices of elements", elements.MAX_CHOICES),
    ],
)
def test_limits_are_those_of_the_code(row, value):
    assert re.search(rf"^\| {row}.* \| {value:,} \|$", PAGE, re.MULTILINE)
