"""The scan finds what the R*-tree finds, for points and for boxes, whatever came and went."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interrupts import Interrupt, Lines
from rtfilter import EventFilter, Schema
from rtfilter.matchers import BoxColumns, Filters, make_matcher, scan

INF = np.inf
ENDS = st.tuples(*[st.sampled_from([-INF, *range(6), INF])] * 2).map(sorted)
VALUES = st.sampled_from([*range(-1, 7), 2.5, None, "odd"])  # a number, missing, of another type
LIMITS = {"PAIRS": [1, 40, 1 << 17], "BOXES": [1, 7, 4096], "FEW": [1, 64, 10**9], "STEP": [1, 4]}


def boxes_of(rng, drawn, d, first):
    """Boxes of new ids, of which some have several; some are supersets."""
    sides = np.array(drawn, float).reshape(len(drawn), d, 2)
    ids = first + np.sort(rng.integers(0, max(1, len(drawn)), len(drawn)))
    return BoxColumns(ids, sides[:, :, 0].copy(), sides[:, :, 1].copy(), rng.random(len(drawn)) < 0.7)


def found(hits):
    """The ids of each query, and whether each is exact."""
    flags = np.ones(len(hits.ids)) if hits.exact is None else hits.exact
    pairs = list(zip(hits.ids.tolist(), flags.astype(bool).tolist(), strict=True))
    own = [dict(pairs[a:b]) for a, b in zip(hits.offsets[:-1], hits.offsets[1:], strict=True)]
    assert sum(map(len, own)) == len(pairs), "an id is reported twice"
    return own


@settings(max_examples=150)
@given(data=st.data())
def test_it_finds_what_the_tree_finds(data):
    d = data.draw(st.integers(1, 3))
    schema = Schema({f"a{k}": float for k in range(d)})
    box = st.lists(ENDS, min_size=d, max_size=d)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    own, tree = make_matcher("scan", schema), make_matcher("rtree", schema, capacity=(4, 4))
    event = st.fixed_dictionaries(dict.fromkeys(schema.names, VALUES))
    with pytest.MonkeyPatch.context() as patch:
        for name, values in LIMITS.items():
            patch.setattr(scan, name, data.draw(st.sampled_from(values)))
        known = np.empty(0, np.int64)
        for turn in range(data.draw(st.integers(1, 4))):
            added = boxes_of(rng, data.draw(st.lists(box, min_size=1, max_size=40)), d, 100 * turn)
            known = np.union1d(known, added.ids)
            gone = rng.permutation(np.append(known, 10**6))[: data.draw(st.sampled_from([0, 3, 30]))]
            for matcher in (own, tree):
                matcher.add(Filters.of_boxes(schema, added))
                assert np.array_equal(matcher.remove(gone), np.isin(gone, known))
            known = np.setdiff1d(known, gone)
            assert own.ids().tolist() == known.tolist()
            table = schema.read(data.draw(st.lists(event, min_size=1, max_size=12)))
            expected = found(tree.match(table))
            assert found(own.match(table)) == expected
            assert [found(own.match(table.take(np.array([row]))))[0] for row in range(len(table))] == expected
            sides = np.array(data.draw(st.lists(box, min_size=1, max_size=12)), float)
            for how in ("intersect", "contain", "within"):
                low, high = sides[:, :, 0].copy(), sides[:, :, 1].copy()
                assert found(own.search_boxes(low, high, how)) == found(tree.search_boxes(low, high, how))
            assert len(own) == len(tree) == own.stats()["ids"] == len(known)
            assert (own.workload(table) > 0).all() or not len(known)


def intervals(count):
    low = np.arange(float(count)).reshape(-1, 1)
    return BoxColumns(np.arange(count), low, low + 0.5, np.ones(count, bool))


def test_it_is_packed_once_more_than_half_is_gone():
    schema = Schema({"x": float})
    matcher = make_matcher("scan", schema)
    matcher.add(Filters.of_boxes(schema, intervals(100)))
    matcher.match(schema.read([{"x": 1.0}]))
    work = matcher.work
    for last, places in ((50, 100), (51, 49)):
        assert matcher.remove(np.arange(last)).any()
        assert matcher.match(schema.read([{"x": 1.0}])).visits.tolist() == [places]
        assert found(matcher.match(schema.read([{"x": 60.0}, {"x": 1.0}]))) == [{60: True}, {}]
    assert (len(matcher), matcher.updates) == (49, 151)
    assert matcher.work > work > 0
    assert matcher.content([60, 1]).boxes().low.tolist() == [[60.0]]


@pytest.mark.slow
def test_a_call_that_is_cut_short_while_it_makes_room_loses_nothing():
    def made():
        filter = EventFilter(Schema({"x": float}), matcher="scan")
        boxes = intervals(64)
        filter.subscribe_boxes(boxes.low, boxes.high)
        return filter

    with Lines([scan]) as lines:
        made().subscribe("x = 70")
    lost = []
    for at in range(lines.count):
        filter = made()
        with Lines([scan], at) as cut, contextlib.suppress(Interrupt):
            filter.subscribe("x = 70")
        events = [{"x": float(x)} for x in range(64)]
        if filter.match_batch(events).counts.tolist() != [1] * 64:
            lost.append(cut.place)
    assert not lost
