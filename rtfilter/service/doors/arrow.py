"""Events from a stream of Arrow's, which may come from anyone: nothing is unpacked that could become huge."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from typing import Any, Final

from rtfilter.basics.errors import EventError
from rtfilter.basics.extras import install
from rtfilter.events.arrow_streams import has_compressed
from rtfilter.events.foreign import arrow_rows, is_uuid
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.service_errors import TooLargeError

WIDEST: Final = 2**24
"""Bytes that the values of a dictionary column may take once they are written out."""
MOST_NAMES: Final = 2**26
"""Bytes that the names of columns may take once each row has them; each counts some bytes more, as a null."""


def table(body: bytes, most: int) -> Any:
    """Return a stream as a `pyarrow.Table` of at most `most` rows, each of which Python can read.

    Raises
    ------
    EventError
        The stream is damaged.
    MediaTypeError
        pyarrow is not installed, or the stream has compressed buffers or types that no event has.
    TooLargeError
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise MediaTypeError(f"this server does not read Arrow: {install('arrow')}") from None
    found: list[Any] = []
    count = 0
    try:
        if has_compressed(pa, body):
            raise MediaTypeError("this stream has compressed buffers; send it without compression")
        with pa.ipc.open_stream(body) as stream:
            for field in stream.schema:
                _require_usable(pa, field.name, field.type, top=True)
            width = sum(_width(pa, field) for field in stream.schema)
            for batch in stream:
                if batch.num_rows < 0:  # `validate` takes it, and `len` fails
                    raise EventError("this is no stream of Arrow's: a batch has a negative number of rows")
                count += batch.num_rows
                if count > most:
                    raise TooLargeError(f"a request has at most {most} events; send several")
                if count * width > MOST_NAMES:
                    raise TooLargeError("the names of the columns take too much in each row; send fewer rows")
                batch.validate(full=True)
                _require_narrow(pa, batch)
                found.append(batch)
            return pa.Table.from_batches(found, stream.schema)
    except (pa.ArrowException, struct.error, ValueError, OverflowError, OSError) as error:
        if isinstance(error, EventError):
            raise
        raise EventError(f"this is no stream of Arrow's: {error}") from None


def rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows of such a table. Raises `EventError`."""
    import pyarrow as pa

    try:
        return arrow_rows(table)
    except pa.ArrowException as error:
        raise EventError(f"this is no stream of Arrow's: {error}") from None


def is_there() -> bool:
    """Return whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def _require_usable(pa: Any, name: str, kind: Any, top: bool = False) -> None:
    """Require a type of which each value takes bytes of the stream."""
    types = pa.types
    if types.is_timestamp(kind):
        str(kind.tz)  # raises UnicodeDecodeError, a ValueError, for a name of a zone that is no text
    if types.is_struct(kind):
        for field in kind:
            _require_usable(pa, f"{name}.{field.name}", field.type)
    elif types.is_list(kind) or types.is_large_list(kind) or (top and types.is_dictionary(kind)):
        _require_usable(pa, name, kind.value_type)
    elif not (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or (top and (types.is_null(kind) or is_uuid(kind)))
    ):
        raise MediaTypeError(f"the column {name!r} is of the type {kind}, which no event has; leave it out")


def _width(pa: Any, field: Any) -> int:
    """Return the bytes of a field's name in a row of JSON."""
    inner = sum(_width(pa, one) for one in field.type) if pa.types.is_struct(field.type) else 0
    return len(field.name) + len('"":null,') + inner


def _require_narrow(pa: Any, batch: Any) -> None:
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column) * column.dictionary.nbytes > WIDEST:
            longest = max((len(str(one)) for one in column.dictionary.to_pylist()), default=0)
            if len(column) * longest > WIDEST:
                raise TooLargeError("the values of a column take too much; send several streams")
