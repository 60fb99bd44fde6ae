"""JSON text is matched as the dicts would be that it stands for, and only what is asked for is read."""

import json
import logging
from itertools import repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limits import sources_within
from nested import EVENTS, TYPES
from oracle import as_sets
from rtfilter import EventError, EventFilter, Schema, Tracker
from rtfilter.events import json_text

SCHEMA = Schema(TYPES)
LOTS = Schema({"lot": str, "size": float, "at.x": float, "at.y": float, "tags": str})


def narrow(filter):
    """The same filter, which never reads events whole to look at their names."""
    reader = filter._road.reader
    json = reader._text(filter.schema.fields)
    json._unseen, json._lone, json._batches = 0, repeat(None), repeat(None)
    return filter


def lots(*predicates, schema=LOTS):
    filter = EventFilter(schema)
    filter.subscribe_many(list(predicates))
    return narrow(filter)


@given(data=st.data())
def test_text_is_matched_as_the_dicts_are(data):
    drawn = data.draw(st.lists(sources_within(TYPES), min_size=1, max_size=4))
    batch = data.draw(st.lists(EVENTS, min_size=1, max_size=4))
    filter = EventFilter(SCHEMA)
    filter.subscribe_many([source for source, _ in drawn])
    narrow(filter)
    wanted = as_sets(filter.match_batch(batch))
    texts = [json.dumps(event) for event in batch]
    assert as_sets(filter.match_batch("\n".join(texts))) == wanted
    assert as_sets(filter.match_batch(json.dumps(batch, indent=1).encode())) == wanted
    assert as_sets(filter.match_batch(texts)) == wanted
    assert as_sets([filter.match(text) for text in texts]) == wanted
    assert as_sets(filter.stream("\n".join(texts)).matches()) == wanted
    assert filter.match_batch(texts).any.tolist() == [bool(ids) for ids in wanted]
    assert as_sets(filter.match_batch(SCHEMA.read("\n".join(texts)))) == wanted  # all of it


@pytest.mark.parametrize(
    "text",
    [
        '{"lot": "0001001", "size": 7}\n\n{"size": 8}\n',
        b'[{"lot": "0001001", "size": 7}, {"size": 8}]',
        bytearray(b'\xef\xbb\xbf{"lot": "0001001", "size": 7}\r\n{"size": 8}'),
        memoryview(b' [{"lot":"\\u0030001001","size":7.0},{"size":8}]'),
        ['{"lot": "0001001",\n "size": 7}', b'{"size": 8}'],
        ('{"lot": "0001001", "size": 7}', '{"size": 8}'),
    ],
)
def test_forms_of_text(text):
    filter = lots("lot = '0001001'", "size > 7")
    assert as_sets(filter.match_batch(text)) == [{0}, {1}]


def test_one_event_may_have_many_lines():
    filter = lots("size > 7")
    text = json.dumps({"size": 8, "at": {"x": 1}}, indent=2)
    assert filter.match(text).tolist() == [0]
    assert as_sets(filter.match_batch(text)) == [{0}]
    assert str(filter.explain(text, 0)).startswith("match")
    assert filter.match([text.encode()]).tolist() == [0]
    assert len(filter.match_batch("")) == len(filter.match_batch("[]")) == 0


def test_only_what_is_asked_for_is_read():
    filter = lots("size > 7")
    table = filter._road.reader.many(b'{"lot": "a", "size": 8, "at": {"x": 1}, "tags": ["a"]}\n{"size": 1}')
    assert table.read == {"size"}
    assert (table.points[:, LOTS.offsets["size"]] == [8, 1]).all()
    assert np.isneginf(np.delete(table.points, LOTS.offsets["size"], axis=1)).all()
    assert table.row(0) == {"size": 8}
    assert table.values("lot") == [None, None]


