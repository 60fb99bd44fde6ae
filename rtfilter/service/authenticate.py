"""Stage 1: who asks. A stage is any callable `(name, password) -> user`; raises `PermissionError`."""

from __future__ import annotations

from collections.abc import Callable

Authenticate = Callable[[str, str], str]
MOST = 200
"""Most characters of a name."""


def by_name(name: str, password: str) -> str:
    """Take everyone for who they say they are: for a server that only this machine can reach."""
    if not name or len(name) > MOST or not name.isprintable():
        raise PermissionError(f"give a user name of 1 to {MOST} printable characters")
    return name
