"""Reading files of events: JSON lines, CSV and Parquet, as the commands do.

>>> from rtfilter import infer_schema, read_events
>>> schema = infer_schema("orders.csv")  # doctest: +SKIP
>>> events = list(read_events("orders.csv", schema))  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rtfilter.reading.events import open_events

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema

SIZE = 1000
"""Events that are read together."""


def infer_schema(path: str | os.PathLike[str]) -> Schema:
    """Return the schema of a file of events, inferred from its first 10,000 events.

    A column of CSV is of the type that all of its cells have; numbers with leading zeros are text. In JSON
    lines, the most frequent type counts. Parquet has types.

    Parameters
    ----------
    path : path
        See `read_events`.

    Raises
    ------
    OSError
        The file cannot be opened.
    FileError
        It cannot be read, or has no values.
    """
    return open_events(os.fspath(path), _tell).infer()


def read_events(path: str | os.PathLike[str], schema: Schema | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of a file as dicts, with values of the types of the schema.

    Parameters
    ----------
    path : path
        Ends in ``.jsonl`` (an object each line), ``.csv`` (a header; separated by commas, semicolons or
        tabs), either perhaps with ``.gz``, or ``.parquet``. An empty cell and null are missing attributes.
    schema : Schema, optional
        The types of cells of CSV; other columns are left out. By default that of `infer_schema`.

    Raises
    ------
    OSError
        The file cannot be opened.
    FileError
        A line is no event, or a cell is of another type than its attribute; the message has the line. Earlier
        events have been yielded.
    """
    file = open_events(os.fspath(path), _tell)
    batches = file.batches(file.infer() if schema is None else schema, SIZE)
    return (event for batch in batches for event in batch.objects())


def _tell(message: str) -> None:
    logging.getLogger("rtfilter").warning("%s", message)
