"""The normative page: each example of it and of `examples.md` is run, in both notations and through boxes."""

import json
import re
from pathlib import Path

import pytest

from cases import cases
from predicate_cases import inside
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.events import elements, nesting
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.predicates.boxes import compiling
from rtfilter.predicates.language import sql
from rtfilter.predicates.model import combine, constraints
from rtfilter.predicates.model.list_tests import Elements
from rtfilter.predicates.operands import expressions
from rtfilter.predicates.predicate import parse

PAGE = (Path(__file__).parents[2] / "docs" / "predicates.md").read_text(encoding="utf-8")
MORE = (Path(__file__).parent / "examples.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```([a-z-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(kind):
    """Blocks of one kind as lists of (key, text), with the line they are on."""
    params = []
    for name, page in (("page", PAGE), ("examples", MORE)):
        for found in BLOCK.finditer(page):
            if found[1] == kind:
                line = page.count("\n", 0, found.start()) + 1
                entries = [tuple(entry.split(": ", 1)) for entry in found[2].splitlines()]
                params.append(pytest.param(entries, id=f"{name}, line {line}"))
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
        return Elements(table.row(0), table.choices.lists[0], schema.fields).satisfy(parsed.filters)
    return parsed.satisfied_by(table.row(0))


def by_boxes(schema, source, event):
    """As an index does it: boxes first, the definition where they are not exact."""
    parsed = parse(source, schema)
    table = schema.read([{}, event])
    compiled = compiling.compile_predicate(parsed, schema)
    points = table.searched.points[1:]  # of an event with lists those of its choices
    hits = [
        exact for low, high, exact in zip(*compiled, strict=True) for one in points if inside(one, low, high)
    ]
    if table.choices is not None:
        return bool(hits) and Elements(table.row(1), table.choices.lists[1], schema.fields).satisfy(
            parsed.filters
        )
    return any(hits) or (bool(hits) and parsed.satisfied_by(table.row(1)))


def by_filter(schema, source, event):
    subscriptions = EventFilter(schema)
    subscriptions.subscribe(source)
    return subscriptions.match(event).tolist() == [0]


@pytest.mark.slow
@pytest.mark.parametrize("decide", [by_definition, by_boxes, by_filter])
@cases("entries", blocks("example"))
def test_example(entries, decide):
    schema = schema_of(entries)
    wanted = {"match": True, "no match": False}
    cases = [(wanted[key], text) for key, text in entries if key in wanted]
    assert cases
    assert sources(entries)
    for source in sources(entries):
        for matches, text in cases:
            assert decide(schema, source, json.loads(text)) == matches, f"{source} and {text}"


@cases("entries", blocks("error"))
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


def rows(heading):
    """The rows of all tables under a heading, as lists of cells with the texts in their code spans."""
    part = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines]
    return [[(cell, [span.replace("\\|", "|") for span in re.findall("`([^`]+)`", cell)]) for cell in row]
            for row in cells]  # fmt: skip


def source_of(span):
    return json.loads(span) if span.startswith("{") else span


OPERATORS = [row for row in rows("## Operators") if row[0][0] != "SQL"]
OUT = [row for row in rows("## What stays out of the published suites") if row[0][0] != "what"]


EVENTS = [{}, {"price": "x", "symbol": 5, "ok": 1}, {"ok": True}, {"ok": False}, {"at": "2126-01-01"}]
EVENTS += [{"price": value, "qty": 6} for value in (4, 5, 6, 7, 9, 10)]
EVENTS += [{"symbol": value} for value in ("ab", "AB", "axb", "abc", "b", "a", "", "10.0.0.1", "11.0.0.1")]


def test_every_row_of_the_tables_is_there():
    assert (len(OPERATORS), len(OUT)) == (28 + 5, 6)


@pytest.mark.slow
@cases("row", OPERATORS)
def test_operator(row):
    """All forms in a row of the first table mean the same, and each is searched as its row says."""
    schema = schema_of([])
    forms = [source_of(span) for cell in (row[0], row[1])[: len(row) - 1] for span in cell[1]]
    predicates = [parse(form, schema) for form in forms]
    if len(row) > 2:
        for at in range(len(EVENTS)):
            event = schema.read(EVENTS).row(at)
            assert len({predicate.matches(event) for predicate in predicates}) == 1, event
        assert sum(predicates[0].matches(schema.read(EVENTS).row(at)) for at in range(len(EVENTS))) > 0
    for predicate in predicates:
        compiled = compiling.compile_predicate(predicate, schema)
        found = "check" if compiling.unbounded(compiled, schema).any() else "box, check"
        assert row[-1][0] == ("box" if compiled.exact.all() else found)


@cases("row", OUT)
def test_what_stays_out(row):
    (_, (example,)), (_, (error,)) = row[3:]
    with pytest.raises(PredicateError, match=re.escape(error)):
        parse(source_of(example), schema_of([]))


def test_every_operator_is_in_the_table():
    schema, told = schema_of([]), set()
    for row in OPERATORS:
        for form in row[0][1]:
            for conjunction in parse(form, schema).filters:
                told |= {
                    one.operator for one in conjunction.constraints if isinstance(one, constraints.Constraint)
                }
    assert told == {*constraints.COMPARE, *constraints.PRESENCE}


def test_every_block_is_run():
    kinds = [found[1] for found in BLOCK.finditer(PAGE + MORE)]
    assert set(kinds) == {"schema", "example", "error", "event-error"}
    assert len(kinds) == (PAGE + MORE).count("```") // 2
    known = {"schema", "sql", "pattern", "match", "no match", "event", "message"}
    for kind in ("example", "error", "event-error"):
        for block in blocks(kind):
            assert {key for key, _ in block.values[0]} <= known


@cases(
    ("row", "value"),
    [
        ("conjunctions, after", combine.MAX_FILTERS),
        ("constants in", constraints.MAX_TERMS),
        ("boxes in", compiling.MAX_BOXES),
        ("boxes of one", compiling.MAX_SPLIT),
        ("characters", sql.MAX_LENGTH),
        ("operations of one", expressions.MAX_OPERATIONS),
        ("unbounded subscriptions", compiling.MAX_UNBOUNDED),
        ("levels of parentheses", combine.MAX_DEPTH),
        ("levels of objects", nesting.MAX_NESTING),
        ("choices of elements", elements.MAX_CHOICES),
    ],
)
def test_limits_are_those_of_the_code(row, value):
    assert re.search(rf"^\| {row}.* \| {value:,} \|$", PAGE, re.MULTILINE)
