"""Compressed buffers in streams of Arrow: a small stream could then unpack to any size."""

from __future__ import annotations

import struct
from typing import Any, Final

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # types of messages, in Arrow's Message.fbs
BEGINNING: Final = b"\xff\xff\xff\xff"
"""The first bytes of such a stream; no JSON begins so."""


def has_compressed(pa: Any, body: bytes) -> bool:
    """Return whether a message of a stream is compressed; `pa` is pyarrow, whose errors this raises."""
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return False
        if _is_compressed(message.metadata.to_pybytes()):
            return True


def _is_compressed(message: bytes) -> bool:
    """Return whether a message says that its buffers are compressed: read from its flatbuffer."""

    def field(table: int, number: int) -> int:
        """Return the place of a field, or 0 if it is absent."""
        (back,) = struct.unpack_from("<i", message, table)
        (size,) = struct.unpack_from("<H", message, table - back)
        place = 4 + 2 * number
        offset = struct.unpack_from("<H", message, table - back + place)[0] if place < size else 0
        return table + int(offset) if offset else 0

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", message, at)[0])

    root = follow(0)
    kind, header = field(root, 1), field(root, 2)
    if not kind or not header or message[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return False
    batch = follow(header)
    if message[kind] == _DICTIONARY_BATCH:
        batch = follow(field(batch, 1))
    return field(batch, 3) != 0
