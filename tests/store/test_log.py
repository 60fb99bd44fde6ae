"""The log, on SQLite and on PostgreSQL."""

import os
import shutil
import socket
import sqlite3
import time
from contextlib import closing, contextmanager
from errno import ENOSPC

import pytest
import sqlalchemy
from msgspec.structs import replace

import postgresql
from rtfilter.store import log as module
from rtfilter.store.database import LOCK, POSTGRESQL, DatabaseLock, VersionError, engine
from rtfilter.store.log import Log, TakenError
from rtfilter.store.log_tables import Acknowledged, Entry, Kind, Progress, Request, RequestKey, Row
from service.faults.disk import Disk, mounted


@pytest.fixture
def opened(database):
    with closing(Log(engine(database))) as log:
        yield log


def event(body=b"{}", user="ann", filter="f", at=0.0):
    return Entry(Kind.EVENT, filter, user, body, at=at)


def sub(user="ann", filter="f", **more):
    return Entry(Kind.SUBSCRIBE, filter, user, b'{"where": "a > 1"}', **more)


def gone(id):
    return Entry(Kind.UNSUBSCRIBE, "f", "ann", b'{"reason": "removed"}', id)


def trim(log, moment, changes):
    """All that is needed no more; returns how many entries."""
    return sum(counts(log, log.before(moment), changes))


def counts(log, last, changes):
    """Entries removed by each part."""
    more = True
    while more:
        count, more = log.trim(last, changes)
        yield count


def put(log, *entries, key=None):
    (placed,) = log.commit([Request([*entries], key)])
    assert placed.error is None
    return placed.first


def test_an_entry_has_the_time_that_the_log_gives_it(tmp_path):
    log, entries = Log(engine(f"sqlite:///{tmp_path}/log")), [event(at=7.0), event(at=5.0)]
    log.commit([Request(entries)])
    assert [one.at for one in entries] == [7.0, 7.0] == [one.entry.at for one in log.entries(0)]
    log.close()


@postgresql.smoke
def test_what_is_committed_is_there_after_opening_it_again(database):
    log = Log(engine(database))
    put(log, event(b"a", at=5.0), sub(expires=9.0, manner="{}"), event(b"c"))
    row = Row("ann", 1, [(1, (2,), None)])
    log.commit([], Progress(3, {"ann": Acknowledged(2, frozenset({5}))}, [row]))
    log.close()
    log = Log(engine(database))
    assert [(one.position, one.entry.body) for one in log.entries(0)][::2] == [(1, b"a"), (3, b"c")]
    assert [one.entry.at for one in log.entries(0)] == [5.0, 5.0, 5.0]
    assert list(log.owners()) == [(2, "f", "ann", 9.0, "{}")]
    assert (log.head, log.settled, log.marks()) == (3, 3, {"ann": Acknowledged(2, frozenset({5}))})
    assert [tuple(one) for one in log.backlog()] == [("ann", 1, [[1, [2], None]])]
    log.commit([], Progress(4, {"ann": Acknowledged(4)}, [], [("ann", 1)]))
    assert (list(log.backlog()), log.marks(), log.settled) == ([], {"ann": Acknowledged(4)}, 4)
    log.close()


@postgresql.smoke
def test_a_key_stands_for_one_request_of_its_user(opened):
    asked = Request([event(b"a"), event(b"b")], RequestKey("ann", "k", b"1"))
    first, again = opened.commit([asked, asked])
    assert ((first.first, first.size, first.new), again) == ((1, 2, True), first._replace(new=False))
    again, other = opened.commit([asked, asked._replace(key=RequestKey("ann", "k", b"2"))])
    assert again == first._replace(new=False)
    assert "'k' stands for another request" in str(other.error)
    (bobs,) = opened.commit([asked._replace(key=RequestKey("bob", "k", b"1"))])
    assert (bobs.first, bobs.new) == (3, True)
    assert [one.position for one in opened.entries(0)] == [1, 2, 3, 4]


@postgresql.smoke
def test_a_transaction_is_all_or_nothing(opened):
    bad = Request([event(None)])
    with pytest.raises(sqlalchemy.exc.IntegrityError):
        opened.commit(
            [Request([event()], RequestKey("ann", "k", b"1")), bad], Progress(1, {"ann": Acknowledged(3)})
        )
    assert (list(opened.entries(0)), opened.marks(), opened.head) == ([], {}, 0)
    assert opened.missed() == []
    assert put(opened, event()) == 1


