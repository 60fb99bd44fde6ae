"""Users and their tokens, in a database that several processes use at the same time.

Passwords are stored as argon2 hashes, tokens as SHA-256: no secret is readable here. Every change raises a
stamp, by which other processes notice that they have to read again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sql

from rtfilter.basics.errors import RTFilterError
from rtfilter.basics.text import shown
from rtfilter.store.database import WHOLE, writing

ADMIN: Final = "admin"
"""The role of the first user."""
MOST_NAME: Final = 200
"""Most characters of a name or label."""
_MAKING: Final = 0x7274_6670  # the advisory lock of PostgreSQL, while the tables are made
_TABLES = sql.MetaData()
_ACCOUNTS = sql.Table(
    "user_accounts",
    _TABLES,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("hash", sql.Text, nullable=False),
    sql.Column("roles", sql.Text, nullable=False),  # with commas
    sql.Column("made", sql.Float, nullable=False),
    sql.Column("since", WHOLE, nullable=False),
)
_TOKENS = sql.Table(
    "user_tokens",
    _TABLES,
    sql.Column("id", WHOLE, primary_key=True),
    sql.Column("digest", sql.LargeBinary, nullable=False, unique=True),
    sql.Column("owner", sql.Text, nullable=False, index=True),
    sql.Column("label", sql.Text, nullable=False),
    sql.Column("made", sql.Float, nullable=False),
    sql.Column("expires", sql.Float),
    sql.Column("revoked", sql.Float),
    sqlite_autoincrement=True,
)
_GONE = sql.Table("user_gone", _TABLES, sql.Column("name", sql.Text, primary_key=True))
_STAMP = sql.Table("user_stamp", _TABLES, sql.Column("stamp", WHOLE, nullable=False))


class UsersError(RTFilterError, ValueError):
    """A change of users or tokens that is refused; nothing of it was done."""


@dataclass(frozen=True, slots=True)
class User:
    """A user, made at a time in Unix seconds."""

    name: str
    hash: str = field(repr=False)
    """The argon2 hash of the password."""
    roles: frozenset[str]
    made: float
    since: int
    """The stamp at which the password was set: no two passwords have the same one."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a user; times in Unix seconds."""

    id: int
    digest: bytes = field(repr=False)
    """SHA-256 of the token."""
    user: str
    label: str
    made: float
    expires: float | None
    revoked: float | None

    def good(self, now: float) -> bool:
        """Return whether the token is valid at a time, in Unix seconds."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True, slots=True)
class Known:
    """All users and the tokens that are not revoked, as of a stamp.

    `gone` are removed users, whose subscriptions and deliveries are still to be removed.
    """

    stamp: int
    accounts: dict[str, User]
    tokens: dict[bytes, Token] = field(repr=False)
    gone: frozenset[str] = frozenset()


class Users:
    """Users and tokens, for any thread. Missing tables are made; errors of the engine show no values then."""

    def __init__(self, engine: sql.Engine) -> None:
        engine.hide_parameters = True
        self._engine, self._writing = engine, writing(engine)
        if not sql.inspect(engine).has_table(_STAMP.name):
            with self._writing.begin() as connection:
                if engine.dialect.name == "postgresql":
                    connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
                _TABLES.create_all(connection)
                if connection.execute(sql.select(_STAMP.c.stamp)).first() is None:
                    connection.execute(sql.insert(_STAMP).values(stamp=0))

    # -- reading ---------------------------------------------------------------------------------------------

    def stamp(self) -> int:
        """Return a number that is another one after each change."""
        with self._engine.connect() as connection:
            return _stamp(connection)

    def read(self) -> Known:
        """Return all users, and the tokens that are not revoked."""
        with self._engine.connect() as connection:
            stamp = _stamp(connection)  # first, so that a change in between is read again next time
            accounts = {one.name: one for one in map(_account, connection.execute(sql.select(_ACCOUNTS)))}
            live = sql.select(_TOKENS).where(_TOKENS.c.revoked.is_(None))
            tokens = {one.digest: one for one in map(_token, connection.execute(live))}
            gone = frozenset(connection.execute(sql.select(_GONE.c.name)).scalars())
        return Known(stamp, accounts, tokens, gone)

    def tokens(self) -> list[Token]:
        """Return all tokens, by id, also the revoked ones."""
        with self._engine.connect() as connection:
            return [_token(row) for row in connection.execute(sql.select(_TOKENS).order_by(_TOKENS.c.id))]

    # -- changes; each raises UsersError ---------------------------------------------------------------------

    def add(self, name: str, hash: str, roles: Collection[str]) -> None:
        """Add a user. The first one must be an admin."""
        _check(name, "a user's name")
        if not name or name != name.strip() or ":" in name:
            raise UsersError("a user's name is not empty, and has no colon and no spaces around it")
        with self._change() as (connection, stamp):
            taken = sql.select(_ACCOUNTS.c.name).where(_ACCOUNTS.c.name == name)
            if connection.execute(taken).first() is not None:
                raise UsersError(f"there is a user {shown(name)} already; choose another name")
            if connection.execute(sql.select(_GONE.c.name).where(_GONE.c.name == name)).first() is not None:
                raise UsersError(
                    f"a user {shown(name)} was removed, and the server has still to remove their data; "
                    "start it, or wait a moment"
                )
            values = {"name": name, "hash": hash, "roles": _joined(roles), "made": time.time()}
            connection.execute(sql.insert(_ACCOUNTS).values(**values, since=stamp))
            if ADMIN not in roles:
                _need_admin(connection, "the first user must be an admin: give the role admin")

    def remove(self, name: str) -> None:
        """Remove a user and the tokens, but not the last admin while there are other users.

        The server removes the user's data; until then the name cannot be used again.
        """
        with self._change() as (connection, _):
            _hit(connection.execute(sql.delete(_ACCOUNTS).where(_ACCOUNTS.c.name == name)), name)
            connection.execute(sql.delete(_TOKENS).where(_TOKENS.c.owner == name))
            connection.execute(sql.insert(_GONE).values(name=name))
            _need_admin(connection, _LAST)

    def forgotten(self, name: str) -> None:
        """Release the name of a removed user, of whose data nothing is left."""
        with self._change() as (connection, _):
            connection.execute(sql.delete(_GONE).where(_GONE.c.name == name))

    def set_roles(self, name: str, roles: Collection[str]) -> None:
        """Set the roles of a user; one admin has to remain."""
        self._update(name, roles=_joined(roles))

    def set_password(self, name: str, hash: str) -> None:
        """Set the password of a user, by its hash."""
        self._update(name, True, hash=hash)

    def rehash(self, account: User, hash: str) -> None:
        """Replace the hash of an unchanged password."""
        same = (_ACCOUNTS.c.name == account.name) & (_ACCOUNTS.c.since == account.since)
        with self._change() as (connection, _):
            connection.execute(sql.update(_ACCOUNTS).where(same).values(hash=hash))

    def add_token(self, user: str, digest: bytes, label: str = "", expires: float | None = None) -> int:
        """Add a token of a user; return its id."""
        _check(label, "a label")
        with self._change() as (connection, _):
            owner = sql.select(_ACCOUNTS.c.name).where(_ACCOUNTS.c.name == user)
            if connection.execute(owner).first() is None:
                raise UsersError(f"there is no user {shown(user)}")
            values = {"digest": digest, "owner": user, "label": label, "made": time.time()}
            put = connection.execute(sql.insert(_TOKENS).values(**values, expires=expires))
            assert put.inserted_primary_key is not None
            return int(put.inserted_primary_key[0])

    def revoke(self, id: int) -> None:
        """Revoke a token."""
        with self._change() as (connection, _):
            live = (_TOKENS.c.id == id) & _TOKENS.c.revoked.is_(None)
            if not connection.execute(sql.update(_TOKENS).where(live).values(revoked=time.time())).rowcount:
                raise UsersError(f"there is no token {id}, or it is revoked already")

    def _update(self, name: str, moves: bool = False, **values: Any) -> None:
        with self._change() as (connection, stamp):
            if moves:
                values["since"] = stamp
            change = sql.update(_ACCOUNTS).where(_ACCOUNTS.c.name == name).values(**values)
            _hit(connection.execute(change), name)
            _need_admin(connection, _LAST)

    @contextmanager
    def _change(self) -> Iterator[tuple[sql.Connection, int]]:
        """Begin a transaction with a new stamp. Changes wait for each other, since all write its row."""
        with self._writing.begin() as connection:
            connection.execute(sql.update(_STAMP).values(stamp=_STAMP.c.stamp + 1))
            yield connection, _stamp(connection)


_LAST: Final = "one admin has to remain while there are users: first give another user the role admin"


def _stamp(connection: sql.Connection) -> int:
    return int(connection.execute(sql.select(_STAMP.c.stamp)).scalar_one())


def _account(row: Any) -> User:
    return User(row.name, row.hash, frozenset(row.roles.split(",")), row.made, row.since)


def _token(row: Any) -> Token:
    return Token(row.id, bytes(row.digest), row.owner, row.label, row.made, row.expires, row.revoked)


def _joined(roles: Collection[str]) -> str:
    if not roles:
        raise UsersError("a user needs a role; give at least one")
    return ",".join(sorted(set(roles)))


def _check(text: str, what: str) -> None:
    if len(text) > MOST_NAME or not text.isprintable():
        raise UsersError(f"{what} has at most {MOST_NAME} characters, all of them printable")


def _hit(result: sql.CursorResult[Any], name: str) -> None:
    if not result.rowcount:
        raise UsersError(f"there is no user {shown(name)}")


def _need_admin(connection: sql.Connection, otherwise: str) -> None:
    roles = [row.roles.split(",") for row in connection.execute(sql.select(_ACCOUNTS.c.roles))]
    if roles and not any(ADMIN in one for one in roles):
        raise UsersError(otherwise)
