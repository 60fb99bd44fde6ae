"""Users and tokens, on SQLite and on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy

import postgresql
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users, UsersError

ADMIN = ["admin"]


@pytest.fixture
def opened(database):
    made = engine(database)
    yield made
    made.dispose()


@pytest.fixture
def users(opened):
    return Users(opened)


@postgresql.smoke
def test_users_and_tokens_are_read_as_they_were_given(users):
    users.add("ann", "hash", ADMIN)
    users.add("Zoë 😀", "other", ["subscriber", "publisher"])
    id = users.add_token("ann", b"d" * 32, "laptop", 7.0)
    known = users.read()
    assert {name: (one.hash, one.roles) for name, one in known.accounts.items()} == {
        "ann": ("hash", {"admin"}),
        "Zoë 😀": ("other", {"publisher", "subscriber"}),
    }
    token = known.tokens[b"d" * 32]
    assert (token.id, token.user, token.label, token.expires, token.revoked) == (
        id,
        "ann",
        "laptop",
        7.0,
        None,
    )
    assert token.good(6.9)
    assert not token.good(7.0)


@postgresql.smoke
def test_every_change_moves_the_stamp_also_for_another_one(users, opened):
    other = Users(opened)
    stamps = [other.stamp()]
    for change in (
        lambda: users.add("ann", "h", ADMIN),
        lambda: users.add("bob", "h", ["publisher"]),
        lambda: users.set_roles("bob", ["subscriber"]),
        lambda: users.set_password("bob", "i"),
        lambda: users.rehash(users.read().accounts["bob"], "j"),
        lambda: users.add_token("bob", b"d"),
        lambda: users.revoke(1),
        lambda: users.remove("bob"),
    ):
        change()
        stamps.append(other.stamp())
    assert stamps == sorted(set(stamps))
    assert other.read().stamp == stamps[-1]


def test_what_cannot_be_done_is_told_and_leaves_all_as_it_was(users):
    users.add("ann", "h", ADMIN)
    before = users.read()
    for told, change in (
        ("already", lambda: users.add("ann", "h", ADMIN)),
        ("empty", lambda: users.add("", "h", ADMIN)),
        ("colon", lambda: users.add("a:b", "h", ADMIN)),
        ("printable", lambda: users.add("a\nb", "h", ADMIN)),
        ("200", lambda: users.add("x" * 201, "h", ADMIN)),
        ("role", lambda: users.add("bob", "h", [])),
        ("no user", lambda: users.remove("bob")),
        ("no user", lambda: users.set_roles("bob", ADMIN)),
        ("no user", lambda: users.set_password("bob", "h")),
        ("no user", lambda: users.add_token("bob", b"d")),
        ("no token", lambda: users.revoke(9)),
    ):
        with pytest.raises(UsersError, match=told):
            change()
        assert users.read() == before, told


def test_the_first_user_is_an_admin_and_one_remains(users):
    with pytest.raises(UsersError, match="first user must be an admin"):
        users.add("bob", "h", ["publisher"])
    assert users.stamp() == 0
    users.add("ann", "h", ADMIN)
    users.add("bob", "h", ["publisher"])
    for change in (lambda: users.remove("ann"), lambda: users.set_roles("ann", ["publisher"])):
        with pytest.raises(UsersError, match="one admin has to remain"):
            change()
    users.set_roles("bob", ADMIN)
    users.remove("ann")
    users.remove("bob")
    assert users.read().accounts == {}


@postgresql.smoke
def test_a_user_who_comes_again_is_another_one_without_tokens(users):
    users.add("ann", "h", ADMIN)
    users.add_token("ann", b"d")
    first = users.read().accounts["ann"]
    users.remove("ann")
    assert users.read().gone == {"ann"}
    with pytest.raises(UsersError, match="still to remove their data"):
        users.add("ann", "h", ADMIN)
    users.forgotten("ann")
    users.add("ann", "h", ADMIN)
    known = users.read()
    assert known.gone == set()
    assert known.accounts["ann"].since != first.since
    assert known.tokens == {}
    users.rehash(first, "of the old password")
    assert users.read().accounts["ann"].hash == "h"
    users.set_password("ann", "new")
    assert users.read().accounts["ann"].since != known.accounts["ann"].since


@postgresql.smoke
def test_a_revoked_token_is_listed_and_not_read(users):
    users.add("ann", "h", ADMIN)
    id = users.add_token("ann", b"d")
    users.revoke(id)
    assert users.read().tokens == {}
    assert [one.id for one in users.tokens() if one.revoked] == [id]
    with pytest.raises(UsersError, match="already"):
        users.revoke(id)


@postgresql.smoke
def test_of_many_who_would_be_first_at_once_each_is_kept(opened):
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: Users(opened).add(f"user {n}", "h", ADMIN), range(8)))
    users = Users(opened)
    assert users.stamp() == 8
    assert len({one.since for one in users.read().accounts.values()}) == 8


def test_the_log_lives_in_the_same_database(opened):
    Users(opened).add("ann", "h", ADMIN)
    log = Log(opened)
    assert set(Users(opened).read().accounts) == {"ann"}
    log.close()


def test_nothing_that_helps_an_attacker_is_shown(users):
    users.add("ann", "the hash", ADMIN)
    users.add_token("ann", b"the digest")
    assert "the hash" not in repr(users.read())
    assert "the digest" not in repr((users.read(), users.tokens()))
    with pytest.raises(sqlalchemy.exc.IntegrityError) as caught:
        users.add_token("ann", b"the digest")
    assert "[SQL parameters hidden" in str(caught.value)
