"""Who is let in, as whom, for how long, and how much of it."""

import asyncio
import logging
import threading
from contextlib import contextmanager

import pytest
from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import VerifyMismatchError

from rtfilter.service.access import Access, Limits, authenticate, tokens
from rtfilter.service.access.passwords import MOST, REMEMBERED, Passwords
from rtfilter.service.errors import BusyError, NotAuthenticatedError, TooManyError
from rtfilter.service.roles import Identity, Role
from rtfilter.store.database import engine
from rtfilter.store.users import Users

CHEAP = {"time_cost": 1, "memory_cost": 8, "parallelism": 1}
PASSWORD = "correct horse"


class Counted(Passwords):
    """Counts how often a password is verified."""

    verified = 0

    def right(self, hash, password):
        self.verified += 1
        return super().right(hash, password)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


DAY = 86_400.0
"""By so much the time of day is ahead of the other clock."""


@pytest.fixture
def passwords():
    return Counted(PasswordHasher(**CHEAP))


@pytest.fixture
def database(tmp_path):
    made = engine(f"sqlite:///{tmp_path}/log.sqlite")
    yield made
    made.dispose()


@pytest.fixture
def users(database, passwords):
    """An admin ann, and bob, who publishes."""
    made = Users(database)
    made.add("ann", passwords.hash("ann's password"), ["admin"])
    made.add("bob", passwords.hash(PASSWORD), ["publisher"])
    return made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def access(users, passwords, clock):
    with opened(users, passwords, clock) as made:
        yield made


@contextmanager
def opened(users, passwords, clock, limits=Limits()):  # noqa: B008
    made = Access(users, limits, passwords, clock, lambda: DAY + clock())
    try:
        yield made
    finally:
        made.close()


def token_of(users, name="bob", expires=None):
    made = tokens.new()
    return made, users.add_token(name, tokens.digest(made), "", expires)


def later(access, clock, who):
    """Whether `who` may stay, when the server has had the time to look."""

    async def ask():
        clock.now += authenticate.LOOK
        access.still(who)
        await access._looking
        return access.still(who)

    return asyncio.run(ask())


def refused(access, *password, token=None):
    with pytest.raises(NotAuthenticatedError) as caught:
        asyncio.run(access.token(token) if token is not None else access.password(*password))
    return str(caught.value)


def test_the_right_password_and_the_right_token_say_who_it_is(access, users, clock):
    token, _ = token_of(users)
    clock.now += 2 * authenticate.LOOK_FOR_NEW
    bob = ("bob", {Role.PUBLISHER})
    assert asyncio.run(access.password("bob", PASSWORD)) == bob
    assert asyncio.run(access.token(token)) == bob
    assert token.startswith("rtf_")


def test_what_is_wrong_is_told_in_the_same_words(access, users):
    token, _ = token_of(users)
    wrong = [
        ("bob", "ann's password"),
        ("bob", ""),
        ("bob", PASSWORD + "x" * MOST),
        ("bob", "\ud800"),
        ("Bob", PASSWORD),
        ("nobody", PASSWORD),
        ("", ""),
        ("\ud800", "\0"),
    ]
    told = {refused(access, *one) for one in wrong}
    told |= {refused(access, token=one) for one in ("", "rtf_", token[:-1], token + "x", "\ud800")}
    assert told == {authenticate.WRONG}


def test_an_unknown_user_costs_as_much_as_a_wrong_password(access, passwords):
    counts = []
    for user in ("bob", "nobody"):
        before = passwords.verified
        refused(access, user, "wrong")
        counts.append(passwords.verified - before)
    assert counts == [1, 1]


@pytest.mark.parametrize("kind", [Type.ID, Type.I, Type.D])
def test_who_is_unknown_has_a_hash_that_is_verified_as_others_are(kind):
    """One that could not be read would be refused at once."""
    hasher = PasswordHasher(2, 16, 2, 24, 20, type=kind)
    made = Passwords(hasher)
    assert extract_parameters(made._nobodys) == extract_parameters(made.hash(PASSWORD))
    assert made._nobodys != Passwords(hasher)._nobodys
    with pytest.raises(VerifyMismatchError):
        hasher.verify(made._nobodys, PASSWORD)
    assert not made.right(None, PASSWORD)


