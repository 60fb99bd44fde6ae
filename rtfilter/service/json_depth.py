"""The depth of JSON, found in its bytes before anything is built of it."""

from __future__ import annotations

from typing import Final

import numpy as np

from rtfilter.service.service_errors import NotJSONError

_OTHERS: Final = bytes(set(range(256)) - set(b"{[]}"))
_NEITHER: Final = bytes(set(range(256)) - set(b'{[]}"'))
_FLAT: Final = 3
"""Times that the innermost brackets are removed by `_is_flat`."""
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"{[")], _STEP[list(b"]}")] = 1, -1


def require_shallow(body: bytes, most: int) -> None:
    """Refuse JSON that nests deeper than `most`. Raises `NotJSONError`."""
    if _brackets(body) > most and not _is_flat(body, most) and _depth(body) > most:
        raise NotJSONError(f"objects and arrays may nest {most} deep at most")


def require_shallow_lines(body: bytes, most: int) -> None:
    """Refuse JSON lines of which one nests deeper than `most`. Raises `NotJSONError`."""
    starts = body.count(b"\n{")
    if _brackets(body) - starts < most:  # even if all that begin no line were in one
        return
    for line in body.split(b"\n"):
        require_shallow(line, most)


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _is_flat(text: bytes, most: int) -> bool:
    """Return whether brackets clearly do not nest deeper, such as those of a list of events."""
    if b"\\" in text:
        return False
    left = text.translate(None, delete=_NEITHER).replace(b'""', b"")  # all strings without brackets
    for _ in range(min(_FLAT, most // 2)):
        left = left.replace(b"{}", b"").replace(b"[]", b"")  # the innermost level, or two
    return not left


def _depth(text: bytes) -> int:
    """Return the depth of brackets outside of strings. There may be millions: no loop looks at each."""
    outside = b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    signs = np.frombuffer(outside.translate(None, delete=_OTHERS), np.uint8)
    return int(_STEP[signs].cumsum(dtype=np.int32).max(initial=0))
