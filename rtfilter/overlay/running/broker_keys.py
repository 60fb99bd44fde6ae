"""The key that all brokers of a network share, and the key of their clients.

The key of the clients is computed from the key of the brokers, and not the other way: so a network has one
secret, and a client with its own key cannot act as a broker.
"""

from __future__ import annotations

import hmac
import os
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from rtfilter.basics.errors import RTFilterError

BYTES: Final = 32
"""Bytes of a key. It is random, because an attacker can test guesses with a proof of possession."""


class KeyFileError(RTFilterError, ValueError):
    """A file has no key."""


class KeyRole(StrEnum):
    """The roles in a network that a key proves."""

    BROKER = "broker"
    """Also the rendezvous point and administrators."""
    CLIENT = "client"


class Key(NamedTuple):
    """A key, and the role that it gives its owner."""

    role: KeyRole
    secret: bytes

    @classmethod
    def new(cls) -> Key:
        """Return a new random key for brokers."""
        return cls(KeyRole.BROKER, secrets.token_bytes(BYTES))

    @classmethod
    def read(cls, file: Path) -> Key:
        """Return the key in a file, from `write`. Raises `KeyFileError` and `OSError`."""
        words = file.read_text(errors="replace").split()
        try:
            role, secret = KeyRole(words[0]), bytes.fromhex(words[1])
        except (IndexError, ValueError):
            role, secret = KeyRole.CLIENT, b""
        if len(words) != 2 or len(secret) != BYTES:
            raise KeyFileError(f"{file} holds no key; make one with: rtfilter broker key {file}")
        return cls(role, secret)

    def write(self, file: Path) -> None:
        """Write the key into a new file that only its owner can read. Raises `OSError`."""
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w") as stream:
            stream.write(f"{self.role} {self.secret.hex()}\n")

    def of(self, role: KeyRole) -> Key | None:
        """Return the key of a role, or None if this key does not include that role."""
        if role is self.role:
            return self
        return Key(role, self.derived(f"key of {role}s")) if self.role is KeyRole.BROKER else None

    def derived(self, *parts: str | bytes) -> bytes:
        """Return a secret for one use, which does not reveal the key; other parts give other secrets."""
        said = [part.encode() if isinstance(part, str) else part for part in parts]
        return mac(self.secret, b"".join(len(part).to_bytes(4, "big") + part for part in said))


def mac(secret: bytes, text: bytes) -> bytes:
    """Return the HMAC with SHA-256, 32 bytes, which only owners of the secret can compute."""
    return hmac.digest(secret, text, "sha256")
