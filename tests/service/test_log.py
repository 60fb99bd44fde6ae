"""What is committed is there again, in order, once."""

import sqlite3

import pytest
import sqlalchemy

from rtfilter.service.log import Entry, Kind, Log, Mark


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.sqlite"


def test_entries_and_marks_are_there_after_opening_again(path):
    log = Log(path)
    event, change = Entry(Kind.EVENT, "ann", b"{}"), Entry(Kind.SUBSCRIBE, "bob", b'{"id": "s"}')
    assert log.commit([event, change], {"bob": Mark(1, frozenset({4, 9}))}) == [(1, True), (2, True)]
    log.close()
    log = Log(path)
    assert [tuple(one) for one in log.entries()] == [(1, event), (2, change)]
    assert log.marks() == {"bob": Mark(1, frozenset({4, 9}))}
    assert log.commit([], {"bob": Mark(7)}) == []
    assert log.marks() == {"bob": Mark(7)}
    log.close()


def test_a_key_stands_for_one_entry_of_its_user(path):
    log = Log(path)
    one = Entry(Kind.EVENT, "ann", b"{}", "k")
    assert log.commit([one, one], {}) == [(1, True), (1, False)]
    assert log.commit([one, one._replace(user="bob")], {}) == [(1, False), (2, True)]
    assert len(list(log.entries())) == 2
    log.close()


def test_a_transaction_is_all_or_nothing(path):
    log = Log(path)
    bad = Entry(Kind.EVENT, "ann", None)  # type: ignore[arg-type]
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        log.commit([Entry(Kind.EVENT, "ann", b"{}"), bad], {"ann": Mark(3)})
    assert (list(log.entries()), log.marks()) == ([], {})
    log.close()


def test_it_is_a_write_ahead_log(path):
    log = Log(path)
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    log.close()


def test_it_is_read_in_pages(path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.log.PAGE", 2)
    log = Log(path)
    log.commit([Entry(Kind.EVENT, "ann", b"%d" % i) for i in range(4)], {})
    assert [one.entry.body for one in log.entries()] == [b"0", b"1", b"2", b"3"]
    log.close()
