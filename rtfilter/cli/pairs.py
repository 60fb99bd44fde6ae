"""Writing pairs (event row, subscription id): CSV to standard output, or a whole file."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rtfilter.cli import files
from rtfilter.cli.terminal import CommandError
from rtfilter.dtypes import IntArray

if TYPE_CHECKING:
    Write = Callable[[IntArray], None]
    """Takes pairs int64 (2, k), event rows and subscription ids."""

_CHUNK = 100_000  # pairs formatted at once
_ROW_GROUP = 1_000_000  # pairs gathered for a row group of Parquet
_HEADERS = {"csv": "event,subscription\n", "jsonl": ""}
_LINES = {"csv": "%d,%d\n", "jsonl": '{"event": %d, "subscription": %d}\n'}


def check_pairs(path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that cannot be written, or that is one of the inputs, before the matching begins.

    Raises
    ------
    CommandError
        Says which.
    """
    if _format(path) == "parquet":
        files.pyarrow(path)
    target = Path(os.path.realpath(path))
    if not os.access(target.parent, os.W_OK):
        missing = "cannot be written to" if target.parent.is_dir() else "does not exist"
        raise CommandError(f"{path}: the directory {target.parent} {missing}")
    if target.exists():
        if not target.is_file():
            raise CommandError(f"{path}: exists and is no file")
        for name in inputs:
            if name is not None and os.path.exists(name) and os.path.samefile(name, target):
                raise CommandError(f"{path}: is an input too; write the pairs to another file")


@contextmanager
def open_pairs(path: str | None) -> Iterator[Write]:
    """Write pairs to standard output (None) as CSV, or to a file in the format that its name ends in.

    A file appears, or replaces an older one, only when the block ends without an exception. `check_pairs`
    comes first.

    Raises
    ------
    CommandError
        It cannot be written.
    """
    try:
        if path is None:
            writer = _TextWriter(sys.stdout, "csv")
            yield writer
            writer.finish()
            sys.stdout.flush()
            return
        kind, target = _format(path), Path(os.path.realpath(path))  # a link stays, its target is replaced
        with _replacing(target) as draft, (_parquet if kind == "parquet" else _text)(draft, kind) as write:
            yield write
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"{path or 'standard output'}: cannot be written: {reason}") from None


def _format(path: str) -> str:
    kind = files.FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        raise CommandError(f"{path}: the name of an output must end in .csv, .jsonl or .parquet")
    return kind


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield the path of a draft, which replaces `target` when the block ends without an exception."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield draft
        with open(draft, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _text(draft: Path, kind: str) -> Iterator[Write]:
    with open(draft, "w", encoding="ascii") as stream:
        writer = _TextWriter(stream, kind)
        yield writer
        writer.finish()


class _TextWriter:
    """Writes lines; the header comes with the first pairs, or at the end when there are none."""

    def __init__(self, stream: IO[str], kind: str) -> None:
        self._stream, self._line = stream, _LINES[kind]
        self._header = _HEADERS[kind]

    def __call__(self, pairs: IntArray) -> None:
        self.finish()
        for start in range(0, pairs.shape[1], _CHUNK):
            part = pairs[:, start : start + _CHUNK]
            # One format for all of them: several times as fast as a call per line.
            self._stream.write(self._line * part.shape[1] % tuple(part.T.ravel().tolist()))

    def finish(self) -> None:
        self._stream.write(self._header)
        self._header = ""


@contextmanager
def _parquet(draft: Path, _: str) -> Iterator[Write]:
    import numpy as np

    arrow = files.pyarrow(str(draft))
    columns = arrow.schema([("event", arrow.int64()), ("subscription", arrow.int64())])
    waiting: list[IntArray] = []
    with arrow.parquet.ParquetWriter(draft, columns) as file:

        def flush() -> None:
            if waiting:
                sides = np.concatenate(waiting, axis=1)
                file.write_table(arrow.table([arrow.array(side) for side in sides], schema=columns))
                waiting.clear()

        def write(pairs: IntArray) -> None:
            waiting.append(pairs)
            if sum(part.shape[1] for part in waiting) >= _ROW_GROUP:
                flush()

        yield write
        flush()