MANY = [{"x": number, "y": 1} for number in range(1001)]


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("form", ["dicts", "text", "one dict", "one text"])
def test_a_list_counts_that_is_asked_for_alone(form, looks):
    filter = lots("size > 7")
    if looks:
        filter._road.reader._json._unseen = 100
    event = {"size": 8, "at": MANY, "tags": list(map(str, range(1001)))}

    def match():
        given = json.dumps(event) if "text" in form else event
        return filter.match(given).tolist() if "one" in form else filter.match_batch([given]).ids.tolist()

    assert match() == [0]
    filter.subscribe("at.x = 3")
    with pytest.raises(EventError, match=r"the list 'at' has 1,001 choices of elements") as caught:
        match()
    assert caught.value.row == 0


@pytest.mark.parametrize("events", ['{"size": 8, "at": {"x": 3}}', [{"size": 8, "at": [{"x": 1}, {"x": 3}]}]])
def test_what_is_asked_for_may_grow_after_events_are_read(events):
    filter = lots("size > 7")
    table = filter._road.reader.many(events)
    assert table.read == {"size"}
    filter.subscribe("at.x = 3")
    assert as_sets(filter.match_batch(table)) == [{0, 1}]
    assert as_sets(filter.stream(table).matches()) == [{0, 1}]
    filter.unsubscribe(0)
    assert filter.match_batch(table).any.tolist() == [True]


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ('{"size": 8}\n{"size": }', 1, "this is not JSON: "),
        ('{"size": 8}\n[1]', 1, "an event is a JSON object, not [1]"),
        (b'{"size": 8}\n{"lot": "\xff"}', 1, "this is not JSON: 'utf-8' codec"),
        (b'{"size": 8}\n{"\xff": 1}', 1, "this is not JSON: 'utf-8' codec"),
        ('[{"size": 8}, {"size": NaN}]', None, "this is no JSON array: "),
        ('[{"size": 8}, 7]', 1, "an event is a JSON object, not 7"),
        (['{"size": 8}', '{"size": 8},{"size": 8}'], 1, "this is not JSON: "),
        (['{"size": 8}', {"size": 8}], 1, "is of type dict, where others are JSON text"),
        ('{"size": 8}\n{"size": 1e400}', 1, "this is not JSON: Number out of range"),
        ('{"size": 8}\n{"lot": ' + "[" * 5000 + "]" * 5000 + "}", 1, "this is not JSON: "),
    ],
)
def test_text_that_is_refused(text, row, message):
    with pytest.raises(EventError) as caught:
        lots("size > 7", "at.x = 1").match_batch(text)
    assert message in caught.value.message
    assert caught.value.row == row


def test_one_event_alone_has_no_row():
    for text in ("{", '{"size": 8}{"size": 8}', '{"size": 8}\n{"size": 8}', "7"):
        with pytest.raises(EventError) as caught:
            lots("size > 7").match(text)
        assert caught.value.row is None
    with pytest.raises(EventError, match="match takes one event, not 2; match_batch takes several"):
        lots("size > 7").match(["{}", "{}"])


def test_a_domain_holds_whether_or_not_it_is_asked_for():
    schema = Schema({"size": float, "price": {"type": "float", "low": 0}})
    filter = lots("size > 7", schema=schema)
    with pytest.raises(EventError, match=r"attribute 'price' is -1, outside its domain"):
        filter.match_batch('{"size": 8, "price": -1}')


def test_spellings_of_a_nested_name():
    filter = lots("at.x = 1", "at.x = 2")
    texts = [
        '{"at.x": 1}',
        '{"at": {"x": 1}, "at": {"x": 2}}',
        '{"at": null}',
        '{"at": 7}',
        '{"at": {"x": "1"}}',
    ]
    assert as_sets(filter.match_batch(texts)) == [{0}, {1}, set(), set(), set()]
    assert as_sets([filter.match(text) for text in texts]) == [{0}, {1}, set(), set(), set()]
    with pytest.raises(EventError, match=r"'at\.x' occurs twice, nested and with dots"):
        filter.match('{"at.x": 1, "at": {"x": 1}}')


def test_large_integers_are_exact():
    filter = lots("size = 9007199254740993", "size > 9007199254740993")
    texts = [f'{{"size": {2**53 + more}}}' for more in range(3)]
    assert as_sets(filter.match_batch("\n".join(texts))) == [set(), {0}, {1}]
    assert as_sets([filter.match(text) for text in texts]) == [set(), {0}, {1}]


