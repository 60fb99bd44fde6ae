"""The key that all brokers of a network share, and the lesser one of their clients.

The key of the clients is computed from that of the brokers, and not the other way: so a network has one
secret, and a client that holds the lesser one cannot pass for a broker.
"""

from __future__ import annotations

import hmac
import os
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from rtfilter.errors import RTFilterError

BYTES: Final = 32
"""Of a key; it is drawn at random, since what proves that one has it can be used to try guesses."""


class KeyFileError(RTFilterError, ValueError):
    """A file that holds no key."""


class Role(StrEnum):
    """The roles in a network that a key proves."""

    BROKER = "broker"
    """Also the rendezvous point, and whoever administers."""
    CLIENT = "client"


class Key(NamedTuple):
    """A key.

    Attributes
    ----------
    role : Role
        What it makes of the one who has it.
    secret : bytes
    """

    role: Role
    secret: bytes

    @classmethod
    def new(cls) -> Key:
        """A new key for brokers, at random."""
        return cls(Role.BROKER, secrets.token_bytes(BYTES))

    @classmethod
    def read(cls, file: Path) -> Key:
        """The key in a file, as `write` has written it. Raises `KeyFileError` and `OSError`."""
        words = file.read_text(errors="replace").split()
        try:
            role, secret = Role(words[0]), bytes.fromhex(words[1])
        except (IndexError, ValueError):
            role, secret = Role.CLIENT, b""
        if len(words) != 2 or len(secret) != BYTES:
            raise KeyFileError(f"{file} holds no key; make one with: rtfilter broker key {file}")
        return cls(role, secret)

    def write(self, file: Path) -> None:
        """Write it into a new file that only its owner can read. Raises `OSError`."""
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w") as stream:
            stream.write(f"{self.role} {self.secret.hex()}\n")

    def of(self, role: Role) -> Key | None:
        """The key of a role, where this one gives it."""
        if role is self.role:
            return self
        return Key(role, self.derived(f"key of {role}s")) if self.role is Role.BROKER else None

    def derived(self, *parts: str | bytes) -> bytes:
        """A secret for one use, from which the key is not found; the uses are told apart by the parts."""
        said = [part.encode() if isinstance(part, str) else part for part in parts]
        return mac(self.secret, b"".join(len(part).to_bytes(4, "big") + part for part in said))


def mac(secret: bytes, text: bytes) -> bytes:
    """HMAC with SHA-256: 32 bytes, which only one who has the secret can compute."""
    return hmac.digest(secret, text, "sha256")
