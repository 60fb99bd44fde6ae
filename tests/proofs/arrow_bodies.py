"""Streams of Arrow's with some bytes changed, into the reader of bodies."""

import io
from collections import Counter
from functools import cache

import numpy as np
import pyarrow as pa

from rtfilter import Schema
from rtfilter.basics.errors import RTFilterError
from rtfilter.service.doors import arrow
from rtfilter.service.parse import Parse

MOST = 1000
PARSE = Parse(Schema({"price": float, "symbol": str}))
WORDS = [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x40"]


@cache
def streams() -> list[bytes]:
    """Of every kind of column that is taken."""
    few = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"]))
    return [
        _stream({"price": [1.0, None, 3.0], "symbol": ["a", "bb", None]}),
        _stream({"list": [[1, 2], [], None], "struct": [{"a": 1, "b": "x"}] * 3}),
        _stream({"few": few, "text": pa.array(["x", "y", "z"], pa.large_string())}),
        _stream(
            {"at": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")), "day": pa.array([1, 2, 3], pa.date32())}
        ),
        _stream({"none": pa.nulls(3), "bool": [True, False, None]}),
    ]


def _stream(columns: dict[str, object]) -> bytes:
    batch, sink = pa.record_batch(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    return sink.getvalue()


def run(seed: int) -> Counter[str]:
    """One stream with one to four changes."""
    rng = np.random.default_rng(seed)
    body = bytearray(streams()[seed % len(streams())])
    for place in rng.integers(len(body) - 4, size=rng.integers(1, 5)).tolist():
        if rng.integers(2):
            body[place] = int(rng.integers(256))
        else:
            body[place : place + 4] = WORDS[rng.integers(len(WORDS))]
    return Counter({read(bytes(body)): 1})


def read(body: bytes) -> str:
    """What becomes of a body; `AssertionError` where it is neither taken nor refused."""
    try:
        table = arrow.table(body, MOST)
        stored = PARSE.objects(arrow.rows(table))
        if PARSE.columns(table) is None:
            PARSE.objects(arrow.rows(table), stored=False)
    except RTFilterError as error:
        return type(error).__name__
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    assert len(stored.table) <= MOST, "more events than are allowed"
    return "taken"