def test_a_password_that_was_right_is_not_hashed_again_for_minutes(access, passwords, clock):
    for _ in range(3):
        asyncio.run(access.password("bob", PASSWORD))
    assert passwords.verified == 1
    refused(access, "bob", "wrong password")
    refused(access, "ann", PASSWORD)
    assert passwords.verified == 3
    clock.now += REMEMBERED
    asyncio.run(access.password("bob", PASSWORD))
    assert passwords.verified == 4


def test_a_password_that_was_changed_is_wrong_from_then_on(access, users, passwords, clock):
    who = asyncio.run(access.password("bob", PASSWORD))
    users.set_password("bob", passwords.hash("another password"))
    assert not later(access, clock, who)
    refused(access, "bob", PASSWORD)
    asyncio.run(access.password("bob", "another password"))


def test_a_revoked_token_is_refused_and_ends_its_session_only(access, users, clock):
    (one, id), (other, _) = token_of(users), token_of(users)
    clock.now += authenticate.LOOK
    first, second = (asyncio.run(access.token(token)) for token in (one, other))
    assert later(access, clock, first)
    users.revoke(id)
    assert not later(access, clock, first)
    assert access._known.tokens
    assert later(access, clock, second)
    refused(access, token=one)


def test_a_token_expires(access, users, clock):
    token, _ = token_of(users, expires=DAY + clock.now + 60)
    clock.now += authenticate.LOOK
    who = asyncio.run(access.token(token))
    assert later(access, clock, who)
    clock.now += 60
    assert not later(access, clock, who)
    refused(access, token=token)


@pytest.mark.parametrize(
    "change",
    [
        lambda users: users.remove("bob"),
        lambda users: users.set_roles("bob", ["subscriber"]),
        lambda users: (
            users.remove("bob"),
            users.forgotten("bob"),
            users.add("bob", "other", ["publisher"]),
        ),
    ],
    ids=["removed", "other roles", "another of this name"],
)
def test_what_changes_a_user_ends_the_sessions(access, users, clock, change):
    token, _ = token_of(users)
    clock.now += authenticate.LOOK
    whos = [asyncio.run(access.password("bob", PASSWORD)), asyncio.run(access.token(token))]
    assert all(later(access, clock, who) for who in whos)
    change(users)
    ended = [not later(access, clock, who) for who in whos]
    assert ended == [True, True]


@pytest.mark.parametrize("change", ["removed", "another of this name"])
def test_a_password_counts_only_if_its_user_is_there_when_it_is_verified(users, clock, change):
    class Slow(Passwords):
        def right(self, hash, password):
            users.remove("bob")
            if change != "removed":
                users.forgotten("bob")
                users.add("bob", hash, ["publisher"])
            asyncio.run_coroutine_threadsafe(made._read(), loop).result(60)
            return super().right(hash, password)

    async def ask():
        nonlocal loop
        loop = asyncio.get_running_loop()
        with pytest.raises(NotAuthenticatedError):
            await made.password("bob", PASSWORD)

    loop = None
    with opened(users, Slow(PasswordHasher(**CHEAP)), clock) as made:
        asyncio.run(ask())


def test_nobody_is_there_and_gone(access, users, clock):
    """A removal may be seen in parts, where reads are no transaction."""
    users.remove("bob")
    known = users.read()
    access._known = known.__class__(known.stamp, {**access._known.accounts}, {}, known.gone)
    assert not access.gone
    access._known = known
    assert access.gone == {"bob"}


def test_a_token_from_another_process_is_good_at_once(access, tmp_path, clock):
    elsewhere = engine(f"sqlite:///{tmp_path}/log.sqlite")
    token, _ = token_of(Users(elsewhere))
    elsewhere.dispose()
    clock.now += 2 * authenticate.LOOK_FOR_NEW
    assert asyncio.run(access.token(token)).user == "bob"


def test_the_database_is_asked_once_a_second_at_most(access, monkeypatch, clock):
    asked = []
    monkeypatch.setattr(access._users, "stamp", lambda: asked.append(clock.now) or access._known.stamp)
    asyncio.run(access.password("bob", PASSWORD))
    for _ in range(25):
        clock.now += 0.1
        asyncio.run(access.password("bob", PASSWORD))
    assert 2 <= len(asked) <= 3


def test_hashes_with_other_parameters_are_renewed(access, users, database, clock):
    newer = Passwords(PasswordHasher(**CHEAP | {"memory_cost": 16}))
    before = users.read().accounts["bob"]
    with opened(users, newer, clock) as made:
        who = asyncio.run(made.password("bob", PASSWORD))
        after = users.read().accounts["bob"]
        assert "m=16" in after.hash
        assert after.since == before.since
        assert later(made, clock, who)


