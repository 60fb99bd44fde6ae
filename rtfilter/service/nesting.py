"""How deep JSON nests, told from its bytes before anything is built of it."""

from __future__ import annotations

from rtfilter.service.errors import NotJSONError


def require_shallow(body: bytes, most: int) -> None:
    """Refuse JSON, or lines of it, that nests deeper than `most`. Raises `NotJSONError`."""
    if _brackets(body) <= most:
        return
    for line in body.splitlines() if b"\n" in body else [body]:
        if _brackets(line) > most and _depth(line) > most:
            raise NotJSONError(f"objects and arrays may nest {most} deep at most")


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _depth(text: bytes) -> int:
    """How deep brackets nest, of those outside of strings."""
    depth = deepest = 0
    for part in text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]:
        for sign in part:
            if sign in b"{[":
                depth += 1
                deepest = max(deepest, depth)
            elif sign in b"}]":
                depth -= 1
    return deepest