@postgresql.smoke
def test_what_was_committed_without_an_answer_is_told(opened, monkeypatch):
    """As if the connection were lost after the commit."""
    put(opened, event(b"a"))

    def lost(*_):
        raise sqlalchemy.exc.OperationalError("", {}, Exception())

    with monkeypatch.context() as patch:
        patch.setattr("rtfilter.store.log.Placed", lost)
        with pytest.raises(sqlalchemy.exc.OperationalError):
            put(opened, event(b"b"))
    assert opened.missed() == []
    plain = opened._writing.begin

    @contextmanager
    def committed_and_lost():
        with plain() as connection:
            yield connection
        lost()

    with monkeypatch.context() as patch:
        patch.setattr(opened._writing, "begin", committed_and_lost)
        with pytest.raises(sqlalchemy.exc.OperationalError):
            opened.commit([Request([event(b"c")])])
    assert [(one.position, one.entry.body) for one in opened.missed()] == [(2, b"c")]
    assert opened.missed() == []
    assert put(opened, event(b"d")) == 3


@postgresql.smoke
def test_who_opened_the_log_before_may_write_no_more(database):
    """As where the lock of a server went with its connection to the database."""
    first = Log(engine(database))
    assert first.is_owner()
    second = Log(engine(database))
    assert (first.is_owner(), second.is_owner()) == (False, True)
    writes = (
        lambda log: put(log, event()),
        lambda log: log.put_filter("f", b"[]", None),
        lambda log: log.remove_filter("f"),
        lambda log: log.trim(0, 0),
    )
    for write in writes:
        with pytest.raises(TakenError):
            write(first)
        write(second)
    assert (len(list(second.entries(0))), second.head) == (1, 2)
    for log in (first, second):
        log.close()


def test_a_refused_request_leaves_the_others_of_its_transaction(opened):
    id = put(opened, sub())
    placed = opened.commit([Request([gone(id)]), Request([gone(id)]), Request([event()])])
    assert [(one.first, one.error is None) for one in placed] == [(2, True), (0, False), (3, True)]
    assert [one.position for one in opened.entries(0)] == [1, 2, 3]


@postgresql.smoke
def test_subscriptions_are_as_they_were_at_a_position(opened):
    first, second = put(opened, sub()), put(opened, sub())
    replaced = put(opened, Entry(Kind.REPLACE, "f", "ann", b"new", first))
    removed = put(opened, gone(second))

    def at(position):
        return {one.entry.subscription: one.position for one in opened.at(position, "f", 0)}

    assert at(second) == {first: first, second: second}
    assert at(replaced) == {first: replaced, second: second}
    assert at(removed) == {first: replaced}
    assert {one.position for one in opened.changes(0, opened.head, "f")} == {first, second, replaced, removed}
    assert [one.position for one in opened.changes(first, replaced, "f")] == [second, replaced]
    opened.commit([], Progress(replaced))
    trim(opened, 0.0, removed)
    assert at(replaced) == {first: replaced, second: second}
    opened.commit([], Progress(removed))
    trim(opened, 0.0, removed)
    assert [one.position for one in opened.entries(0)] == [replaced, removed], "its user may have to be told"
    trim(opened, 1.0, removed)
    assert [one.position for one in opened.entries(0)] == [replaced]


@postgresql.smoke
def test_what_was_replaced_does_not_end_at_the_time_it_had_before(opened):
    def end(expires):
        return opened.commit([Request([replace(gone(first), expires=expires)])])[0].error

    first = put(opened, sub(expires=5.25))
    put(opened, Entry(Kind.REPLACE, "f", "ann", b"new", first, expires=7.25))
    assert end(5.25) is not None
    assert [one.position for one in opened.subscriptions()] == [first + 1]
    assert end(7.25) is None
    assert opened.subscriptions() == []


@postgresql.smoke
def test_subscriptions_are_listed_in_pages(opened):
    ids = [put(opened, sub(user)) for user in ("ann", "bob", "ann", "ann")]
    other = put(opened, sub("ann", "g"))

    def listed(**asked):
        return [one.entry.subscription for one in opened.subscriptions(**asked)]

    assert listed(user="ann") == [ids[0], *ids[2:], other]
    assert listed(user="ann", filter="f", after=ids[0], limit=1) == [ids[2]]
    assert (listed(id=ids[1]), listed(id=99)) == ([ids[1]], [])