def test_too_many_passwords_at_once_are_told_to_come_again(users, clock):
    go = threading.Event()

    class Slow(Passwords):
        def right(self, hash, password):
            return go.wait(60) and super().right(hash, password)

    async def rush():
        tries = (made.password("nobody", "x", str(i)) for i in range(authenticate.MOST_WAITING))
        many = [asyncio.create_task(one) for one in tries]
        while made._waiting.total() < authenticate.MOST_WAITING:
            await asyncio.sleep(0)
        with pytest.raises(BusyError) as caught:
            await made.password("bob", PASSWORD)
        go.set()
        return caught.value, await asyncio.gather(*many, return_exceptions=True)

    with opened(users, Slow(PasswordHasher(**CHEAP)), clock) as made:
        error, others = asyncio.run(rush())
    assert error.retry_after
    assert {type(one) for one in others} == {NotAuthenticatedError}


def test_who_guesses_passwords_at_one_address_keeps_out_nobody_at_another(users, passwords, clock):
    async def rush():
        guesses = (made.password("bob", "x", "one") for _ in range(authenticate.MOST_WAITING))
        many = [asyncio.create_task(one) for one in guesses]
        while not made._waiting:
            await asyncio.sleep(0)
        assert made._waiting.total() == authenticate.MOST_OF_ADDRESS
        who = await made.password("bob", PASSWORD, "another")
        return who.user, {type(one) for one in await asyncio.gather(*many, return_exceptions=True)}

    with opened(users, passwords, clock) as made:
        assert asyncio.run(rush()) == ("bob", {NotAuthenticatedError, BusyError})


def test_without_users_everyone_is_let_in_until_there_is_one(database, passwords, clock):
    users = Users(database)
    with opened(users, passwords, clock) as made:
        assert made.open
        who = asyncio.run(made.password("who I say", ""))
        assert who.user == "who I say"
        refused(made, token="rtf_x")
        assert later(made, clock, who)
        users.add("ann", passwords.hash(PASSWORD), ["admin"])
        clock.now += 2 * authenticate.LOOK_FOR_NEW
        refused(made, "who I say", "")
        assert not made.open
        assert not made.still(who)
        users.remove("ann")
        clock.now += authenticate.LOOK
        refused(made, "who I say", "")
        assert not made.open


def test_where_users_cannot_be_read_nobody_new_is_let_in(access, monkeypatch, clock, database):
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE user_stamp RENAME TO gone")
    clock.now += authenticate.LOOK
    with pytest.raises(BusyError):
        asyncio.run(access.password("bob", PASSWORD))


def test_events_and_connections_of_a_user_are_limited(users, passwords, clock):
    ann, bob = Identity("ann"), Identity("bob")
    with opened(users, passwords, clock, Limits(5, 2, rate=10, burst=20)) as made:
        assert made.most_subscriptions == 5
        made.admit(bob, 20)
        with pytest.raises(TooManyError) as caught:
            made.admit(bob, 5)
        assert caught.value.retry_after == pytest.approx(0.5)
        made.admit(ann, 20)
        clock.now += 0.5
        made.admit(bob, 5)
        with made.connect(bob), made.connect(ann):
            with made.connect(bob), pytest.raises(TooManyError, match="2 connections"), made.connect(bob):
                pass
            with made.connect(bob):
                pass
        assert not made._connections


def test_names_that_rest_take_no_memory(users, passwords, clock, monkeypatch):
    monkeypatch.setattr(authenticate, "MOST_BUCKETS", 10)
    with opened(users, passwords, clock, Limits(rate=10)) as made:
        for number in range(100):
            made.admit(Identity(f"user {number}"), 1)
            clock.now += 1.0
        assert len(made._buckets) <= 10


def test_no_secret_is_in_the_file_in_errors_or_in_the_log(access, users, tmp_path, clock, caplog):
    caplog.set_level(logging.DEBUG)
    token, _ = token_of(users)
    clock.now += authenticate.LOOK
    shown = [repr(asyncio.run(access.token(token))), repr(asyncio.run(access.password("bob", PASSWORD)))]
    shown += [refused(access, "ann", PASSWORD), refused(access, token=token + "x")]
    shown += [repr(users.read()), repr(users.tokens()), repr(vars(access)), caplog.text]
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    for secret in (PASSWORD, "ann's password", token, token.removeprefix("rtf_")):
        assert not any(secret in text for text in shown)
        assert not any(secret.encode() in file for file in files)
