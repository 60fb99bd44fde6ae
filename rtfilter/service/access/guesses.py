"""Wrong passwords by name and address, and the order in which passwords are verified."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from rtfilter.basics.sockets import network
from rtfilter.service.service_errors import BusyError, TooManyError
from rtfilter.store.user_store import MOST_NAME

MOST_WRONG: Final = 10
"""Wrong passwords of a name at an address after which the name is refused there."""
REFUSED: Final = 60.0
"""Seconds after the last of these for which the name is refused."""
COUNTED: Final = 600.0
"""Seconds after the last wrong password in which it counts."""
MOST_COUNTED: Final = 10_000
"""Most counts of wrong passwords; above this number, the oldest is removed."""
MOST_WAITING: Final = 1000
"""Most passwords that wait to be verified: more than one address has unauthenticated connections."""


class UserAtNetwork(NamedTuple):
    """A name at an address."""

    user: str
    network: str

    @classmethod
    def of(cls, user: str, address: str) -> UserAtNetwork:
        """Return the place of a user, who may have all addresses of a network."""
        return cls(user[: MOST_NAME + 1], network(address))


class Guesses:
    """The wrong passwords of each name at each address, and of each address.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: dict[
            UserAtNetwork | str, tuple[int, float]
        ] = {}  # number and last time, the oldest first

    def add(self, place: UserAtNetwork) -> None:
        """Count a wrong password."""
        for key in (place, place.network):
            count = self.count(key) + 1
            self._wrong.pop(key, None)
            self._wrong[key] = count, self._clock()
        while len(self._wrong) > MOST_COUNTED:
            del self._wrong[next(iter(self._wrong))]

    def forget(self, place: UserAtNetwork) -> None:
        """Count from zero again, after the right password."""
        self._wrong.pop(place, None)

    def require_few(self, place: UserAtNetwork) -> None:
        """Raise `TooManyError` while a name is refused at an address."""
        if self.count(place) >= MOST_WRONG:
            left = self._wrong[place][1] + REFUSED - self._clock()
            if left > 0:
                raise TooManyError("too many wrong passwords of this name at your address; use a token", left)

    def count(self, key: UserAtNetwork | str) -> int:
        """Return the number of wrong passwords of a name at an address, or of all names there."""
        count, last = self._wrong.get(key, (0, 0.0))
        return count if self._clock() - last < COUNTED else 0


class PasswordQueue:
    """Passwords that wait for the thread that verifies them.

    Those of addresses with the fewest passwords that were wrong, or waited before, come first.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[bool], int] = {}
        self._here: Counter[str] = Counter()  # those that wait, and the one that is being verified
        self._works = False

    async def enter(self, network: str, wrong: int) -> None:
        """Wait for the thread; then call `leave`. Raises `BusyError` for the last one of too many.

        Parameters
        ----------
        network : str
        wrong : int
            Wrong passwords from there.
        """
        rank = wrong + self._here[network]
        self._here[network] += 1
        if not self._works:
            self._works = True
            return
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = rank
        if len(self._waiting) > MOST_WAITING:
            self._call(max(reversed(self._waiting), key=self._waiting.__getitem__), False)
        try:
            comes = await turn
        except BaseException:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled() and turn.result():
                self._next()
            self._go(network)
            raise
        if not comes:
            self._go(network)
            raise BusyError("too many passwords wait to be verified; try again, or use a token", 1.0)

    def leave(self, network: str) -> None:
        """Let the next one come."""
        self._go(network)
        self._next()

    def _go(self, network: str) -> None:
        self._here[network] -= 1
        if not self._here[network]:
            del self._here[network]

    def _next(self) -> None:
        self._works = False
        while self._waiting and not self._works:
            self._works = self._call(min(self._waiting, key=self._waiting.__getitem__), True)

    def _call(self, turn: asyncio.Future[bool], comes: bool) -> bool:
        """Tell one that waits whether its turn has come; return False if it has left."""
        del self._waiting[turn]
        if turn.done():
            return False
        turn.set_result(comes)
        return True
