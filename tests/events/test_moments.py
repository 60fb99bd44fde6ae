"""Which text is a timestamp, and why another is none."""

from datetime import UTC, datetime

import pytest

from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.cli import FAILED, main

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
TAKEN = {
    "2024-05-31T12:00:00Z": NOON,
    "2024-05-31t12:00:00z": NOON,
    "2024-05-31 12:00:00Z": NOON,
    "2024-05-31T12:00:00.5z": NOON.replace(microsecond=500_000),
    "2024-05-31T12:00:00,5Z": NOON.replace(microsecond=500_000),
    "2024-05-31T12:00:00.1234569Z": NOON.replace(microsecond=123_456),
    "2024-05-31T14:00:00+02:00": NOON,
    "2024-05-31T12:00:00-00:00": NOON,
    "2024-05-31T12": NOON,
    "20240531T120000Z": NOON,
    "2024-W22-5T12:00": NOON,
    "2024W225t12": NOON,
    "2024-05-31": NOON.replace(hour=0),
}
REFUSED = {
    "2024-05-31x12:00:00Z": "between date and time is T, t or a blank",
    "2024-05-31_12:00:00Z": "between date and time is T, t or a blank",
    "2024-05-31-12": "between date and time is T, t or a blank",
    "2024W22x12": "between date and time is T, t or a blank",
    "2016-12-31T23:59:60Z": "it is a leap second, which no timestamp has",
    "20161231T235960Z": "it is a leap second, which no timestamp has",
    "2024-05-31T24:00:00Z": "its hour is 24; write 00:00:00 of the next day",
    "20240531T24": "its hour is 24; write 00:00:00 of the next day",
    "2024-152": "it is an ordinal date; write year, month and day",
    "2024-05": "it has no day",
    " 2024-05-31": "it has blanks around it",
    "2024-05-31\n": "it has blanks around it",
    "2024-05-31Z": "it has an offset and no time",
    "1717156800": "it is a number",
    "2024-02-30": "day is out of range for month",
    "2024-13-01": "month must be in 1..12",
    "2024-05-31T25:00": "hour must be in 0..23",
    "soon": "it is not like 2024-05-31T12:00:00Z",
    "": "it is not like 2024-05-31T12:00:00Z",
}
SCHEMA = Schema({"at": datetime})


@pytest.mark.parametrize(("text", "moment"), TAKEN.items())
def test_what_is_taken(text, moment):
    filter = EventFilter(SCHEMA)
    filter.subscribe({"at": [moment]})
    filter.subscribe(f"at = '{text}'")
    filter.subscribe(f"at = TIMESTAMP '{text}'")
    filter.subscribe({"at": [{"numeric": ["=", text]}]})
    assert len(filter.match({"at": text})) == 4


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_is_not_says_why(text, why):
    filter = EventFilter(SCHEMA)
    id = filter.subscribe("at > '2000-01-01'")
    assert len(filter.match({"at": text})) == 0
    assert f"of another type: not a timestamp; {why}" in str(filter.explain({"at": text}, id))
    for where in (f"at = '{text}'", f"at = TIMESTAMP '{text}'", {"at": [text]}):
        with pytest.raises(PredicateError) as caught:
            filter.subscribe(where)
        assert caught.value.message.endswith(f": {why}") or f": {why}" in str(caught.value)


def test_the_command_says_why(tmp_path, capsys):
    (tmp_path / "schema.json").write_text('{"at": "timestamp"}')
    rules, events = tmp_path / "rules.jsonl", tmp_path / "events.jsonl"
    given = [str(rules), str(events), "--schema", str(tmp_path / "schema.json")]
    events.write_text('{"at": "2024-05-31x12:00:00Z"}\n')
    rules.write_text("\"at > '2000-01-01'\"\n")
    assert main(["explain", *given, "--event", "0", "--id", "0"]) == 0
    assert "not a timestamp; between date and time is T, t or a blank" in capsys.readouterr().out
    rules.write_text("\"at > '2024-152'\"\n")
    assert main(["match", *given]) == FAILED
    assert "it is an ordinal date; write year, month and day" in capsys.readouterr().err
