"""``rtfilter match``: which subscriptions match each event of a file."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.text import numbered
from rtfilter.cli import inputs
from rtfilter.cli.arguments import positive
from rtfilter.cli.terminal import CommandError, progress_bar, say
from rtfilter.reading import files

if TYPE_CHECKING:
    from rtfilter.events.table import EventTable
    from rtfilter.filter import EventFilter

    Write = Callable[[AnyArray], None]
    """A function that takes pairs (2, k), event rows and subscription ids: int64, or object for text ids."""

BATCH = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Match events against subscriptions. The result is pairs of an event's row (from 0) and a\n"
        "subscription's id, ordered by both."
    )
    parser.epilog = f"""{inputs.FILES}
examples:
  rtfilter match alerts.jsonl ticks.csv > pairs.csv
  rtfilter match alerts.jsonl ticks.jsonl.gz --schema ticks.json --out pairs.parquet
  tail -n 1000 ticks.jsonl | rtfilter match saved-index -
"""
    inputs.add_inputs(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the pairs to FILE, .csv, .jsonl or .parquet, which appears when it is complete; "
        "by default they go to standard output as CSV",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=positive,
        default=BATCH,
        help=f"events matched together (default {BATCH}): more is faster per event, less takes less memory",
    )
    inputs.add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None:
        check_pairs(arguments.out, [arguments.subscriptions, arguments.events, arguments.schema])
    target, batches, tables = inputs.open_inputs(
        arguments.subscriptions,
        arguments.events,
        arguments.schema,
        batch=arguments.batch,
        progress=arguments.progress,
        skip=arguments.on_error == "skip",
        strict=arguments.strict,
    )
    empty = target.match_batch([])  # so that the rate does not include the time to load compiled code
    events = matches = 0
    began = perf_counter()
    text = empty.kind is not int
    with open_pairs(arguments.out, text) as write, progress_bar("events", arguments.progress) as bar:
        for batch in batches:
            pairs = _pairs(target, tables.read(batch))
            pairs[0] += events
            write(pairs)
            events += len(batch)
            matches += pairs.shape[1]
            bar.update(len(batch))
    seconds = perf_counter() - began
    rate = events / max(seconds, 1e-9)
    found, stats = f"{numbered(events, 'event')}, {numbered(matches, 'match')}", target.stats()
    say(f"{found} in {seconds:.2f} s, {rate:,.0f} events/s")
    odd = {"misspelt name": stats["misspelt"], "value": stats["ill_typed"]}
    if any(odd.values()):
        names, values = (numbered(count, what) for what, count in odd.items())
        say(f"the events had {names} and {values} of another type than their attribute")
    return 0


def _pairs(target: EventFilter, events: EventTable) -> AnyArray:
    """Return rows of the batch and ids, int64 (2, k), or objects where ids are text; ordered by both."""
    import numpy as np

    found = target.match_batch(events)
    pairs = found.pairs()
    if found.kind is int:
        return pairs[:, np.lexsort((pairs[1], pairs[0]))]
    names, codes = np.unique(pairs[1], return_inverse=True)
    written = np.array([str(name) for name in names.tolist()], object)  # UUIDs sort like their text
    order = np.lexsort((codes, pairs[0].astype(np.int64)))
    return np.stack([pairs[0][order], written[codes[order]]])


_CHUNK = 100_000  # pairs per call of the formatter
_ROW_GROUP = 1_000_000  # pairs per row group of Parquet
_HEADERS = {"csv": "event,subscription\n", "jsonl": ""}
_LINES = {"csv": "%d,%d\n", "jsonl": '{"event": %d, "subscription": %d}\n'}
_NAMED = '{"event": %d, "subscription": %s}\n'


def check_pairs(path: str, inputs: Iterable[str | None]) -> None:
    """Refuse an output that cannot be written, or that is an input, before the matching begins.

    Raises
    ------
    CommandError
        The output cannot be used; the message says why.
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
def open_pairs(path: str | None, text: bool = False) -> Iterator[Write]:
    """Write pairs to standard output (None) as CSV, or to a file in the format that its name ends in.

    With `text`, ids are text: in CSV quoted where necessary, in Parquet a column of strings. A file appears,
    or replaces an older one, only when the block ends without an exception. Call `check_pairs` first.

    Raises
    ------
    CommandError
        The output cannot be written.
    """
    try:
        if path is None:
            writer = _TextWriter(sys.stdout, "csv", text)
            yield writer
            writer.finish()
            sys.stdout.flush()
            return
        kind, target = _format(path), Path(os.path.realpath(path))  # keeps a link, and replaces its target
        with _replacing(target) as draft, _writer(draft, kind, text) as write:
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


def _writer(draft: Path, kind: str, text: bool) -> AbstractContextManager[Write]:
    return _parquet(draft, text) if kind == "parquet" else _text(draft, kind, text)


@contextmanager
def _text(draft: Path, kind: str, text: bool) -> Iterator[Write]:
    with open(draft, "w", encoding="utf-8", newline="\n") as stream:
        writer = _TextWriter(stream, kind, text)
        yield writer
        writer.finish()


class _TextWriter:
    """Writes lines; the header comes with the first pairs, or at the end if there are none."""

    def __init__(self, stream: TextIO, kind: str, text: bool) -> None:
        self._stream, self._kind, self._text = stream, kind, text
        self._header = _HEADERS[kind]

    def __call__(self, pairs: AnyArray) -> None:
        self.finish()
        for start in range(0, pairs.shape[1], _CHUNK):
            part = pairs[:, start : start + _CHUNK]
            self._stream.write(self._named(part) if self._text else self._numbered(part))

    def _numbered(self, part: AnyArray) -> str:
        # One format for all pairs: several times as fast as a call per line.
        lines: str = _LINES[self._kind] * part.shape[1] % tuple(part.T.ravel().tolist())
        return lines

    def _named(self, part: AnyArray) -> str:
        if self._kind == "jsonl":
            lines = (_NAMED % (event, json.dumps(id)) for event, id in part.T.tolist())
            return "".join(lines)
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(part.T.tolist())
        encoding = self._stream.encoding or "utf-8"  # escapes characters that the terminal cannot show
        return written.getvalue().encode(encoding, "backslashreplace").decode(encoding)

    def finish(self) -> None:
        self._stream.write(self._header)
        self._header = ""


@contextmanager
def _parquet(draft: Path, text: bool) -> Iterator[Write]:
    import numpy as np

    arrow = files.pyarrow(str(draft))
    columns = arrow.schema(
        [("event", arrow.int64()), ("subscription", arrow.string() if text else arrow.int64())]
    )
    waiting: list[AnyArray] = []
    with arrow.parquet.ParquetWriter(draft, columns) as file:

        def flush() -> None:
            if waiting:
                sides = np.concatenate(waiting, axis=1)
                filled = [arrow.array(*pair) for pair in zip(sides, columns.types, strict=True)]
                file.write_table(arrow.table(filled, schema=columns))
                waiting.clear()

        def write(pairs: AnyArray) -> None:
            waiting.append(pairs)
            if sum(part.shape[1] for part in waiting) >= _ROW_GROUP:
                flush()

        yield write
        flush()
