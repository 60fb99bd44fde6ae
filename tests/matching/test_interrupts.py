"""Calls that are cut short at any of their lines leave everything as before the call, or as after it."""

import threading

import numpy as np
import pytest

import rtfilter.filter
import rtfilter.index.tree
import rtfilter.matchers.layers
import rtfilter.matchers.papers.be_tree
import rtfilter.matchers.papers.eventwise
import rtfilter.matchers.papers.filter_nodes
import rtfilter.matchers.papers.hashes
import rtfilter.matchers.papers.matching_tree
import rtfilter.matchers.papers.profiles
import rtfilter.matchers.papers.sgim
import rtfilter.matchers.rows
import rtfilter.matchers.rtree
import rtfilter.matchers.scan
import rtfilter.matching.control
import rtfilter.matching.copies
import rtfilter.matching.filter_parts
import rtfilter.matching.gate
import rtfilter.matching.road
import rtfilter.matching.stream
import rtfilter.matching.subscriber
import rtfilter.matching.updates
import rtfilter.predicates.stored.predicate_store
import rtfilter.subscriptions.change_log
import rtfilter.subscriptions.content
import rtfilter.subscriptions.expiries
import rtfilter.subscriptions.handles
import rtfilter.subscriptions.ids
import rtfilter.subscriptions.labels
import rtfilter.subscriptions.slices
import rtfilter.subscriptions.stored
from interrupts import Interrupt, Lines
from kinds import EACH, require_sound
from lengths import long_but
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import part_of
from rtfilter.predicates.predicate import parse
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.labels import LabelColumns

pytestmark = pytest.mark.slow

MODULES = [
    rtfilter.subscriptions.change_log,
    rtfilter.filter,
    rtfilter.index.tree,
    rtfilter.matchers.papers.be_tree,
    rtfilter.matchers.papers.eventwise,
    rtfilter.matchers.papers.filter_nodes,
    rtfilter.matchers.papers.hashes,
    rtfilter.matchers.layers,
    rtfilter.matchers.papers.matching_tree,
    rtfilter.matchers.papers.profiles,
    rtfilter.matchers.rows,
    rtfilter.matchers.rtree,
    rtfilter.matchers.scan,
    rtfilter.matchers.papers.sgim,
    rtfilter.matching.copies,
    rtfilter.matching.control,
    rtfilter.matching.filter_parts,
    rtfilter.matching.gate,
    rtfilter.matching.road,
    rtfilter.matching.stream,
    rtfilter.matching.subscriber,
    rtfilter.matching.updates,
    rtfilter.predicates.stored.predicate_store,
    rtfilter.subscriptions.content,
    rtfilter.subscriptions.expiries,
    rtfilter.subscriptions.stored,
    rtfilter.subscriptions.ids,
    rtfilter.subscriptions.handles,
    rtfilter.subscriptions.labels,
    rtfilter.subscriptions.slices,
]
ABOVE = [
    rtfilter.filter,
    rtfilter.matching.filter_parts,
    rtfilter.matching.gate,
    rtfilter.matching.subscriber,
    rtfilter.subscriptions.handles,
    rtfilter.subscriptions.ids,
    rtfilter.subscriptions.labels,
]
"""What calls no matcher for a change, and runs the same lines whatever matches: cut short with the tree."""
SCHEMA = Schema({"x": float, "s": str})
EVENTS = [{"x": float(x), "s": s} for x in (0, 3) for s in ("a", "abcdefgh")]
BEFORE = {1: "x >= 1", 2: "s = 'abcdefgh'", 3: "x < 2 OR s LIKE 'abcdefg%'", 4: "FALSE"}
BEFORE = {id: parse(text, SCHEMA) for id, text in BEFORE.items()}
LAST = parse("x = 0", SCHEMA)
PATIENCE = 120  # seconds until a call counts as hung
PARTS = 12
parts = pytest.mark.parametrize("part", long_but(range(PARTS), (0,)))
"""Of the lines at which a call is cut short, the short form tries every twelfth."""


def made(matcher="rtree"):
    filter = EventFilter(SCHEMA, matcher=matcher, controller=FixedPlan(0, 2))  # always the same lines
    filter.subscribe_many(list(BEFORE.values()), ids=list(BEFORE))
    return filter


def answers(filter):
    """All that can be asked of a filter."""
    ids = filter.ids().tolist()
    assert len(filter) == len(ids)
    return {
        "ids": ids,
        "predicates": [str(filter[id].predicate) for id in ids],
        "labels": [(filter[id].expires, filter[id].metadata) for id in ids],
        "batch": [sorted(own.tolist()) for own in filter.match_batch(EVENTS)],
        "stream": sorted((row, sorted(own.tolist())) for row, own, _ in filter.stream(EVENTS)),
    }


