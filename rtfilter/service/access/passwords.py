"""Passwords: hashed with argon2. Correct ones are remembered for minutes as a keyed hash."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from rtfilter.basics.extras import needed

with needed("service", "the server"):
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError
    from argon2.low_level import ARGON2_VERSION

LEAST: Final = 8
"""Fewest characters of a new password."""
MOST: Final = 1000
"""Most characters of a password."""
REMEMBERED: Final = 300.0
"""Seconds for which a correct password is remembered, and not hashed again."""


class Passwords:
    """Hashes of passwords, for any thread. Each call takes tens of milliseconds and megabytes.

    Parameters
    ----------
    hasher : argon2.PasswordHasher, optional
        By default the parameters that argon2-cffi recommends.
    """

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._nobodys = _nobodys(self._hasher)

    def hash(self, password: str) -> str:
        """Hash a new password. Raises `ValueError`, without the password, where it is too short or long."""
        if not LEAST <= len(password) <= MOST:
            raise ValueError(f"a password has {LEAST} to {MOST} characters")
        return self._hasher.hash(_encoded(password))

    def right(self, hash: str | None, password: str) -> bool:
        """Return whether a password has this hash; for None, return False after the same time."""
        try:
            self._hasher.verify(hash or self._nobodys, _encoded(password[:MOST]))
        except (VerificationError, InvalidHashError):
            return False
        return hash is not None and len(password) <= MOST

    def renewed(self, hash: str, password: str) -> str | None:
        """Return a new hash of a correct password if its hash has outdated parameters, or else None."""
        return self._hasher.hash(_encoded(password)) if self._hasher.check_needs_rehash(hash) else None


class Remembered:
    """Recent correct passwords: one of each user, in memory, as a hash with a random key.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._key = clock, secrets.token_bytes(32)
        self._right: dict[str, tuple[bytes, float]] = {}

    def add(self, user: str, since: int, password: str) -> None:
        """Remember a correct password; `since` is `Account.since`."""
        self._right[user] = self._hash(user, since, password), self._clock() + REMEMBERED

    def right(self, user: str, since: int, password: str) -> bool:
        """Return whether the password was verified recently."""
        known, until = self._right.get(user, (b"", 0.0))
        if until <= self._clock():
            self._right.pop(user, None)
            return False
        return hmac.compare_digest(known, self._hash(user, since, password))

    def _hash(self, user: str, since: int, password: str) -> bytes:
        return hmac.digest(self._key, _encoded(f"{since}:{len(user)}:{user}:{password}"), "sha256")


def _nobodys(hasher: PasswordHasher) -> str:
    """Return a hash of a password that nobody knows, with the parameters of all others."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
        for size in (hasher.salt_len, hasher.hash_len)
    )
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2{hasher.type.name.lower()}$v={ARGON2_VERSION}${costs}${salt}${digest}"


def _encoded(password: str) -> bytes:
    return password.encode(errors="surrogatepass")