@postgresql.smoke
def test_events_are_found_by_time(opened):
    for at in range(1, 21):
        put(opened, event(at=float(at // 2), filter="fg"[at % 2]))

    def times(since, until):
        return [
            one.entry.at for one in opened.events("f", user=None, since=since, until=until, after=0) if one
        ]

    for since in (None, 0.0, 3.0, 3.5, 10.0, 11.0):
        for until in (None, 0.0, 3.0, 3.5, 10.0, 11.0):
            wanted = [float(at) for at in range(1, 11)]
            low, high = since if since is not None else -1, until if until is not None else 99
            assert times(since, until) == [at for at in wanted if low <= at < high], (since, until)


@postgresql.smoke
def test_others_come_between_where_a_user_has_few_of_many_events(opened, monkeypatch):
    monkeypatch.setattr(module, "SPAN", 10, raising=False)
    put(opened, *(event(user="eve" if i == 34 else "ann") for i in range(95)))
    rest = {"since": None, "until": None, "after": 0}
    found = [one and one.position for one in opened.events("f", user="eve", **rest)]
    assert found == [None] * 3 + [35] + [None] * 7
    with opened._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM log WHERE position BETWEEN 2 AND 93")
    found = [one and one.position for one in opened.events("f", user=None, **rest)]
    assert found == [1, None, 94, 95, None]


def test_moments_ascend_also_where_the_clock_is_set_back_between_two_runs(database):
    for at in (5.0, 3.0):
        log = Log(engine(database))
        put(log, event(at=at))
        log.close()
    log = Log(engine(database))
    assert [one.entry.at for one in log.entries(0)] == [5.0, 5.0]
    assert log.latest == 5.0
    log.close()


def test_positions_are_never_used_again(database):
    log = Log(engine(database))
    put(log, event(), event(), event())
    log.commit([], Progress(3))
    assert trim(log, 1.0, 3) == 3
    log.close()
    log = Log(engine(database))
    assert put(log, event()) == 4
    log.close()


def test_what_is_not_settled_is_not_trimmed(opened):
    put(opened, event(), event())
    opened.commit([], Progress(1))
    assert trim(opened, 1.0, 5) == 1


@postgresql.smoke
def test_what_is_needed_no_more_goes_by_parts(opened, monkeypatch):
    monkeypatch.setattr("rtfilter.store.log.TRIMMED", 2)
    ids = [put(opened, sub()) for _ in range(3)]
    put(opened, *[event()] * 5, key=RequestKey("ann", "k", b"r"))
    for id in ids:
        put(opened, gone(id))
    last = put(opened, event(), event(at=9.0)) + 1
    opened.commit([], Progress(opened.head))
    parts = []
    for count in counts(opened, opened.before(5.0), opened.head):
        parts.append(count)
        put(opened, event(at=9.0))  # others come in between
    assert (max(parts), sum(parts)) == (2, 3 + 5 + 3 + 1)
    left = [one.position for one in opened.entries(0)]
    assert left == list(range(last, last + 1 + len(parts)))
    assert opened.known([RequestKey("ann", "k", b"r")], 9.0) == [None]


@postgresql.smoke
def test_a_key_of_a_subscription_lasts_as_long_as_the_subscription(opened, monkeypatch):
    monkeypatch.setattr("rtfilter.store.log.TRIMMED", 2)
    key = RequestKey("ann", "k", b"1")
    ends, stays, later = (key._replace(key=name) for name in "esl")
    put(opened, sub(expires=7.0), key=ends)
    put(opened, sub(), key=stays)
    gone_later = put(opened, sub(), key=later)
    put(opened, *[event()] * 5, key=key._replace(key="events"))
    put(opened, event(at=5.0))
    opened.commit([], Progress(opened.head))
    assert [opened.known([ends], moment) for moment in (6.0, 7.0)] == [[range(1, 2)], [None]]
    trim(opened, 5.0, opened.head)
    events = key._replace(key="events")
    assert opened.known([events, ends, ends._replace(request=b"2")], 6.0) == [None, range(1, 2), None]
    assert put(opened, sub(at=6.0), key=ends) == 1
    anew = put(opened, sub(at=7.0), key=ends)
    assert anew == opened.head
    assert put(opened, sub(at=7.0), key=stays) == 2
    put(opened, gone(gone_later))
    other = key._replace(key="l", request=b"another")
    assert put(opened, sub(at=7.0), key=other) == opened.head
    put(opened, gone(opened.head))
    put(opened, event(at=9.0))
    opened.commit([], Progress(opened.head))
    trim(opened, 9.0, opened.head)
    with opened._engine.connect() as connection:
        left = set(connection.execute(sqlalchemy.text("SELECT key FROM keys")).scalars())
    assert left == {"e", "s"}


@pytest.mark.parametrize("entries", [[event()], [event(), event()], [sub(), sub()]])
def test_a_key_lasts_no_longer_than_its_filter(opened, entries):
    key = RequestKey("ann", "k", b"1")
    opened.put_filter("f", b"[]", None)
    first = put(opened, *entries, key=key)
    opened.remove_filter("f")
    opened.put_filter("f", b"[]", None)
    assert opened.known([key], 1.0) == [None]
    assert put(opened, *entries, key=key) > first


@postgresql.smoke
def test_who_gets_the_name_of_a_removed_user_has_neither_their_events_nor_their_keys(opened):
    def mine():
        return [
            one.position for one in opened.events("f", user="ann", since=None, until=None, after=0) if one
        ]

    key = RequestKey("ann", "k", b"1")
    first = put(opened, event(), key=key)
    opened.forget_user("ann")
    assert mine() == []
    anew = put(opened, event(), key=key)
    assert anew > first
    assert mine() == [anew]
    opened.forget_user("ann")
    assert mine() == []
    put(opened, event(at=9.0))
    opened.commit([], Progress(opened.head))
    trim(opened, 9.0, 0)
    with opened._engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT * FROM former_users")).all() == []


def test_progress_that_was_written_without_an_answer_is_written_again(opened):
    rows = [Row("ann", 1, [(3, [1], None)]), Row("ann", 2, [(4, [1], None)])]
    opened.commit([], Progress(4, rows=rows))
    opened.commit([], Progress(5, rows=[Row("ann", 1, [(3, [2], None)])], gone=[("ann", 2)]))
    assert list(opened.backlog()) == [Row("ann", 1, [[3, [2], None]])]


def test_a_filter_that_was_kept_without_an_answer_is_there(opened):
    made = opened.put_filter("f", b"[]", "a")
    opened.head -= 1  # as where the answer was lost
    assert opened.put_filter("f", b"[1]", None) == made
    assert opened.filters() == [made]
    assert put(opened, event()) == made.since + 1


@postgresql.smoke
def test_filters_are_kept(opened):
    put(opened, event())
    made = opened.put_filter("f", b"[]", "a")
    assert (made.since, opened.filters()) == (2, [made])
    opened.redefine_filter("f", b"[1]")
    assert opened.filters() == [made._replace(schema=b"[1]")]
    assert put(opened, event()) == 3
    opened.remove_filter("f")
    assert opened.filters() == []


def test_another_version_is_refused(database):
    Log(engine(database)).close()
    made = engine(database)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE state SET value = 99 WHERE name = 'version'"))
    with pytest.raises(VersionError, match="of version 99"):
        Log(made)
    made.dispose()


@postgresql.smoke
def test_pages_are_read_one_after_the_other(opened, monkeypatch):
    monkeypatch.setattr("rtfilter.store.log.PAGE", 2)
    put(opened, *(event(b"%d" % i) for i in range(5)))
    assert [one.entry.body for one in opened.entries(0)] == [b"0", b"1", b"2", b"3", b"4"]
    assert [*opened.bodies([1, 4, 9])] == [1, 4]


def test_pages_of_large_entries_are_short(opened, monkeypatch):
    monkeypatch.setattr("rtfilter.store.log.PAGE_BYTES", 100)
    monkeypatch.setattr("rtfilter.store.log.FIRST", 2)
    bodies = [b"x" * 50] * 10 + [b""] * 30
    put(opened, *map(event, bodies))
    sizes, plain = [], module._logged

    def counted(row):
        sizes[-1] += 1
        return plain(row)

    monkeypatch.setattr(module, "_logged", counted)
    statement = sqlalchemy.event.listens_for(opened._engine, "before_cursor_execute")
    statement(lambda *_: sizes.append(0))
    assert [one.entry.body for one in opened.entries(0)] == bodies
    read = [size for size in sizes if size]
    assert read[:5] == [2] * 5
    assert sum(read) == 40
    assert len(read) < 10


@pytest.mark.parametrize(("power", "wanted"), [(False, 1), (True, 2)])
def test_sqlite_is_set_up(tmp_path, power, wanted):
    made = engine(f"sqlite:///{tmp_path}/log.sqlite", power)
    with made.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == wanted
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    made.dispose()


def test_what_was_written_goes_into_the_database_beside_who_writes(database, tmp_path):
    opened = Log(engine(database))
    put(opened, event(bytes(8_000_000)))
    file = tmp_path / "log.sqlite"
    assert not file.exists() or file.stat().st_size < 1_000_000  # a commit leaves it
    with opened._write():
        opened.checkpoint()
        assert not file.exists() or file.stat().st_size > 8_000_000
    opened.close()


def test_a_start_after_a_kill_frees_the_room_of_the_write_ahead_log(tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    with closing(Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))) as log:
        put(log, event(b"x" * 1_000_000))
        for one in tmp_path.glob("log.sqlite*"):
            shutil.copy(one, killed)
    size = (killed / "log.sqlite-wal").stat().st_size
    with closing(Log(engine(f"sqlite:///{killed}/log.sqlite"))) as log:
        assert (killed / "log.sqlite-wal").stat().st_size < size / 10
        assert log.head == 1


def test_a_start_on_a_full_disk_has_room_to_trim(tmp_path):
    data = tmp_path / "data"
    with mounted(data) as done:
        if not done:
            pytest.skip("only root may mount a disk")
        full = Log(engine(f"sqlite:///{data}/log.sqlite"))
        put(full, event(b"x" * 3_000_000))
        full.checkpoint()
        full.commit([Request([event(b"x" * 2_000_000)])], Progress(2))
        Disk(tmp_path).fill()
        with closing(Log(engine(f"sqlite:///{data}/log.sqlite"))) as log:  # the other one is as if killed
            assert (data / "log.sqlite-wal").stat().st_size < 100_000
            assert trim(log, 1.0, 0) == 2
            put(log, event(b"x" * 1_000_000))
        full.close()


def test_each_commit_keeps_room_for_what_it_writes(tmp_path):
    with closing(Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))) as log:
        for size in (3_000_000, 10):
            put(log, event(b"x" * size))
            kept, used = (tmp_path / f"log.sqlite-{name}" for name in ("reserve", "wal"))
            assert kept.stat().st_size > used.stat().st_size


