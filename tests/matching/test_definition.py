"""What a filter is made of, as JSON: read, written, and refused."""

import pytest

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.filter import inside

PRICE = {"price": "float"}
SCHEMA = Schema(PRICE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PRICE, Definition(SCHEMA)),
        ({"schema": PRICE}, Definition(SCHEMA)),
        ({"schema": {"strict": True, "attributes": PRICE}}, Definition(Schema(PRICE, strict=True))),
        ({"schema": [{"name": "price", "type": "float"}], "order": "fifo"}, Definition(SCHEMA, order="fifo")),
        ({"schema": PRICE, "matcher": {"name": "counting"}}, Definition(SCHEMA, "counting")),
        ({"schema": PRICE, "max_unbounded": None}, Definition(SCHEMA, max_unbounded=None)),
        ({"schema": {"type": "str"}}, Definition(Schema({"schema": str}))),  # an attribute of this name
        (
            {"schema": PRICE, "matcher": {"name": "rtree", "capacity": [64, 512]}, "controller": "wang"},
            Definition(SCHEMA, {"name": "rtree", "capacity": (64, 512)}, "wang"),
        ),
    ],
)
def test_a_schema_or_more_is_a_definition_and_comes_back_from_its_json(data, expected):
    assert Definition.from_json(data) == expected
    assert Definition.from_json(expected.to_json()) == expected


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"matcher": 7}, 'matcher is a name, or an object with a "name"'),
        ({"matcher": "tree"}, "unknown matcher 'tree'"),
        ({"matcher": {"name": None}}, 'a matcher is a name, or an object with a "name"'),
        ({"matcher": {"name": "rtree", "capacity": [2**70, 8]}}, "are at most 1048576"),
        ({"controller": {"name": "wang", "N": 4}}, "it has rounds, threshold"),
        ({"order": "lifo"}, "order is one of fifo, shortest, longest, not 'lifo'"),
        ({"max_unbounded": -1}, "max_unbounded is a number of subscriptions"),
        ({"policy": "fifo"}, "'policy' is an unknown key; besides schema, use matcher, controller, order"),
        ({"schema": {"price": "flot"}}, "attribute 'price': the type 'flot' is unknown"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(beside, said):
    with pytest.raises(ValueError, match=said):
        Definition.from_json({"schema": PRICE, **beside})


def test_a_default_holds_where_nothing_is_said():
    assert Definition.from_json(PRICE, max_unbounded=None).max_unbounded is None
    assert Definition.from_json({"schema": PRICE, "max_unbounded": 3}, max_unbounded=None).max_unbounded == 3


def test_a_filter_is_made_of_all_of_it():
    made = Definition(SCHEMA, "counting", {"name": "wang", "rounds": 3}, "longest", 5).filter()
    assert (made.stats()["matcher"]["name"], inside(made).controller.snapshot()["rounds"]) == ("counting", 3)
    assert (inside(made).road.order.__name__, inside(made).subscriptions.unbounded.most, made.schema) == (
        "longest_first",
        5,
        SCHEMA,
    )


def test_only_matchers_that_take_all_do_where_that_is_needed():
    Definition(SCHEMA, "filter-nodes").require_whole("a server")
    for matcher in ("matching-tree-equality", {"name": "gough-smith", "beyond": "refuse"}):
        with pytest.raises(ValueError, match=r"as a server needs; choose one of scan, .*naive") as refused:
            Definition(SCHEMA, matcher).require_whole("a server")
        assert "equality," not in str(refused.value)
