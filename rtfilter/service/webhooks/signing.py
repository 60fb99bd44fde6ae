"""Secrets of webhooks, and signatures by the Standard Webhooks convention.

A secret is made from the key of the server and a salt, which is in the database: so neither the database nor
the key alone reveals a secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

FILE: Final = "webhooks.key"
"""The file of the key in the folder of the server."""
SIZE: Final = 32
"""Bytes of the key, and of a secret."""


class ServerKey:
    """The key of the server, in a file that is made at the first use.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._key: bytes | None = None

    def read(self) -> bytes | None:
        """Return the key; None if there is no file, or the file is damaged. Raises `OSError`."""
        if self._key is None:
            try:
                found = self._file.read_bytes()
            except FileNotFoundError:
                return None
            self._key = found if len(found) == SIZE else None
        return self._key

    def made(self) -> bytes:
        """Return the key; make one if there is none. Raises `OSError`."""
        return self.read() or self._make()

    def _make(self) -> bytes:
        """Write a new key under a temporary name first: a kill leaves a whole file, or none."""
        key, aside = os.urandom(SIZE), self._file.with_suffix(".new")
        aside.unlink(missing_ok=True)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._file)
        self._key = key
        return key


def mark(key: bytes) -> bytes:
    """Return a digest that distinguishes a key from others, and reveals nothing about it."""
    return hmac.digest(key, b"mark", "sha256")[:8]


def secret(key: bytes, user: str, salt: bytes) -> bytes:
    """Return the secret of a user's webhook."""
    return hmac.digest(key, b"secret\0" + salt + user.encode(), "sha256")


def shown(secret: bytes) -> str:
    """Return a secret as its user sees it."""
    return "whsec_" + base64.b64encode(secret).decode()


def identify(salt: bytes, positions: list[int]) -> str:
    """Return the id of a request, which is the same for the same deliveries."""
    hashed = hashlib.sha256(salt + b"".join(at.to_bytes(8, "big") for at in positions))
    return "msg_" + hashed.hexdigest()[:32]


def headers(secret: bytes, id: str, moment: float, body: bytes) -> dict[str, str]:
    """Return headers that prove the sender and the time of a body; `moment` is in seconds since 1970."""
    stamp = str(int(moment))
    digest = hmac.digest(secret, f"{id}.{stamp}.".encode() + body, "sha256")
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature}
