"""Checks of users, passwords and tokens, which may change in the database at any time, and their limits."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from rtfilter.service.access import tokens
from rtfilter.service.access.guesses import Guesses, PasswordQueue, UserAtNetwork
from rtfilter.service.access.passwords import Passwords, Remembered
from rtfilter.service.roles import ALL, Identity, Role
from rtfilter.service.service_errors import BusyError, NotAuthenticatedError, TooManyError
from rtfilter.store.user_store import MOST_NAME, Known, User, Users

LOOK: Final = 1.0
"""Seconds between two checks of the database for changed users."""
PATIENCE: Final = 10.0
"""Seconds that the database may take to answer such a check."""
LOOK_FOR_NEW: Final = 0.05
"""Seconds between two checks while a name or token is unknown: it may be new."""
MOST_BUCKETS: Final = 10_000
"""Users with a token bucket; above this number, full buckets are removed."""
WRONG: Final = "the user name, password or token is wrong, revoked or expired"


class UserLimits(NamedTuple):
    """The limits of one user.

    Attributes
    ----------
    subscriptions, connections : int
    rate : float or None
        Events a second that are published, over time, ten seconds of them at once; None for any.
    """

    subscriptions: int = 1_000_000
    connections: int = 100
    rate: float | None = None


class Bucket:
    """A token bucket that starts full. Pure: the caller gives the time.

    Parameters
    ----------
    rate : float
        Tokens that come in a second.
    burst : float
        Tokens of a full bucket. A full bucket gives more than that at once, and then owes the rest.
    now : float
        Seconds of any clock that does not go back.
    """

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._level, self._at = rate, burst, float(burst), now

    def take(self, amount: float, now: float) -> float:
        """Take an amount as a whole, or nothing; return 0, or the seconds to wait for it."""
        self._fill(now)
        short = min(amount, self._burst) - self._level
        if short > 0:
            return short / self._rate
        self._level -= amount
        return 0.0

    def full(self, now: float) -> bool:
        """Return whether the bucket is full."""
        self._fill(now)
        return self._level >= self._burst

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now


class _Proven(Identity):
    """An identity with its proof: a password, as `User.since`, or a token, by its SHA-256 digest."""

    proof: int | bytes

    @classmethod
    def by(cls, account: User, proof: int | bytes) -> _Proven:
        made = cls(account.name, frozenset(Role(role) for role in account.roles))
        made.proof = proof
        return made


class Access:
    """Users, passwords, tokens and limits. For one event loop.

    While there is no user, every name is accepted; ``admin`` has all roles, the others all but that.

    Parameters
    ----------
    users : Users
        Read when made, and again soon after they changed.
    limits : UserLimits
    passwords : Passwords, optional
    clock, wall : callable
        Seconds: of any clock, and since 1970.
    """

    def __init__(
        self,
        users: Users,
        limits: UserLimits = UserLimits(),  # noqa: B008  # immutable
        passwords: Passwords | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.most_subscriptions, self._limits = limits.subscriptions, limits
        self._users, self._passwords = users, passwords or Passwords()
        self._clock, self._wall = clock, wall
        self._remembered = Remembered(clock)
        self._known: Known = users.read()
        self._looked = clock()
        self._looking: asyncio.Task[None] | None = None
        self._had_users = bool(self._known.accounts)
        self._hashing = ThreadPoolExecutor(1, "passwords")
        self._guesses, self._line = Guesses(clock), PasswordQueue()
        self._buckets: dict[str, Bucket] = {}
        self._connections: Counter[str] = Counter()

    def close(self) -> None:
        """Stop the thread that verifies passwords."""
        self._hashing.shutdown(cancel_futures=True)

    @property
    def open(self) -> bool:
        """True if there was no user since the server started: then every name is accepted without a check."""
        return not self._had_users

    @property
    def gone(self) -> Collection[str]:
        """Users that were removed, whose subscriptions and deliveries are still to be removed.

        A change in the database shows from about the second read on.
        """
        self._look_soon()
        return self._known.gone - self._known.accounts.keys()  # the read may have met a removal half

    async def forgotten(self, user: str) -> None:
        """Record that nothing is left of a removed user. Raises `BusyError` if that cannot be written."""
        try:
            await asyncio.to_thread(self._users.forgotten, user)
            self._known = await asyncio.to_thread(self._users.read)
        except SQLAlchemyError:
            raise BusyError("the users cannot be changed now; try again", 1.0) from None

    # -- authentication --------------------------------------------------------------------------------------

    async def password(self, user: str, password: str, address: str = "") -> Identity:
        """Return the identity of a user, by name and password.

        Parameters
        ----------
        user, password : str
        address : str
            Of the peer, where it is known.

        Raises
        ------
        NotAuthenticatedError
            There is no such user, or the password is wrong; both take the same time.
        TooManyError
            Too many passwords of this name from this address were wrong; the name need not exist.
        BusyError
            Too many passwords wait, or the database cannot be read.
        """
        await self._look(LOOK_FOR_NEW if self.open else LOOK)
        if self.open:
            return Identity(_name(user), _roles_of_anyone(user))
        place = UserAtNetwork.of(user, address)
        self._guesses.require_few(place)
        account = self._known.accounts.get(user)
        if account is None or not self._remembered.right(user, account.since, password):
            await self._look(LOOK_FOR_NEW)
            await self._line.enter(place.network, self._guesses.count(place.network))
            verified = self._verified(user, password, place)  # and counted, also if the caller leaves
            account = await asyncio.shield(asyncio.create_task(verified))
        if account is None:
            raise NotAuthenticatedError(WRONG)
        self._guesses.forget(place)
        return _Proven.by(account, account.since)

    async def token(self, token: str) -> Identity:
        """Return the identity of a user, by a token; raises as `password`."""
        await self._look(LOOK_FOR_NEW if self.open else LOOK)
        if self.open:
            raise NotAuthenticatedError("this server has no users, and so no tokens; give a user name")
        digest = tokens.digest(token)
        if digest not in self._known.tokens:
            await self._look(LOOK_FOR_NEW)
        account = self._owner(digest)
        if account is None:
            raise NotAuthenticatedError(WRONG)
        return _Proven.by(account, digest)

    def still(self, who: Identity) -> bool:
        """Return whether a user may stay connected: password or token are still valid, the roles unchanged.

        A change in the database counts from about the second call on, if the calls are a second apart.
        """
        self._look_soon()
        if not isinstance(who, _Proven):
            return self.open
        if isinstance(who.proof, bytes):
            account = self._owner(who.proof)
        else:
            account = self._known.accounts.get(who.user)
            if account is not None and account.since != who.proof:
                return False
        return account is not None and account.roles == who.roles

    def require_still(self, who: Identity) -> None:
        """Raise `NotAuthenticatedError` if a user may not stay: another one may have the name by now."""
        if not self.still(who):
            raise no_longer()

    def roles(self, user: str) -> frozenset[Role]:
        """Return the present roles of a user, none if there is no such user.

        A change in the database counts as in `still`.
        """
        self._look_soon()
        if self.open:
            return _roles_of_anyone(user)
        account = self._known.accounts.get(user)
        return frozenset() if account is None else frozenset(Role(role) for role in account.roles)

    def _owner(self, digest: bytes) -> User | None:
        token = self._known.tokens.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest) or not token.good(self._wall()):
            return None
        return self._known.accounts.get(token.user)

    async def _verified(self, user: str, password: str, place: UserAtNetwork) -> User | None:
        """Return the account of a user if the password is right, then leave the line."""
        try:
            self._guesses.require_few(place)
            account = self._known.accounts.get(user)
            if account is not None and self._remembered.right(user, account.since, password):
                return account  # the same password came several times at once
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._hashing, self._verify, account, password)
            if account is None or not right:
                self._guesses.add(place)
                return None
            present = self._known.accounts.get(user)  # another user may have got the name
            if present is None or present.since != account.since:
                return None
            self._remembered.add(user, present.since, password)
            return present
        finally:
            self._line.leave(place.network)

    def _verify(self, account: User | None, password: str) -> bool:
        right = self._passwords.right(None if account is None else account.hash, password)
        if right and account is not None:
            renewed = self._passwords.renewed(account.hash, password)
            if renewed is not None:
                with suppress(SQLAlchemyError):  # the next login tries again
                    self._users.rehash(account, renewed)
        return right

    # -- changes in the database -----------------------------------------------------------------------------

    async def _look(self, every: float) -> None:
        """Read the users again if they changed; check for changes at most once in `every` seconds."""
        if self._clock() - self._looked < every:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._task())
        except (SQLAlchemyError, TimeoutError):
            raise BusyError("the users cannot be read now; try again", 1.0) from None

    def _look_soon(self) -> None:
        if self._clock() - self._looked >= LOOK:
            self._task().add_done_callback(_heard)

    def _task(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._read())
        return self._looking

    async def _read(self) -> None:
        started = self._clock()
        known = await asyncio.to_thread(self._changed)
        if known is not None:
            self._known = known
            self._had_users = self._had_users or bool(known.accounts)
        self._looked = started

    def _changed(self) -> Known | None:
        return None if self._users.stamp() == self._known.stamp else self._users.read()

    # -- limits ----------------------------------------------------------------------------------------------

    def admit(self, who: Identity, events: int) -> None:
        """Count events that a user publishes now, or refuse them.

        Raises
        ------
        TooManyError
            The user exceeds the rate; `retry_after` has the seconds to wait.
        """
        rate = self._limits.rate
        if rate is None:
            return
        now = self._clock()
        bucket = self._buckets.get(who.user)
        if bucket is None:
            if len(self._buckets) >= MOST_BUCKETS:
                self._buckets = {user: one for user, one in self._buckets.items() if not one.full(now)}
            bucket = self._buckets[who.user] = Bucket(rate, max(1.0, 10 * rate), now)
        wait = bucket.take(events, now)
        if wait:
            raise TooManyError(f"more than {rate:g} events a second; wait and try again", wait)

    @contextmanager
    def connect(self, who: Identity) -> Iterator[None]:
        """Count a connection of a user while it is open. Raises `TooManyError`."""
        if self._connections[who.user] >= self._limits.connections:
            raise TooManyError(f"more than {self._limits.connections} connections; close one")
        self._connections[who.user] += 1
        try:
            yield
        finally:
            self._connections[who.user] -= 1
            if not self._connections[who.user]:
                del self._connections[who.user]


def no_longer() -> NotAuthenticatedError:
    """Return the error for a user who may not stay."""
    return NotAuthenticatedError("your password, token or roles are no longer valid; connect again")


def _name(user: str) -> str:
    if not user or len(user) > MOST_NAME or not user.isprintable() or ":" in user:
        raise NotAuthenticatedError(
            f"give a user name of 1 to {MOST_NAME} printable characters, without a colon"
        )
    return user


def _roles_of_anyone(user: str) -> frozenset[Role]:
    """Return the roles by name where there are no users."""
    return ALL - {Role.SITE} if user == "admin" else ALL - {Role.SITE, Role.ADMIN}


def _heard(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # marks the error as retrieved; the next `_look` reports it
