"""Tokens: made here, shown once, and kept as SHA-256 only. They are random, so no slow hash is needed."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

PREFIX: Final = "rtf_"
"""So that programs that look for secrets find them."""
BYTES: Final = 32
"""Random bytes of a token."""


def new() -> str:
    """Make a token."""
    return PREFIX + secrets.token_urlsafe(BYTES)


def digest(token: str) -> bytes:
    """Return the digest of a token, which the database keeps in its place."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
