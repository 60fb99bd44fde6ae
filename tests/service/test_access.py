"""Who is let in, as whom, for how long, and how much of it."""

import asyncio
import logging
import threading
from contextlib import contextmanager

import pytest
from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import VerifyMismatchError
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.access import Access, UserLimits, guesses, tokens, user_checks
from rtfilter.service.access.passwords import MOST, REMEMBERED, Passwords, Remembered
from rtfilter.service.access.user_checks import Bucket
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, NotAuthenticatedError, TooManyError
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users

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
def opened(users, passwords, clock, limits=UserLimits()):  # noqa: B008
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
        clock.now += user_checks.LOOK
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
    clock.now += 2 * user_checks.LOOK_FOR_NEW
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
    assert told == {user_checks.WRONG}


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
    clock.now += user_checks.LOOK
    first, second = (asyncio.run(access.token(token)) for token in (one, other))
    assert later(access, clock, first)
    users.revoke(id)
    assert not later(access, clock, first)
    assert access._known.tokens
    assert later(access, clock, second)
    refused(access, token=one)


def test_a_token_expires(access, users, clock):
    token, _ = token_of(users, expires=DAY + clock.now + 60)
    clock.now += user_checks.LOOK
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
    clock.now += user_checks.LOOK
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
    clock.now += 2 * user_checks.LOOK_FOR_NEW
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


class Held(Counted):
    """Verifies nothing until it may; `asked` has what it verified, in order."""

    def __init__(self):
        super().__init__(PasswordHasher(**CHEAP))
        self.may, self.asked = threading.Event(), []

    def right(self, hash, password):
        self.may.wait()
        self.asked.append(password)
        return super().right(hash, password)


def crowded(users, clock, crowd, *last):
    """What is verified, and what comes out, where many ask and others while the first is being verified."""
    passwords = Held()

    async def rush(made):
        try:
            asked = [asyncio.create_task(made.password(*one)) for one in crowd]
            for _ in range(20):
                await asyncio.sleep(0)
            asked += [asyncio.create_task(made.password(*one)) for one in last]
            for _ in range(20):
                await asyncio.sleep(0)
        finally:
            passwords.may.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    with opened(users, passwords, clock) as made:
        found = asyncio.run(rush(made))
    return passwords.asked, found


def test_wrong_passwords_lock_out_a_name_from_an_address_for_a_while(access, passwords, clock):
    for name in ("bob", "nobody"):
        for _ in range(guesses.MOST_WRONG):
            refused(access, name, "wrong", "one")
        before, told = passwords.verified, []
        for password in ("wrong", PASSWORD):
            with pytest.raises(TooManyError) as caught:
                asyncio.run(access.password(name, password, "one"))
            told.append((str(caught.value), caught.value.retry_after))
        assert told == [(told[0][0], guesses.REFUSED)] * 2
        assert passwords.verified == before
    assert asyncio.run(access.password("ann", "ann's password", "one")).user == "ann"
    assert asyncio.run(access.password("bob", PASSWORD, "another")).user == "bob"
    clock.now += guesses.REFUSED
    assert asyncio.run(access.password("bob", PASSWORD, "one")).user == "bob"
    refused(access, "bob", "wrong", "one")
    refused(access, "bob", "wrong", "one")


def test_a_peer_with_all_addresses_of_a_network_has_one(access):
    for number in range(guesses.MOST_WRONG):
        refused(access, "bob", "wrong", f"2001:db8::{number}:1")
    with pytest.raises(TooManyError):
        asyncio.run(access.password("bob", PASSWORD, "2001:db8::1"))
    assert asyncio.run(access.password("bob", PASSWORD, "2001:db8:0:1::1")).user == "bob"