def test_names_are_looked_at_first_and_now_and_then(monkeypatch, caplog):
    monkeypatch.setattr(json_text, "EVERY", 4)
    filter = EventFilter(LOTS)
    filter.subscribe("size > 7")
    text = '{"lott": "a", "size": 8}\n' * 50
    with caplog.at_level(logging.WARNING, "rtfilter.events"):
        for _ in range(2):
            filter.match_batch(text)
    assert filter.stats()["misspelt"] == 100
    assert "did you mean 'lot'" in caplog.text
    for _ in range(8):
        filter.match_batch(text)
    assert filter.stats()["misspelt"] == 200
    assert filter.stats()["ill_typed"] == 0


@pytest.mark.parametrize(
    "match", [lambda filter, text: filter.match(text), lambda filter, text: filter.match_batch([text])]
)
def test_single_events_are_looked_at_less_often(match):
    filter = EventFilter(LOTS)
    filter.subscribe("size > 7")
    filter.match_batch('{"lot": "a", "size": 8}\n' * json_text.LOOKED_AT)
    for _ in range(2 * json_text.ALONE):
        match(filter, '{"lott": "a", "size": 8}')
    assert filter.stats()["misspelt"] == 2


def test_a_text_of_several_lines_or_with_a_mark_is_one_event_of_a_list():
    filter = lots("lot = 'ä'", "size > 7")
    texts = [
        b'\xef\xbb\xbf{"lot": "a", "size": 8}',
        '{"lot": "ä",\n"size": 1}'.encode(),
        '{"lot": "ä"}'.encode(),
    ]
    for batch in (texts, texts[:1], texts[1:], [b'{"size": 8}', *texts], [*texts, '{"size": 8}']):
        assert as_sets(filter.match_batch(batch)) == [
            {0} if "ä".encode() in (text.encode() if type(text) is str else text) else {1} for text in batch
        ]


def test_single_events_do_not_see_values_of_the_event_before():
    filter = lots("lot = 'a'", "size > 7", "at.x < 3 AND size > 7", "lot LIKE '%long%'", "lot IS MISSING")
    texts = [
        b'{"lot": "a", "size": 8, "at": {"x": 1}}',
        b"{}",
        b'{"size": 8}',
        b'{"lot": "so long, a text"}',
        b'{"lot": 5, "at": {"x": 1}}',
        b'{"at": {"x": 1}, "lot": null, "size": 8}',
    ]
    for text in 3 * [*texts, *reversed(texts)]:
        assert set(filter.match(text)) == set(filter.match(json.loads(text)))


def test_a_strict_schema_reads_all():
    filter = narrow(EventFilter(Schema({"size": float, "lot": str}, strict=True)))
    filter.subscribe("size > 7")
    with pytest.raises(EventError, match="unknown attribute 'other'"):
        filter.match_batch('{"size": 8, "other": 1}')


def test_a_tracker_reads_its_key():
    tracker = Tracker(lots("size > 7"), "lot")
    (entered, _, _), (_, inside, _) = tracker.match_batch('{"lot": "a", "size": 8}\n{"lot": "a", "size": 9}')
    assert (entered.tolist(), inside.tolist()) == ([0], [0])


@pytest.mark.parametrize("name", ["größe", "a.b.c.d.e"])
def test_names_that_need_the_whole_event_are_read_again_and_again(name):
    filter = lots(f'"{name}" > 7', schema=Schema({name: float}))
    text = json.dumps({name: 8.0})
    assert [filter.match(text).tolist() for _ in range(3)] == [[0]] * 3


class _Asking(dict):
    """A value with code of the caller, which uses the filter."""

    def __init__(self, filter):
        super().__init__(x=3.0)
        self.filter = filter

    def items(self):
        self.filter.subscribe("size > 9")
        return super().items()


def test_a_value_of_an_event_may_use_the_filter():
    filter = lots("at.x = 3")
    assert filter.match({"at": _Asking(filter)}).tolist() == [0]
    assert len(filter) > 1