def in_time(call):
    """The result of a call in a thread of its own; fails if it hangs."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert result, "a call hangs, or failed"
    return result[0]


CALLS = {
    "subscribe": lambda filter: filter.subscribe("x > 2 AND s <> 'abcdefgh'", 9),
    "subscribe, boxes": lambda filter: filter.subscribe_boxes([[0, -np.inf]], [[1, np.inf]], ids=[9]),
    "unsubscribe": lambda filter: filter.unsubscribe_many([2, 3, 7]),
    "unsubscribe, matches nothing": lambda filter: filter.unsubscribe(4),
    "update": lambda filter: filter.update(3, "x = 3 OR s = 'a'"),
    "repack": lambda filter: filter.repack(),
    "add_attributes": lambda filter: filter.add_attributes({f"more{len(filter.schema.names)}": str}),
    "match": lambda filter: filter.match(EVENTS[0]),
    "stream": lambda filter: list(filter.stream(EVENTS)),
    "part": lambda filter: part_of(filter, [1, 2]),
    "ids": lambda filter: filter.ids(),
    "stats": lambda filter: filter.stats(),
}


CHANGES = list(CALLS)[:5]
LARGE = {
    "subscribe": lambda filter: filter.subscribe_many(["x > 2", "x = 0", "FALSE"], ids=[9, 8, 7]),
    "subscribe, next ids": lambda filter: filter.subscribe_many(["x > 2", "x = 0", "FALSE"]),
    "subscribe, boxes": lambda filter: filter.subscribe_boxes([[0, -np.inf]] * 3, [[1, np.inf]] * 3),
    "unsubscribe": lambda filter: filter.unsubscribe_many([2, 3, 7]),
}


@pytest.mark.parametrize(
    ("call", "aside"),
    [
        ("subscribe", False),
        pytest.param("subscribe, next ids", False, marks=pytest.mark.long),
        ("unsubscribe", False),
        ("subscribe, boxes", True),
        ("unsubscribe", True),
    ],
)
@parts
def test_a_large_change_cut_short_is_whole_or_undone(monkeypatch, call, aside, part):
    for name, value in {"AT_ONCE": 1, "BIT": 2, "LONG": -1, "KNOWN": 2}.items():
        monkeypatch.setattr(rtfilter.matching.updates, name, value)
    monkeypatch.setattr(rtfilter.matching.updates, "ASIDE", 10**9 if aside else -1)
    cut_short("rtree", LARGE[call], part, changes=True)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@parts
def test_a_call_cut_short_at_any_line_is_whole_or_undone(call, part):
    cut_short("rtree", call, part)


@pytest.mark.parametrize("failures", long_but([1, 2], (1,)))
@pytest.mark.parametrize("call", CHANGES)
@parts
def test_a_change_whose_recovery_is_cut_short_is_put_in_order_by_the_next(monkeypatch, call, failures, part):
    left = [0]
    recover = Subscriptions.recover

    def interrupted(self):
        if self._undo is not None and left[0]:
            left[0] -= 1
            raise Interrupt("while recovering")
        recover(self)

    monkeypatch.setattr(Subscriptions, "recover", interrupted)
    cut_short("hashes", CALLS[call], part, lambda armed: left.__setitem__(0, failures * armed))


@pytest.mark.parametrize("matcher", [name for name in EACH if name != "rtree"])
@pytest.mark.parametrize("call", CHANGES)
@parts
def test_a_change_of_any_matcher_cut_short_is_whole_or_undone(matcher, call, part):
    cut_short(matcher, CALLS[call], part, modules=[one for one in MODULES if one not in ABOVE])


def labeled(matcher, gone=False):
    """The same by text, with deadlines and metadata, and a free handle; one is gone, but still there."""
    filter = EventFilter(SCHEMA, matcher=matcher, controller=FixedPlan(0, 2), clock=lambda: 100.0)
    ids = [f"r{id}" for id in BEFORE]
    filter.subscribe("x = 0", id="gone")
    notes = [None, {"a": 1}] * 2
    filter.subscribe_many(list(BEFORE.values()), ids=ids, ttl=[9, None, 5, None], metadata=notes)
    filter.unsubscribe("gone")
    if gone:
        filter.subscribe("x = 3", id="old", metadata={"old": 1})
        filter._subscriptions.labels.put(
            [filter._subscriptions.labels.handle("old")], LabelColumns(deadlines=np.array([50.0]))
        )
    return filter


LABELED = {
    "subscribe": lambda filter: filter.subscribe("x > 2", "r9", ttl=7, metadata={"b": 2}),
    "unsubscribe": lambda filter: filter.unsubscribe_many(["r2", "r3", "r7"]),
    "update": lambda filter: filter.update("r3", "x = 3 OR s <> 'abcdefgh'", ttl=None, metadata={"c": 3}),
    "update, matches nothing": lambda filter: filter.update("r3", "FALSE", ttl=8, metadata=None),
    "renew": lambda filter: filter.update("r3", ttl=20, metadata={"d": 4}),
}


@pytest.mark.parametrize("call", LABELED)
@parts
def test_a_change_with_labels_cut_short_is_whole_or_undone(call, part):
    cut_short("rtree", LABELED[call], part, changes=True, make=labeled, last="r17")


@pytest.mark.parametrize("call", ["subscribe", "update"])
@parts
def test_a_change_with_labels_of_another_matcher_cut_short_is_whole_or_undone(call, part):
    cut_short("hashes", LABELED[call], part, changes=True, make=labeled, last="r17")


@pytest.mark.parametrize("aside", [False, pytest.param(True, marks=pytest.mark.long)], ids=["bits", "aside"])
@pytest.mark.parametrize(
    "call",
    [
        lambda filter: filter.subscribe_many(
            ["x > 2", "s LIKE '%h'", "FALSE"], ids=["r9", "r8", "r7"], ttl=[1, 2, 3]
        ),
        lambda filter: filter.unsubscribe_many(["r2", "r3", "r7"]),
    ],
    ids=["subscribe", "unsubscribe"],
)
@parts
def test_a_large_change_with_labels_cut_short_is_whole_or_undone(monkeypatch, call, aside, part):
    for name, value in {"AT_ONCE": 1, "BIT": 2, "LONG": -1, "KNOWN": 2}.items():
        monkeypatch.setattr(rtfilter.matching.updates, name, value)
    monkeypatch.setattr(rtfilter.matching.updates, "ASIDE", 10**9 if aside else -1)
    cut_short("rtree", call, part, changes=True, make=labeled, last="r17")


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (lambda filter: filter.subscribe("x > 2", "old"), True),
        (lambda filter: filter.match(EVENTS[0]), False),
    ],
    ids=["anew", "match"],
)
@parts
def test_removing_what_is_gone_cut_short_is_whole_or_undone(call, changes, part):
    """Changes made meanwhile are told once each: what is gone may be told with them."""

    def make(matcher):
        return labeled(matcher, gone=True)

    cut_short("rtree", call, part, changes=changes, make=make, last="r17", told_once=False, anew=True)


def cut_short(
    matcher,
    call,
    part,
    arm=lambda armed: None,
    changes=None,
    make=made,
    last=17,
    told_once=True,
    anew=False,
    modules=MODULES,
):
    """Interrupt a call at its lines, of which the others are in other parts.

    With `anew`, a call that shows no change changes something, too.
    """
    filter = make(matcher)
    before = answers(filter)
    call(filter)
    after = answers(filter)
    assert (after != before) == (call in [CALLS[name] for name in CHANGES] if changes is None else changes)
    anew |= before != after
    if anew:
        filter = make(matcher)
    told = filter.changes()
    with Lines(modules) as lines:
        call(filter)
    assert lines.count > 3
    for at in lines.ends()[part::PARTS]:
        if anew:
            filter = make(matcher)
            told = filter.changes()
        arm(True)
        with Lines(modules, at) as cut:
            try:
                call(filter)
            except Interrupt:
                pass
            else:
                assert not cut.place, f"the interrupt at {cut.place} was swallowed"
        arm(False)
        found = in_time(lambda filter=filter: found_then(filter, last))
        assert found in (before, after), cut.place
        heard = list(told)
        versions = [one.version for one in heard]
        assert versions == sorted(set(versions)), cut.place
        if before != after and told_once:
            own = [one for one in heard if last not in [*one.added.ids, *one.removed]]
            assert len(own) == (found == after), f"a change is told {len(own)} times: {cut.place}"


def found_then(filter, last):
    """What a filter answers, after a change and with nothing left that holds the index."""
    for _ in range(3):  # what a large change left is removed with small ones
        filter.unsubscribe(filter.subscribe(LAST, last))
    assert not filter._subscriptions.claims
    require_sound(filter)
    assert filter.stats()["in_flight_batches"] == 0
    return answers(filter)