def test_room_is_kept_beside_the_log_while_there_is_some(tmp_path, monkeypatch):
    kept = tmp_path / "log.sqlite-reserve"
    with closing(Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))) as log:
        put(log, event(b"x" * 1_000_000))
        log.checkpoint()
        size = kept.stat().st_size
        assert size > (tmp_path / "log.sqlite-wal").stat().st_size
        assert kept.stat().st_mode & 0o777 == 0o600

        def full(file, start, size):
            os.ftruncate(file, start + size // 2)
            raise OSError(ENOSPC, "no room")

        monkeypatch.setattr(os, "posix_fallocate", full)
        put(log, event(b"x" * 5_000_000))
        log.checkpoint()
        assert kept.stat().st_size == size


def test_a_checkpoint_that_fails_is_left_to_the_next(tmp_path):
    opened = Log(engine(f"sqlite:///{tmp_path}/log.sqlite"))
    opened.close()
    (tmp_path / "log.sqlite").unlink()
    (tmp_path / "log.sqlite").mkdir()
    opened.checkpoint()


@postgresql.smoke
def test_a_database_of_postgresql_has_one_server(database):
    first, second = engine(database), engine(database)
    held, other = DatabaseLock(first), DatabaseLock(second)
    assert held.take()
    assert other.take() == (not database.startswith("postgresql"))
    held.close()
    first.dispose()
    end = time.monotonic() + 60
    while not other.take():
        assert time.monotonic() < end
        time.sleep(0.05)
    other.close()
    second.dispose()


@postgresql.smoke
def test_a_lock_that_was_lost_is_taken_again(database):
    if not database.startswith("postgresql"):
        pytest.skip("SQLite has none")
    first, second = engine(database), engine(database)
    held, other = DatabaseLock(first), DatabaseLock(second)
    assert held.take()
    lost = f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = {LOCK}"
    with second.begin() as connection:
        connection.exec_driver_sql(lost)
    with pytest.raises(sqlalchemy.exc.OperationalError):
        held.take()
    assert held.take()
    assert held.take()
    assert not other.take()
    held.close()
    first.dispose()
    second.dispose()


def test_no_two_logs_have_one_epoch(tmp_path):
    logs = [Log(engine(f"sqlite:///{tmp_path}/{name}.sqlite")) for name in "aab"]
    first, again, other = (log.epoch for log in logs)
    assert (again - first, other in range(first - 9, first + 9)) == (1, False)
    for log in logs:
        log.close()


@pytest.mark.slow
@pytest.mark.parametrize("said", ["", "&connect_timeout=2"])
def test_a_database_that_does_not_answer_is_given_up(monkeypatch, said):
    monkeypatch.setitem(POSTGRESQL, "connect_timeout", 1000 if said else 2)  # 2 is the least of libpq
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql+psycopg://ann@127.0.0.1:{port}/name?sslmode=disable&gssencmode=disable{said}"
        with pytest.raises(sqlalchemy.exc.OperationalError, match="timeout"):
            Log(engine(url))
