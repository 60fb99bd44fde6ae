"""The events of a message: a JSON object, JSON lines, a JSON array or a stream of Arrow's."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from rtfilter.basics.errors import EventError
from rtfilter.basics.extras import needed
from rtfilter.events.arrow_streams import BEGINNING, has_compressed
from rtfilter.events.foreign import arrow_rows

MOST: Final = 100_000
"""Most events of a message."""
MOST_BYTES: Final = 2**26
"""Most bytes of the events of a message of Arrow's, as JSON."""
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def events_of(data: bytes) -> list[bytes]:
    """Return the events of a message as JSON texts, in order, which `EventFilter.stream` checks.

    Raises
    ------
    EventError
        The message is empty, has too many events, or is no array and no stream of Arrow's that can be read.
    """
    if data.startswith(b"{") and b"\n" not in data:
        return [data]
    if data.startswith(BEGINNING):
        found = _from_arrow(data)
    else:
        body = data.strip()
        if not body:
            raise EventError("an empty message has no event")
        if body.startswith(b"["):
            found = _from_array(body)
        elif b"\n" in body and body[: body.index(b"\n")].rstrip().endswith(b"}"):
            found = [line for line in map(bytes.strip, body.split(b"\n")) if line]
        else:  # one object, perhaps on several lines
            found = [body]
    if len(found) > MOST:
        raise EventError(f"a message has at most {MOST} events; publish several messages")
    return found


def _from_array(body: bytes) -> list[bytes]:
    try:
        return [bytes(one) for one in _decode_array(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"this is not JSON: {error}") from None


def _from_arrow(body: bytes) -> list[bytes]:
    with needed("arrow", "a message of Arrow's"):
        import pyarrow as pa
    found: list[bytes] = []
    size = 0
    try:
        if has_compressed(pa, body):
            raise EventError("this stream of Arrow's has compressed buffers; publish it without compression")
        with pa.ipc.open_stream(body) as stream:
            for batch in stream:
                if not 0 <= batch.num_rows <= MOST - len(found):
                    raise EventError(f"a message has 0 to {MOST} events, not {batch.num_rows}")
                batch.validate(full=True)
                for at in range(0, batch.num_rows, 100):
                    rows = [_encode(row) for row in arrow_rows(batch.slice(at, 100))]
                    found += rows
                    size += sum(map(len, rows))
                    if size > MOST_BYTES:
                        raise EventError("the events of this message take too much; publish several messages")
    except (pa.ArrowException, struct.error, ValueError, OverflowError, OSError, RecursionError) as error:
        if isinstance(error, EventError):
            raise
        raise EventError(f"this is no stream of Arrow's: {error}") from None
    return found
