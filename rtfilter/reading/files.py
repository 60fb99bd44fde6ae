"""Reading files of JSON lines, CSV and Parquet, with errors that name the place.

Lines count from 1, rows of Parquet from 0. Files of lines may be compressed (.gz); ``-`` is standard input,
in JSON lines.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from errno import EISDIR
from itertools import chain
from typing import IO, Any, cast

import msgspec

from rtfilter.basics.errors import FileError
from rtfilter.basics.extras import needed
from rtfilter.basics.text import composed

STDIN = "-"
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
"""Formats by the ending of a file's name."""


def check(path: str) -> str:
    """Return the format of a readable file: ``jsonl``, ``csv`` or ``parquet``.

    Raises
    ------
    OSError
        It is missing or a directory.
    FileError
        Its name has no known ending.
    """
    if path == STDIN:
        return "jsonl"
    os.stat(path)
    if os.path.isdir(path):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), path)
    root, ending = os.path.splitext(path.removesuffix(".gz"))
    found = FORMATS.get(ending.lower())
    if found is None or not root or (found == "parquet" and path.endswith(".gz")):
        raise FileError(
            f"{path}: the name must end in .jsonl, .csv or .parquet (.jsonl.gz and .csv.gz are read too)"
        )
    return found


def place(path: str, line: int | None = None) -> str:
    """Return the text by which messages name a file and a line in it."""
    name = "<stdin>" if path == STDIN else path
    return name if line is None else f"{name}:{line}"


def row_place(path: str, row: int) -> str:
    """Return the text by which messages name a row of a Parquet file."""
    return f"{path}: row {row}"


def _open(path: str) -> IO[bytes]:
    if path == STDIN:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    if path.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    return open(path, "rb")


def lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number."""
    with _open(path) as stream:
        number = 0
        try:
            for number, line in enumerate(stream, 1):
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{place(path, number + 1)}: the compressed file is damaged: {error}") from None
        except OSError as error:
            raise FileError(f"{place(path, number + 1)}: cannot be read: {error.strerror}") from None


def json_lines(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the JSON value of each line that is not blank, with its number.

    Raises
    ------
    FileError
        A line is not JSON in UTF-8.
    """
    for number, line in lines(path):
        if not line.isspace():
            yield number, _decoded(line, path, number)


def _decoded(line: bytes, path: str, number: int) -> Any:
    try:
        return msgspec.json.decode(line.removeprefix(BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        where = place(path, number)
        parse_json(line, where)  # its message has the column, but it takes more
        raise FileError(
            f"{where}: not JSON: {error}; JSON has no NaN, no infinity and no lone surrogates"
        ) from None


def parse_json(text: bytes, where: str, **options: Any) -> Any:
    """Return a JSON value; `where` is the place for messages, `options` are those of `json.loads`.

    Raises
    ------
    FileError
        The text is not JSON in UTF-8.
    """
    try:
        return json.loads(text.decode("utf-8-sig"), **options)
    except json.JSONDecodeError as error:
        first = f"line {error.lineno}, " if b"\n" in text.rstrip() else ""
        raise FileError(f"{where}: not JSON: {error.msg} at {first}column {error.colno}") from None
    except RecursionError:
        raise FileError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:  # not UTF-8, a number of thousands of digits
        raise FileError(f"{where}: not JSON: {error}") from None


def read_csv(path: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header and the rows, each with the number of its first line.

    Cells are separated by commas; by semicolons or tabs, if they separate the header and no comma does.

    Raises
    ------
    FileError
        No header, a name that occurs twice, a row of another width than the header, broken quotes, or text
        that is not UTF-8; the last three while iterating.
    """
    rows = _csv_rows(path)
    line, header = next(rows, (1, []))
    if not header:
        raise FileError(f"{place(path)}: empty; the first line must name the columns")
    header = list(map(composed, header))
    for name in header:
        if header.count(name) > 1:
            raise FileError(f"{place(path, line)}: two columns are called {name!r}; keep one")
    return header, _of_width(path, len(header), rows)


def _csv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    lines = _text(path)
    head = list(_head(lines))
    delimiter = _delimiter(head[-1]) if head else ","
    reader = csv.reader(chain(head, lines), delimiter=delimiter, strict=True)
    start = 1
    try:
        for row in reader:
            if row:  # not a blank line
                yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise FileError(f"{place(path, start)}: not CSV: {error}") from None


def _head(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines up to the first that is not blank."""
    for line in lines:
        yield line
        if not line.isspace():
            break


def _delimiter(header: str) -> str:
    """Return the separator of the cells of a header: a comma, or else a semicolon or a tab."""
    for delimiter in (",", ";", "\t"):
        if len(next(csv.reader([header], delimiter=delimiter), [])) > 1:
            return delimiter
    return ","


def _text(path: str) -> Iterator[str]:
    for number, line in lines(path):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FileError(f"{place(path, number)}: not UTF-8 text: {error}") from None


def _of_width(
    path: str, width: int, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    for line, row in rows:
        if len(row) != width:
            raise FileError(f"{place(path, line)}: {len(row)} cells, but {width} columns; correct the row")
        yield line, row


def pyarrow(path: str) -> Any:
    """Return the module `pyarrow`, with ``pyarrow.parquet`` loaded, needed for `path`.

    Raises
    ------
    FileError
        pyarrow is not installed.
    """
    try:
        with needed("arrow", "Parquet"):
            import pyarrow
            import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise FileError(f"{path}: {error}") from None
    return pyarrow


def open_parquet(path: str) -> Any:
    """Open a ``pyarrow.parquet.ParquetFile``.

    Raises
    ------
    FileError
        pyarrow is not installed, or the file is no Parquet file.
    """
    arrow = pyarrow(path)
    try:
        return arrow.parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise damaged(path, error) from None


def damaged(path: str, error: Exception) -> FileError:
    """Return the error for a Parquet file that cannot be read."""
    return FileError(f"{path}: not a readable Parquet file: {error}")
