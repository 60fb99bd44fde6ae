"""The log: events and changes of subscriptions in one order, and acknowledged positions.

A commit survives a killed process. All other state of the server is computed from the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sql
from msgspec.structs import replace
from sqlalchemy.sql.compiler import SQLCompiler

from rtfilter.basics.errors import RTFilterError
from rtfilter.store.database import VersionError, checkpoint, migrate, put_state, release, reserve, writing
from rtfilter.store.log_tables import (
    BACKLOG,
    FILTERS,
    FORMER,
    KEYS,
    LIVE,
    LOG,
    MARKS,
    STATE,
    STEPS,
    TABLES,
    VERSION,
    Acknowledged,
    Entry,
    Kind,
    Logged,
    Progress,
    Request,
    RequestKey,
    Row,
)

PAGE: Final = 10_000
"""Entries that are read at once."""
FEW: Final = 1000
"""The same, if other users wait meanwhile."""
PAGE_BYTES: Final = 4 * 2**20
"""Bytes of these entries, about."""
FIRST: Final = 20
"""Entries that are read at once before their size is known."""
SPAN: Final = 100_000
"""Positions of a part of the log in which events are looked for."""
_OF_EVENTS: Final = LOG.columns.keys()[:6]
"""The columns of an event; the other columns would take as long again."""
TRIMMED: Final = 2000
"""Entries that are removed at once, in some milliseconds."""
BLOCK: Final = 50
"""Rows of one statement of SQLite: a block takes less than half of the time."""
_ENTRY: Final = tuple(
    LOG.c[name]
    for name in ("position", "kind", "filter", "user", "body", "subscription", "at", "expires", "manner")
)
_Owner = tuple[int, str, str, float | None, str | None]
_OWNER: Final = (LOG.c.subscription, LOG.c.filter, LOG.c.user, LOG.c.expires, LOG.c.manner)
_OWNED: Final = sql.select(STATE.c.value).where(STATE.c.name == "epoch").with_for_update()
"""The owner of the log, locked until a transaction ends. PostgreSQL locks the row; SQLite has one writer."""


class TakenError(RTFilterError):
    """Another process has opened the log since; this one may not write any more."""


class Placed(NamedTuple):
    """The place of a request in the log: `size` entries from `first` on."""

    first: int
    size: int
    new: bool
    """False if its key was in the log: then it was stored before."""
    error: str | None = None
    """The reason why the log refuses it; other requests of its transaction are not affected."""


class FollowedState(NamedTuple):
    """The state of a log that another process owns."""

    settled: int
    """See `Log.settled`."""
    trimmed: int
    """The last position of which the end of a subscription was removed."""


class FilterRow(NamedTuple):
    """A stored filter; `since` is its first position."""

    name: str
    since: int
    schema: bytes
    key: str | None


class Log:
    """The log in a database. One thread writes; others may read at the same time.

    Parameters
    ----------
    engine : Engine
    owner : bool
        True to `take` the log now. Otherwise this process only reads, and calls `follow` now and then.

    Attributes
    ----------
    head : int
        The last position.
    latest : float
        When the last entry arrived, in seconds since 1970. No later entry has an earlier time.
    removed : int
        Events up to this position have been removed; another process may have removed more.
    epoch : int
        Raised by one at each start. A new log begins with a random epoch, so no two logs have the same.
    """

    def __init__(self, engine: sql.Engine, owner: bool = True) -> None:
        self._engine, self._writing = engine, writing(engine)
        self.epoch = self.head = 0
        self.latest = 0.0
        self._in_doubt = False
        self.removed = 0
        self._ends = 0  # the last end of a subscription that was removed
        dialect = engine.dialect
        self._put_changes = _into(LOG, LOG.columns.keys(), dialect)
        self._put_events = _into(LOG, _OF_EVENTS, dialect)
        self._put_marks, self._remove_marks = _into(MARKS, None, dialect), _out_of(MARKS, ["user"], dialect)
        self._put_rows = _into(BACKLOG, None, dialect)
        self._remove_rows = _out_of(BACKLOG, ["user", "number"], dialect)
        if owner:
            self.take()

    def take(self) -> None:
        """Make this process the owner of the log: an earlier owner may not know that its lock is lost.

        Tables are made if there are none, and brought to the last version. Raises `VersionError`.
        """
        release(self._engine)  # on a full disk, this is the only space for the next steps
        checkpoint(self._engine, "TRUNCATE")
        with self._writing.begin() as connection:
            migrate(connection, STEPS, TABLES, STATE)
            epoch = int(connection.execute(_OWNED).scalar() or secrets.randbelow(2**62)) + 1
            put_state(connection, STATE, "epoch", epoch)
        self.epoch = epoch
        state = self._look()
        self.removed, self._ends = state.get("removed", 0), state.get("trimmed", 0)

    def follow(self) -> FollowedState | None:
        """Return how far another process, which owns the log, is; None if it has not made the tables yet.

        Raises `VersionError` if the tables are of another version.
        """
        if not sql.inspect(self._engine).has_table(STATE.name):
            return None
        state = self._look()
        if (found := state.get("version")) is None:
            return None
        if found != VERSION:
            raise VersionError(
                f"this database is of version {found}, and this rtfilter uses {VERSION}; end the other "
                "server, or use the same rtfilter for both"
            )
        return FollowedState(state.get("settled", 0), state.get("trimmed", 0))

    def _look(self) -> dict[str, int]:
        """Read the last position and its time; return all numbers of the state."""
        state = self._state()
        query = sql.select(LOG.c.position, LOG.c.at).order_by(LOG.c.position.desc()).limit(1)
        for position, at in self._found(query):
            self.head, self.latest = int(position), float(at)
        self.head = max(self.head, state.get("head", 0))
        return state

    def is_owner(self) -> bool:
        """Return whether no other process has opened the log since. Raises `SQLAlchemyError`."""
        return self._state().get("epoch") == self.epoch

    @contextmanager
    def _write(self) -> Iterator[sql.Connection]:
        """Begin a transaction of the owner of the log. Raises `TakenError`."""
        with self._writing.begin() as connection:
            if connection.execute(_OWNED).scalar() != self.epoch:
                raise TakenError("another server has opened this database since; this one must end")
            yield connection

    def _state(self) -> dict[str, int]:
        return {name: int(value) for name, value in self._found(sql.select(STATE))}

    def _found(self, query: sql.Select[Any]) -> Sequence[Any]:
        with self._engine.connect() as connection:
            return connection.execute(query).all()

    # -- writing ---------------------------------------------------------------------------------------------

    def commit(self, requests: Sequence[Request], progress: Progress | None = None) -> list[Placed]:
        """Store requests and progress in one transaction; all of it is durable when this returns.

        Raises `TakenError`, and `SQLAlchemyError`: nothing was written, unless the connection was lost at the
        last moment; see `missed`.
        """
        if self._in_doubt:
            raise RuntimeError("a commit has failed: call `missed` first")
        head, placed = self.head, []
        self._in_doubt = True
        with self._write() as connection:
            events, changes = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
            keys: dict[tuple[str, str], tuple[bytes, Placed]] = {}
            for request in requests:
                found = self._known(connection, request, keys)
                if found is None:
                    found = self._place(connection, request, head + 1, events, changes)
                    if request.key is not None and found.error is None:
                        keys[request.key[:2]] = request.key.request, found
                        _insert(
                            connection,
                            KEYS,
                            [{**request.key._asdict(), "first": found.first, "count": found.size}],
                        )
                    head += found.size if found.error is None else 0
                placed.append(found)
            self._put_events(connection, events)
            self._put_changes(connection, changes)
            if progress is not None:
                self._put_progress(connection, progress)
        self.head, self._in_doubt = head, False
        reserve(self._engine)  # not once a second only: the disk may be full by then
        return placed

    def _put_progress(self, connection: sql.Connection, progress: Progress) -> None:
        if progress.settled is not None:
            put_state(connection, STATE, "settled", progress.settled)
        marks = [
            (user, low, msgspec.json.encode(sorted(beyond)), dropped)
            for user, (low, beyond, dropped) in progress.marks.items()
        ]
        rows = [(user, number, msgspec.json.encode(rest)) for user, number, rest in progress.rows]
        self._remove_marks(connection, [(user,) for user in progress.marks])
        self._put_marks(connection, marks)
        self._remove_rows(
            connection, [*progress.gone, *((user, number) for user, number, _ in progress.rows)]
        )
        self._put_rows(connection, rows)

    def missed(self) -> list[Logged]:
        """Return the entries of a failed commit that were committed all the same: only the answer was lost.

        Raises as `commit` does.
        """
        if not self._in_doubt:
            return []
        with self._write():  # waits until the database has ended that commit
            found = list(self.entries(self.head))
        if found:
            self.head = found[-1].position
        self._in_doubt = False
        return found

    def known(self, keys: Sequence[RequestKey], moment: float) -> list[range | None]:
        """Return the positions of each request that is in the log, and whose result still exists at a time.

        The others are None.
        """
        with self._engine.connect() as connection:
            found = [(key, _request_of(connection, key, moment)) for key in keys]
        return [
            None if kept is None or kept[0] != key.request else range(kept[1].first, sum(kept[1][:2]))
            for key, kept in found
        ]

    def _known(
        self, connection: sql.Connection, request: Request, keys: dict[tuple[str, str], tuple[bytes, Placed]]
    ) -> Placed | None:
        """Return the earlier place of the same request, or None if nothing of it is left."""
        key = request.key
        if key is None:
            return None
        there = keys.get(key[:2])
        if there is None:
            moment = max((entry.at for entry in request.entries), default=self.latest)
            there = _request_of(connection, key, moment)
            if there is None:
                connection.execute(sql.delete(KEYS).where(_of(key)))
                return None
        if there[0] != key.request:
            return Placed(0, 0, False, f"the key {key.key!r} stands for another request; use a new key")
        return there[1]._replace(new=False)

    def _place(
        self,
        connection: sql.Connection,
        request: Request,
        first: int,
        events: list[tuple[Any, ...]],
        changes: list[tuple[Any, ...]],
    ) -> Placed:
        """Add the rows of a request to those to insert: of events, and of changes, with more columns."""
        new = []
        for position, entry in enumerate(request.entries, first):
            if entry.at < self.latest:  # the server knows the entry as the log has it
                request.entries[position - first] = replace(entry, at=self.latest)
            self.latest = max(self.latest, entry.at)
            kind = entry.kind
            row = position, self.latest, kind._value_, entry.filter, entry.user, entry.body
            if kind is Kind.EVENT:
                events.append(row)
                continue
            id, until = entry.subscription, None
            if kind is Kind.SUBSCRIBE:
                id = position
            else:
                self._put_changes(connection, changes)  # the changed one may be among these
                changes.clear()
                if not _supersede(connection, entry, position):
                    return Placed(0, 0, False, f"there is no subscription {entry.subscription} any more")
                if kind is Kind.UNSUBSCRIBE:
                    until = position
            new.append((*row, id, until, entry.expires, entry.manner))
        changes.extend(new)
        return Placed(first, len(request.entries), True)

    def put_filter(self, name: str, schema: bytes, key: str | None) -> FilterRow:
        """Store a new filter durably, or return the stored one, of a call whose answer was lost."""
        query = sql.select(FILTERS).where(FILTERS.c.name == name)
        with self._write() as connection:
            row = connection.execute(query).first()
            made = FilterRow(name, self.head + 1, schema, key) if row is None else FilterRow(*row)
            if row is None:
                _insert(connection, FILTERS, [made._asdict()])
            head = max(self.head, made.since)
            put_state(connection, STATE, "head", head)
        self.head = head
        return made

    def redefine_filter(self, name: str, schema: bytes) -> None:
        """Replace the stored schema of a filter, durably."""
        with self._write() as connection:
            connection.execute(sql.update(FILTERS).where(FILTERS.c.name == name).values(schema=schema))

    def remove_filter(self, name: str) -> None:
        """Remove a filter."""
        with self._write() as connection:
            connection.execute(sql.delete(FILTERS).where(FILTERS.c.name == name))

    def forget_user(self, user: str) -> None:
        """Separate a removed user from a later one with the same name, who gets no former key or event."""
        with self._write() as connection:
            connection.execute(sql.delete(KEYS).where(KEYS.c.user == user))
            connection.execute(sql.delete(FORMER).where(FORMER.c.user == user))
            _insert(connection, FORMER, [{"user": user, "upto": self.head}])

    def trim(self, last: int, changes: int) -> tuple[int, bool]:
        """Remove some unneeded entries; return how many, and whether there may be more.

        Events up to `last` are removed, and changes that were superseded up to `changes`, as far as they are
        settled. Ends of subscriptions stay as long as events, since they may have to be delivered.
        """
        with self._write() as connection:
            put_state(connection, STATE, "head", self.head)
            query = sql.select(STATE.c.value).where(STATE.c.name == "settled")
            settled = int(connection.execute(query).scalar() or 0)
            last, changes = min(last, settled), min(changes, settled)
            within = (LOG.c.position > self.removed) & (LOG.c.position <= last)
            some = sql.select(LOG.c.position).where(within).order_by(LOG.c.position).limit(TRIMMED).subquery()
            upto = connection.execute(sql.select(sql.func.max(some.c.position))).scalar()
            if upto is not None:
                old = within & LOG.c.subscription.is_(None) & (LOG.c.position <= upto)
                count = connection.execute(sql.delete(LOG).where(old)).rowcount
                put_state(connection, STATE, "removed", upto)
                theirs = (KEYS.c.first > self.removed) & (KEYS.c.first <= upto)
                last_of = KEYS.c.first + KEYS.c["count"] - 1
                live = sql.exists().where(LIVE, LOG.c.subscription.between(KEYS.c.first, last_of))
                connection.execute(sql.delete(KEYS).where(theirs & ~live))
                connection.execute(sql.delete(FORMER).where(FORMER.c.upto <= upto))
            else:
                superseded = LOG.c.subscription.is_not(None) & (LOG.c.until <= changes)
                superseded &= (LOG.c.kind != str(Kind.UNSUBSCRIBE)) | (LOG.c.position <= last)
                old_changes = sql.select(LOG.c.position, LOG.c.subscription, LOG.c.kind).where(superseded)
                rows = connection.execute(old_changes.limit(TRIMMED)).all()
                these = [position for position, _, _ in rows]
                ended = {id: position for position, id, kind in rows if kind == Kind.UNSUBSCRIBE}
                if ended:
                    self._ends = max(self._ends, *ended.values())
                    put_state(connection, STATE, "trimmed", self._ends)
                count = connection.execute(sql.delete(LOG).where(LOG.c.position.in_(these))).rowcount
                one = KEYS.c["count"] == 1
                connection.execute(sql.delete(KEYS).where(KEYS.c.first.in_(ended) & one))
        if upto is None:
            return count, count == TRIMMED
        self.removed = upto
        return count, True

    def checkpoint(self) -> None:
        """Call `checkpoint` and `reserve` of the database; other threads may write and read meanwhile."""
        checkpoint(self._engine)
        reserve(self._engine)

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def settled(self) -> int:
        """The settled position of the last `Progress`."""
        return self._state().get("settled", 0)

    def filters(self) -> list[FilterRow]:
        """Return all filters."""
        return [FilterRow(*row) for row in self._found(sql.select(FILTERS))]

    def entries(self, after: int, upto: int | None = None) -> Iterator[Logged]:
        """Yield entries in order, above one position and up to another."""
        query = sql.select(*_ENTRY)
        if upto is not None:
            query = query.where(LOG.c.position <= upto)
        return self._pages(query, after)

    def changes(self, after: int, upto: int, filter: str | None = None) -> Iterator[Logged]:
        """Yield the changes among these entries, of one filter or of all."""
        query = sql.select(*_ENTRY).where(LOG.c.position <= upto, LOG.c.subscription.is_not(None))
        return self._pages(query if filter is None else query.where(LOG.c.filter == filter), after)

    def at(self, position: int, filter: str, since: int) -> Iterator[Logged]:
        """Yield the subscriptions of a filter at a position that no `trim` has reached.

        Entries before `since` belong to another filter that had the name.
        """
        return self._pages(sql.select(*_ENTRY).where(LOG.c.filter == filter, _there(position)), since - 1)

    def _pages(self, query: sql.Select[Any], after: int, most: int = PAGE) -> Iterator[Logged]:
        """Yield entries, about `PAGE_BYTES` of them at once: the size of earlier ones gives the number."""
        size = min(FIRST, most)
        while True:
            page = query.where(LOG.c.position > after).order_by(LOG.c.position).limit(size)
            found = list(map(_logged, self._found(page)))
            yield from found
            if len(found) < size:
                return
            after = found[-1].position
            mean = sum(len(one.entry.body) for one in found) / size
            size = max(1, min(most, 10 * size, int(PAGE_BYTES / max(mean, 1))))

    def owners(self, position: int | None = None) -> Iterator[_Owner]:
        """Yield id, filter, user, expiry, and manner of delivery of subscriptions, now or at a position."""
        there = LIVE if position is None else _there(position)
        with self._engine.connect() as connection:
            yield from connection.execute(sql.select(*_OWNER).where(there))

    def expired(self, after: int) -> Iterator[tuple[int, _Owner]]:
        """Yield subscriptions that expired above a position: the position of the end, and as in `owners`."""
        ends = (LOG.c.until > after) & (LOG.c.kind == str(Kind.UNSUBSCRIBE)) & LOG.c.expires.is_not(None)
        query = sql.select(LOG.c.position, *_OWNER).where(ends).order_by(LOG.c.position)
        with self._engine.connect() as connection:
            for position, *owner in connection.execute(query):
                yield position, tuple(owner)

    def subscriptions(
        self,
        *,
        id: int | None = None,
        user: str | None = None,
        filter: str | None = None,
        after: int = 0,
        limit: int = PAGE,
    ) -> list[Logged]:
        """Return present subscriptions, by id."""
        query = sql.select(*_ENTRY).where(LIVE, LOG.c.subscription > after)
        for column, value in ((LOG.c.subscription, id), (LOG.c.user, user), (LOG.c.filter, filter)):
            if value is not None:
                query = query.where(column == value)
        return list(map(_logged, self._found(query.order_by(LOG.c.subscription).limit(limit))))

    def bodies(self, positions: Collection[int]) -> dict[int, Logged]:
        """Return entries by position, without those that were trimmed."""
        found: dict[int, Logged] = {}
        ordered = sorted(positions)
        for first in range(0, len(ordered), 500):
            some = LOG.c.position.in_(ordered[first : first + 500])
            found |= {row[0]: _logged(row) for row in self._found(sql.select(*_ENTRY).where(some))}
        return found

    def events(
        self, filter: str, *, user: str | None, since: float | None, until: float | None, after: int
    ) -> Iterator[Logged | None]:
        """Yield stored events of a filter, above a position, within a time, in order; of one user or all.

        Yield None after each part of the log: there may be few of these events among many others.
        """
        query = sql.select(*_ENTRY).where(LOG.c.filter == filter, LOG.c.kind == str(Kind.EVENT))
        if user is not None:
            former = self._found(sql.select(FORMER.c.upto).where(FORMER.c.user == user))
            after = max([after, *(upto for (upto,) in former)])
            query = query.where(LOG.c.user == user)
        if since is not None:
            after = max(after, self.before(since))
        upto = self.head if until is None else self.before(until)
        while (first := self._first(after)) is not None and first <= upto:
            last = min(first + SPAN - 1, upto)
            yield from self._pages(query.where(LOG.c.position <= last), after, FEW)
            yield None
            after = last

    def _first(self, after: int) -> int | None:
        """Return the first position above another; there are none between, where entries were removed."""
        (row,) = self._found(sql.select(sql.func.min(LOG.c.position)).where(LOG.c.position > after))
        found: int | None = row[0]
        return found

    def before(self, moment: float) -> int:
        """Return the last position that arrived before a time: `at` ascends with positions."""
        low, high = 0, self.head
        with self._engine.connect() as connection:
            while low < high:
                middle = (low + high + 1) // 2
                query = sql.select(LOG.c.position, LOG.c.at).where(LOG.c.position <= middle)
                row = connection.execute(query.order_by(LOG.c.position.desc()).limit(1)).first()
                if row is None or row[1] < moment:
                    low = middle
                else:
                    high = row[0] - 1
        return low

    def marks(self) -> dict[str, Acknowledged]:
        """Return the acknowledged positions of each user."""
        return {
            user: Acknowledged(low, frozenset(msgspec.json.decode(beyond)), dropped)
            for user, low, beyond, dropped in self._found(sql.select(MARKS))
        }

    def backlog(self) -> Iterator[Row]:
        """Yield the backlog rows, by user and number."""
        query = sql.select(BACKLOG).order_by(BACKLOG.c.user, BACKLOG.c.number)
        with self._engine.connect() as connection:
            for user, number, body in connection.execute(query):
                yield Row(user, number, msgspec.json.decode(body))

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()


def _there(position: int) -> sql.ColumnElement[bool]:
    """Return the condition of the subscriptions at a position that no `trim` has reached."""
    there = LOG.c.subscription.is_not(None) & (LOG.c.position <= position)
    return there & (LOG.c.until.is_(None) | (LOG.c.until > position))


def _of(key: RequestKey) -> sql.ColumnElement[bool]:
    return (KEYS.c.user == key.user) & (KEYS.c.key == key.key)


def _request_of(connection: sql.Connection, key: RequestKey, moment: float) -> tuple[bytes, Placed] | None:
    """Return the request and place of a key; None if its filter or its lone subscription has ended."""
    query = sql.select(KEYS.c.request, KEYS.c.first, KEYS.c["count"])
    row = connection.execute(query.where(_of(key))).first()
    if row is None:
        return None
    first, count = int(row[1]), int(row[2])
    later = sql.exists().where(FILTERS.c.name == LOG.c.filter, FILTERS.c.since > first)  # another of its name
    found = connection.execute(sql.select(LOG.c.subscription, later).where(LOG.c.position == first)).first()
    if found is not None and found[1]:
        return None
    if count == 1 and (found is None or found[0] is not None):
        ends_later = LOG.c.expires.is_(None) | (LOG.c.expires > moment)
        live = sql.exists().where(LIVE, LOG.c.subscription == first, ends_later)
        if not connection.execute(sql.select(live)).scalar():
            return None
    return bytes(row[0]), Placed(first, count, False)


def _logged(row: Any) -> Logged:
    position, kind, *rest = row
    return Logged(position, Entry(Kind(kind), *rest))


class _Many:
    """A statement for many rows, without the work of SQLAlchemy for each row, which takes most of the time.

    `names` are those of its parameters, in the order of the values.
    """

    def __init__(
        self, statement: sql.Insert | sql.Delete, names: Sequence[str], dialect: sql.Dialect
    ) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self._text, self._names = str(compiled), names
        self._by_name = compiled.positiontup is None
        if not self._by_name and compiled.positiontup != list(names):
            raise ValueError(f"parameters in another order: {compiled.positiontup}")
        self._of_block: str | None = None
        if isinstance(statement, sql.Insert) and not self._by_name:
            values = self._text[self._text.rindex("(") :]
            self._of_block = self._text + f", {values}" * (BLOCK - 1)

    def __call__(self, connection: sql.Connection, rows: list[tuple[Any, ...]]) -> None:
        first, given = 0, list[Any](rows)
        if self._by_name:
            given = [dict(zip(self._names, row, strict=True)) for row in rows]
        elif self._of_block is not None:
            while first + BLOCK <= len(rows):
                block = tuple(chain.from_iterable(rows[first : first + BLOCK]))
                connection.exec_driver_sql(self._of_block, block)
                first += BLOCK
        if first < len(rows):
            connection.exec_driver_sql(self._text, given[first:])


def _into(table: sql.Table, names: Sequence[str] | None, dialect: sql.Dialect) -> _Many:
    """Return the statement that inserts some columns, by default all."""
    names = names or table.columns.keys()
    return _Many(sql.insert(table).values({name: sql.bindparam(name) for name in names}), names, dialect)


def _out_of(table: sql.Table, names: Sequence[str], dialect: sql.Dialect) -> _Many:
    return _Many(
        sql.delete(table).where(*(table.c[name] == sql.bindparam(name) for name in names)), names, dialect
    )


def _insert(connection: sql.Connection, table: sql.Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(sql.insert(table), rows)


def _supersede(connection: sql.Connection, entry: Entry, position: int) -> bool:
    there = (LOG.c.subscription == entry.subscription) & LOG.c.until.is_(None)
    if entry.kind == Kind.UNSUBSCRIBE and entry.expires is not None:
        there &= LOG.c.expires == entry.expires  # else it was replaced meanwhile, and has another expiry
    return connection.execute(sql.update(LOG).where(there).values(until=position)).rowcount == 1
