"""Tokens: made here, shown once, and kept as SHA-256 only. They are random, so no slow hash is needed."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

PREFIX: Final = "rtf_"
"""Start of each token, by which scanners for secrets find it."""
BYTES: Final = 32
"""Random bytes of a token."""


def new() -> str:
    """Make a token."""
    return PREFIX + secrets.token_urlsafe(BYTES)


def digest(token: str) -> bytes:
    """Return the SHA-256 digest of a token, which the database stores instead of the token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
