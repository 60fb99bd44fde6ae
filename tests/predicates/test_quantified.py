"""What ANY, ALL and NONE mean, how they are written, searched, explained, and what they cover."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import (
    ALIENS,
    as_condition,
    as_pattern,
    nested,
    pattern_leaves,
    quantified,
    sql,
    truth,
    values,
)
from rtfilter import EventFilter, Predicate, PredicateError, Schema
from rtfilter.filter import part_of
from rtfilter.predicates.model.constraints import Constraint, Filter, Quantified
from rtfilter.subscriptions.checks import ASK, NO, YES, Checks

TYPES = {"price": float, "symbol": str, "ok": bool}
SCHEMA = Schema(TYPES)
STAFF = Schema({"tags": str, "x": float, "staff.name": str, "staff.role": str})


def p(source, schema=STAFF):
    return Predicate.parse(source, schema)


def lists(kind):
    """A value or a list of values, with nulls, values of another type and lists in it."""
    one = (
        values(kind)
        | values(kind)
        | st.sampled_from([None, *(o for o in ALIENS[kind] if type(o) is not set)])
    )
    return one | st.lists(one | st.lists(one, max_size=2), max_size=4)


EVENTS = st.fixed_dictionaries({}, optional={name: lists(kind) for name, kind in TYPES.items()})


@st.composite
def patterns(draw):
    """A pattern of one attribute with a quantifier, and the same as a condition."""
    name = draw(st.sampled_from(sorted(TYPES)))
    leaf = draw(pattern_leaves(name, TYPES[name]).filter(lambda leaf: leaf[0] in ("any", "all", "none")))
    return {name: as_pattern(leaf)}, as_condition(leaf)


CONDITIONS = st.recursive(quantified(TYPES), nested, max_leaves=3)


@pytest.mark.slow
@settings(max_examples=150)
@given(CONDITIONS.map(lambda one: (sql(one), one)) | patterns(), st.lists(EVENTS, min_size=1, max_size=3))
def test_quantifiers_mean_what_a_naive_evaluator_says(drawn, batch):
    source, condition = drawn
    filter = EventFilter(SCHEMA, max_unbounded=None)
    filter.subscribe(source)
    wanted = [truth(condition, event, TYPES) for event in batch]
    assert [p(source, SCHEMA).matches(event) for event in batch] == wanted
    assert filter.match_batch(batch).any.tolist() == wanted
    assert [filter.explain(event, 0).matched for event in batch] == wanted


@cases(
    ("condition", "same"),
    [
        ("NOT ANY x = 5", "NONE x = 5"),
        ("NOT NONE x = 5", "ANY x = 5"),
        ("NOT ALL x < 5", "ANY x >= 5"),
        ("ALL x <> 5", "NONE x = 5"),
        ("NONE x > 5", "ALL x <= 5"),
        ("ANY (x = 1 OR x = 2)", "ANY x = 1 OR ANY x = 2"),
        ("NONE (x = 1 OR x = 2)", "NONE x = 1 AND NONE x = 2"),
        ("ALL x BETWEEN 1 AND 3", "ALL x >= 1 AND ALL x <= 3"),
        ("ALL (x = 1 OR x = 2)", "ALL x IN (1, 2)"),
        ("all not x in (1, 2)", "none x in (2, 1)"),
        ("ANY (x < 3 AND x >= 1)", "ANY (x >= 1 AND x < 3)"),
        ("ANY 5 < x", "ANY x > 5"),
    ],
)
def test_equal_tests_are_equal(condition, same):
    assert p(condition) == p(same)


@cases(
    ("condition", "text", "pattern"),
    [
        ("any tags = 'a'", "ANY tags = 'a'", {"tags": [{"any": ["a"]}]}),
        ("ALL tags <> 'a'", "NONE tags = 'a'", {"tags": [{"none": ["a"]}]}),
        (
            "ANY x BETWEEN 1 AND 3",
            "ANY x BETWEEN 1 AND 3",
            {"x": [{"any": [{"numeric": [">=", 1, "<=", 3]}]}]},
        ),
        (
            "NONE x BETWEEN 1 AND 3",
            "NONE x BETWEEN 1 AND 3",
            {"x": [{"all": [{"numeric": [">", 3]}, {"numeric": ["<", 1]}]}]},
        ),
        (
            "ALL (tags = 'a' OR tags LIKE 'b%')",
            "ALL (tags = 'a' OR tags LIKE 'b%')",
            {"tags": [{"all": [{"exactly": "a"}, {"prefix": "b"}]}]},
        ),
        ("ALL NOT CIDR(tags, '::/0')", "NONE CIDR(tags, '::/0')", {"tags": [{"none": [{"cidr": "::/0"}]}]}),
        (
            "ANY NOT CIDR(tags, '::/0')",
            "ANY NOT CIDR(tags, '::/0')",
            {"tags": [{"any": [{"anything-but": {"cidr": "::/0"}}]}]},
        ),
    ],
)
def test_quantifiers_are_written_and_read_again(condition, text, pattern):
    predicate = p(condition)
    assert predicate.to_sql() == text
    assert predicate.to_pattern() == pattern
    assert p(text) == p(pattern) == predicate
    assert p(Predicate.from_json(json.loads(json.dumps(predicate.to_json())))) == predicate


def test_several_matchers_of_one_element_have_no_form_as_a_pattern():
    with pytest.raises(PredicateError, match="in patterns an element has one matcher"):
        p("ANY (tags LIKE 'a%' AND tags LIKE '%b')").to_pattern()


def test_a_quantifier_is_a_name_where_no_operand_follows():
    schema = Schema({"any": int, "all": bool, "none": str})
    text = "any IN (1, 2) AND all = TRUE AND none IS NULL AND ANY any = 5 AND NONE none = 'a'"
    assert str(p(text, schema)) == text
    assert p("all AND NOT all AND ALL all", schema) == p(
        "all = TRUE AND all <> TRUE AND ALL all = TRUE", schema
    )
    assert p("any NOT IN (1) AND ANY NOT any IN (1)", schema) == p(
        "any NOT IN (1) AND ANY any NOT IN (1)", schema
    )


@cases(
    "condition",
    [
        "ANY tags IS NULL",
        "ALL x IS NOT NULL",
        "ANY (x > 5 AND tags = 'a')",
        "ALL x * 2 > 5",
        "NONE x > x",
        "NONE TRUE",
        "ANY FALSE",
        "ANY ALL x > 5",
    ],
)
def test_what_is_no_test_of_one_attribute_is_refused(condition):
    with pytest.raises(
        PredicateError, match="any, all and none need a constraint of one attribute"
    ) as caught:
        p(condition)
    assert caught.value.position == 0


@cases(
    "pattern",
    [
        {"tags": [{"any": [None]}]},
        {"tags": [{"all": [{"exists": True}]}]},
        {"tags": [{"none": [{"any": ["a"]}]}]},
        {"tags": [{"any": "a"}]},
    ],
)
def test_patterns_that_are_no_test_of_elements_are_refused(pattern):
    with pytest.raises(PredicateError, match=r"\(at \$\.tags\[0\]\.(any|all|none)\)"):
        p(pattern)


@cases(
    ("quantifier", "tests"),
    [
        ("some", [Constraint("x", "=", 1)]),
        ("any", []),
        ("any", [Constraint("x", "exists")]),
        ("all", [Constraint("x", "=", 1), Constraint("y", "=", 1)]),
        ("all", ["x"]),
    ],
)
def test_unusable_parts(quantifier, tests):
    with pytest.raises(PredicateError, match="quantifier"):
        Quantified(quantifier, tests)


def test_elements_of_all_objects_count_whichever_is_chosen():
    event = {"staff": [{"name": "Ann", "role": ["bass", "drums"]}, {"name": "Bob", "role": "vocals"}]}
    assert p("staff.name = 'Ann' AND ANY staff.role = 'vocals'").matches(event)
    assert not p("staff.name = 'Ann' AND staff.role = 'vocals'").matches(event)
    assert not p("staff.name = 'Bob' AND ALL staff.role = 'vocals'").matches(event)
    assert p("staff.name = 'Bob' AND NONE staff.role = 'guitar'").matches(event)


def test_of_events_without_lists_boxes_and_compiled_checks_decide():
    """Nothing is asked of Python, whatever was compiled for events with lists."""
    predicate = p("ANY tags = 'a long text' AND ALL x > 5")
    target, one = Checks(STAFF), np.zeros(1, np.int64)
    events = [
        {"tags": "a long text", "x": 6},
        {"tags": "a long tent", "x": 6},
        {"tags": ["a long text"] * 2, "x": 6},
    ]
    found = [
        target.decide(one, one, STAFF.read([event]), None, lambda handle: predicate) for event in events[:2]
    ]
    assert [verdict.tolist() for verdict in found] == [[YES], [NO]]
    listed = STAFF.read([{"tags": ["a long text", "b"], "x": 6}]).searched
    assert target.decide(one, one, listed, None, lambda handle: predicate).tolist() == [ASK]
    target.forget(one)
    plain = p("tags = 'a long text'")
    assert target.decide(one, one, listed, None, lambda handle: plain).tolist() == [YES]


def test_many_hits_are_decided_together_by_all_elements():
    filter = EventFilter(STAFF, matcher="rtree")
    filter.subscribe_many(["NONE tags = 'spam'", "ALL x > 5", "ANY tags = 'a' AND ANY tags = 'b'"])
    batch = [{"tags": ["a", tag], "x": [6, 6 + at % 2]} for at, tag in enumerate(["b", "spam"] * 20)]
    assert [ids.tolist() for ids in filter.match_batch(batch)] == [[0, 1, 2], [1]] * 20
    flat = [{"tags": tag, "x": 5 + at % 2} for at, tag in enumerate(["b", "spam"] * 20)]
    assert [ids.tolist() for ids in filter.match_batch(flat)] == [[0], [1]] * 20


@cases(
    ("condition", "boxes", "unbounded", "checked"),
    [
        ("ANY tags = 'a' AND ANY tags = 'b'", 1, False, True),
        ("ALL tags IN ('a', 'b')", 2, False, False),
        ("ALL (x = 1 OR x > 5) AND ANY tags = 'a'", 2, False, False),
        ("ANY x > 5 AND ALL x < 9", 1, False, False),
        ("ANY x > 5 OR tags LIKE '%a'", 2, False, True),
        ("ANY x > 5 OR tags LIKE '%a%'", 2, True, True),
        ("NONE CIDR(tags, '::/0')", 1, True, True),
        ("staff.name = 'Ann' AND ANY staff.role = 'x'", 1, False, True),
        ("ANY tags IN ()", 0, False, False),
    ],
)
def test_the_index_knows_one_element(condition, boxes, unbounded, checked):
    cost = p(condition).cost
    assert (cost.boxes, cost.unbounded, cost.checked) == (boxes, unbounded, checked)


@cases(
    ("outer", "inner"),
    [
        ("ANY x > 1", "ALL x > 2"),
        ("ANY x > 1", "x > 2"),
        ("x > 1", "ANY x > 2"),
        ("ANY x > 1", "ANY x = 2 AND ANY x = 3"),
        ("ALL x > 1", "ALL x IN (2, 3) AND tags = 'a'"),
        ("NONE tags = 'spam'", "NONE tags IN ('spam', 'ham')"),
        ("NONE tags = 'spam'", "ALL tags LIKE 'h%'"),
        ("ANY x BETWEEN 1 AND 9", "ANY x >= 0 AND ALL x BETWEEN 2 AND 3"),
        ("tags < 'm' AND ANY x > 1 OR tags >= 'm'", "ANY x = 2 AND tags <> 'q'"),
        ("x IS NOT NULL", "NONE x = 5"),
        ("ANY tags LIKE '%a_b%' AND ANY tags = 'b'", "ANY tags = 'b' AND ANY tags LIKE '%a_b%'"),
    ],
)
def test_what_is_covered(outer, inner):
    assert p(outer).covers(p(inner)) is True


@cases(
    ("outer", "inner", "answer"),
    [
        ("ALL x > 1", "x > 2", None),  # so of events without lists
        ("ALL x > 1", "ANY x > 2", None),
        ("staff.name = 'Ann' AND staff.role = 'a'", "ANY staff.name = 'Ann' AND ANY staff.role = 'a'", None),
        ("x = 2", "ANY x = 1 AND ANY x = 2", None),
        ("ANY x > 2", "ANY x > 1", False),
        ("NONE tags = 'spam'", "NONE tags = 'ham'", False),
    ],
)
def test_what_is_not_covered(outer, inner, answer):
    assert p(outer).covers(p(inner)) is answer


def test_a_filter_finds_who_covers_what_events_with_lists_alone_satisfy():
    filter = EventFilter(STAFF)
    filter.subscribe_many(["ANY x = 2", "x > 0", "ANY x = 2 AND ANY x = 1", "x = 3"])
    found = filter.related("ANY x = 1 AND ANY x = 2").covers
    assert found.ids.tolist() == [0, 1, 2]
    assert filter.related("ANY x = 1 AND ANY x = 2").equal.ids.tolist() == [2]
    assert filter.related("ANY x = 1 AND x IS NULL AND tags = 'a' AND tags = 'b'").covers.ids.tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert filter.related("ANY x = 1 AND tags = 'a' AND tags = 'b'").equal.ids.tolist() == []


def told(condition, event):
    """The lines of constraints of a report."""
    filter = EventFilter(STAFF)
    filter.subscribe(condition)
    return [str(one) for own in filter.explain(event, 0).filters for one in own.constraints]


@cases(
    ("condition", "event", "line"),
    [
        ("ANY x = 5", {"x": [9, 6]}, "no   ANY x = 5: x[1] is 6, too high by 1; the nearest of 2 elements"),
        ("ANY x BETWEEN 1 AND 2", {"x": [9, [3]]}, "x[1][0] is 3, too high by 1; the nearest of 2 elements"),
        (
            "ALL x < 5",
            {"x": [1, 6, 7]},
            "no   ALL x < 5: x[1] is 6, too high by 1; fails for 2 of 3 elements",
        ),
        ("NONE tags = 'b'", {"tags": ["a", "b"]}, "tags[1] is 'b', excluded; fails for 1 of 2 elements"),
        (
            "NONE tags = 'b'",
            {"tags": ["a", 5]},
            "tags[1] is 5, of another type: not a string; fails for 1 of",
        ),
        ("NONE tags = 'b'", {"tags": "b"}, "no   NONE tags = 'b': is 'b', excluded"),
        ("NONE tags = 'b'", {"tags": []}, "no   NONE tags = 'b': missing"),
        ("ALL x < 5", {"x": [1, 2]}, "yes  ALL x < 5: all 2 elements"),
        ("ANY x = 5", {"x": [1, 5]}, "yes  ANY x = 5: x[1] is 5"),
        ("ALL x < 5", {"x": 1}, "yes  ALL x < 5: is 1"),
        ("ANY staff.role = 'a'", {"staff": [{"role": "b"}, {"role": ["c", "a"]}]}, "staff[1].role[1] is 'a'"),
    ],
)
def test_explanations_name_the_element(condition, event, line):
    (found,) = told(condition, event)
    assert line in found


def test_tables_of_misses_name_the_element():
    filter = EventFilter(STAFF)
    filter.subscribe("ALL x < 5 AND ANY tags = 'a'")
    found = filter.explain([{"x": [1, 6.5], "tags": "a"}, {"tags": "a"}])
    assert [
        (row.attribute, row.operator, row.wanted, row.value, row.distance, row.element) for row in found
    ] == [
        ("x", "all", 5, 6.5, 1.5, "x[1]"),
        ("x", "all", None, None, None, ""),
    ]


@cases(
    ("condition", "event", "remedy"),
    [
        ("ANY (x > 1 AND x < 3)", {"x": [7]}, {"x": 2}),
        ("NONE x = 5", {"x": [5, 6]}, {"x": 6}),
        ("ALL x < 5", {"x": [1]}, {}),
        ("ALL tags IN ('a')", {}, {"tags": "a"}),
    ],
)
def test_remedies(condition, event, remedy):
    filter = EventFilter(STAFF)
    filter.subscribe(condition)
    (found,) = filter.explain(event, 0).filters[0].constraints
    assert found.remedy == remedy
    assert found.satisfied or filter.match(event | found.remedy).tolist() == [0]


@pytest.mark.parametrize("matcher", ["rtree", "scan", "hashes"])
def test_a_snapshot_keeps_quantifiers(tmp_path, matcher):
    filter = EventFilter(STAFF, matcher=matcher)
    filter.subscribe_many(["ANY tags = 'a' AND ANY tags = 'b'", "ALL x > 5", "NONE x = 7"])
    filter.save(tmp_path / "snapshot")
    for again in (EventFilter.load(tmp_path / "snapshot"), part_of(filter, [0, 1, 2])):
        assert sorted(again.match({"tags": ["b", "a"], "x": [6, 7]}).tolist()) == [0, 1]
        assert sorted(again.match({"tags": "b", "x": [6, 4]}).tolist()) == [2]
        assert str(again[0].predicate) == "ANY tags = 'a' AND ANY tags = 'b'"
        again.update(1, "x > 5")
        again.unsubscribe(2)
        assert again.match({"x": [6, 4]}).tolist() == [1]


def test_exact_boxes_decide_nothing_for_lists():
    """Neither a single element nor covering."""
    filter = EventFilter(STAFF, matcher="rtree")
    filter.subscribe("ALL x > 5")
    assert filter.match_batch([{"x": [6, 7]}, {"x": [6, 4]}, {"x": 6}]).any.tolist() == [True, False, True]
    assert filter.related("x > 6").covers.ids.tolist() == []
    assert filter.related("x > 6").covers.unknown.tolist() == [0]
    assert filter.related("ALL x > 6").covers.ids.tolist() == [0]
    assert filter.related("ALL x > 5").covered.ids.tolist() == [0]
    filter.subscribe("x > 7")
    assert filter.related("ALL x > 5").covered.unknown.tolist() == [1]


def test_a_filter_of_columns_reads_lists_of_arrow():
    pa = pytest.importorskip("pyarrow")
    filter = EventFilter(STAFF)
    filter.subscribe_many(["NONE tags = 'spam'", "ANY tags = 'a' AND ANY tags = 'b'", "ALL x > 5"])
    table = pa.table({"tags": [["a", "b"], ["spam"], [], None], "x": [[6.0, 7.0], [6.0, 1.0], [], [9.0]]})
    assert [ids.tolist() for ids in filter.match_batch(table)] == [[0, 1, 2], [], [], [2]]


def test_filters_written_by_hand_are_checked():
    given_text = Predicate((Filter((Quantified("all", [Constraint("x", "not in", [])]),)),))
    assert p(given_text) == p("NONE x IN ()")
    with pytest.raises(PredicateError, match="unknown attribute 'y'"):
        p(Predicate((Filter((Quantified("any", [Constraint("y", "=", 1)]),)),)))