def test_the_right_password_is_verified_where_others_guess_at_its_address(users, clock):
    many = [("bob", f"wrong {number}", "one") for number in range(100)]
    asked, found = crowded(users, clock, many, ("ann", "ann's password", "one"))
    assert asked == [*(one[1] for one in many[: guesses.MOST_WRONG]), "ann's password"]
    assert found[-1].user == "ann"
    assert [type(one) for one in found[:-1]].count(TooManyError) == len(many) - guesses.MOST_WRONG


def test_the_right_password_passes_all_addresses_that_have_guessed(users, clock, monkeypatch):
    monkeypatch.setattr(guesses, "MOST_WAITING", 20)
    many = [(f"nobody {number}", f"{number}", f"{number % 10}") for number in range(40)]
    asked, found = crowded(users, clock, many, ("ann", "ann's password", "another"))
    assert asked.index("ann's password") <= 10  # the first of each address
    assert found[-1].user == "ann"
    kinds = [type(one) for one in found[:-1]]
    assert kinds.count(BusyError) == 20
    assert found[39].retry_after
    assert kinds.count(NotAuthenticatedError) == 20


def test_one_check_is_enough_for_a_password_that_comes_many_times_at_once(users, clock):
    asked, found = crowded(users, clock, [("bob", PASSWORD, "one")] * 50)
    assert asked == [PASSWORD]
    assert {one.user for one in found} == {"bob"}


def test_a_guess_counts_also_if_who_guesses_does_not_wait_for_the_answer(users, clock):
    passwords = Held()

    async def guess(made):
        for _ in range(guesses.MOST_WRONG):
            passwords.may.clear()
            one, left = (asyncio.create_task(made.password("bob", "wrong", "one")) for _ in range(2))
            for _ in range(20):
                await asyncio.sleep(0)
            left.cancel()
            one.cancel()
            await asyncio.gather(one, left, return_exceptions=True)
            passwords.may.set()
            await made.password("ann", "ann's password", "one")  # its turn comes afterwards
            made._remembered = Remembered(clock)
        with pytest.raises(TooManyError):
            await made.password("bob", PASSWORD, "one")

    with opened(users, passwords, clock) as made:
        asyncio.run(guess(made))
    assert passwords.asked == ["wrong", "ann's password"] * guesses.MOST_WRONG


@pytest.mark.parametrize("first", ["cancelled", "called"])
def test_who_leaves_the_line_when_called_calls_the_next(first):
    async def run():
        line, came = guesses.PasswordQueue(), []

        async def ask(name):
            await line.enter(name, 0)
            came.append(name)

        await ask("a")
        b, c = (asyncio.create_task(ask(name)) for name in "bc")
        await asyncio.sleep(0)
        for step in (b.cancel, lambda: line.leave("a"))[:: 1 if first == "cancelled" else -1]:
            step()
        await asyncio.gather(b, c, return_exceptions=True)
        line.leave("c")
        await ask("d")
        line.leave("d")
        return came, line._waiting, line._here

    assert asyncio.run(run()) == (["a", "c", "d"], {}, {})


def test_wrong_passwords_take_no_memory(access, clock, monkeypatch):
    monkeypatch.setattr(guesses, "MOST_COUNTED", 10)
    for number in range(100):
        refused(access, f"{number}" * 10_000, "wrong", f"{number}")
    assert len(access._guesses._wrong) == 10
    assert (
        max(len(key.user) for key in access._guesses._wrong if isinstance(key, guesses.UserAtNetwork)) < 300
    )


def test_without_users_everyone_is_let_in_until_there_is_one(database, passwords, clock):
    users = Users(database)
    with opened(users, passwords, clock) as made:
        assert made.open
        who = asyncio.run(made.password("who I say", ""))
        assert who.user == "who I say"
        refused(made, token="rtf_x")
        assert later(made, clock, who)
        users.add("ann", passwords.hash(PASSWORD), ["admin"])
        clock.now += 2 * user_checks.LOOK_FOR_NEW
        refused(made, "who I say", "")
        assert not made.open
        assert not made.still(who)
        users.remove("ann")
        clock.now += user_checks.LOOK
        refused(made, "who I say", "")
        assert not made.open


def test_where_users_cannot_be_read_nobody_new_is_let_in(access, monkeypatch, clock, database):
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE user_stamp RENAME TO gone")
    clock.now += user_checks.LOOK
    with pytest.raises(BusyError):
        asyncio.run(access.password("bob", PASSWORD))


def test_events_and_connections_of_a_user_are_limited(users, passwords, clock):
    ann, bob = Identity("ann"), Identity("bob")
    with opened(users, passwords, clock, UserLimits(5, 2, rate=2)) as made:
        assert made.most_subscriptions == 5
        made.admit(bob, 20)
        with pytest.raises(TooManyError) as caught:
            made.admit(bob, 5)
        assert caught.value.retry_after == pytest.approx(2.5)
        made.admit(ann, 20)
        clock.now += 2.5
        made.admit(bob, 5)
        with made.connect(bob), made.connect(ann):
            with made.connect(bob), pytest.raises(TooManyError, match="2 connections"), made.connect(bob):
                pass
            with made.connect(bob):
                pass
        assert not made._connections


def test_names_that_rest_take_no_memory(users, passwords, clock, monkeypatch):
    monkeypatch.setattr(user_checks, "MOST_BUCKETS", 10)
    with opened(users, passwords, clock, UserLimits(rate=10)) as made:
        for number in range(100):
            made.admit(Identity(f"user {number}"), 1)
            clock.now += 1.0
        assert len(made._buckets) <= 10


def test_no_secret_is_in_the_file_in_errors_or_in_the_log(access, users, tmp_path, clock, caplog):
    caplog.set_level(logging.DEBUG)
    token, _ = token_of(users)
    clock.now += user_checks.LOOK
    shown = [repr(asyncio.run(access.token(token))), repr(asyncio.run(access.password("bob", PASSWORD)))]
    shown += [refused(access, "ann", PASSWORD), refused(access, token=token + "x")]
    shown += [repr(users.read()), repr(users.tokens()), repr(vars(access)), caplog.text]
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    for secret in (PASSWORD, "ann's password", token, token.removeprefix("rtf_")):
        assert not any(secret in text for text in shown)
        assert not any(secret.encode() in file for file in files)


STEPS = st.lists(st.tuples(st.floats(0, 10), st.integers(1, 30)), max_size=40)


@given(rate=st.integers(1, 50), burst=st.integers(1, 40), steps=STEPS)
def test_no_more_comes_out_than_the_rate_a_burst_and_what_one_call_takes_ahead(rate, burst, steps):
    bucket, now, taken = Bucket(rate, burst, 0.0), 0.0, 0
    for wait, amount in steps:
        now += wait
        ahead = max(0, amount - burst)
        if bucket.take(amount, now) == 0.0:
            taken += amount
            assert taken <= (burst + rate * now + ahead) * (1 + 1e-9)


@given(rate=st.integers(1, 50), burst=st.integers(1, 40), amounts=st.lists(st.integers(1, 90), max_size=20))
def test_after_the_wait_that_was_told_it_is_given(rate, burst, amounts):
    bucket, now = Bucket(rate, burst, 0.0), 0.0
    for amount in amounts:
        wait = bucket.take(amount, now)
        if wait:
            now += wait * (1 + 1e-9) + 1e-9
            assert bucket.take(amount, now) == 0.0


def test_what_is_refused_costs_nothing_and_a_clock_that_goes_back_gives_nothing():
    bucket = Bucket(2.0, 4.0, 100.0)
    assert bucket.take(3, 100.0) == 0.0
    assert bucket.take(3, 100.0) == pytest.approx(1.0)
    assert bucket.take(3, 50.0) == pytest.approx(1.0)
    assert bucket.take(1, 100.0) == 0.0
    assert not bucket.full(101.9)
    assert bucket.full(102.0)
