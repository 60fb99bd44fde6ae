"""Errors of rtfilter that tasks raise, without the traces of Python and Java that Spark adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from rtfilter import EventError, PredicateError, RTFilterError, SnapshotError

_CLASSES: dict[str, type[RTFilterError]] = {
    "EventError": EventError,
    "PredicateError": PredicateError,
    "SnapshotError": SnapshotError,
}
_OWN = re.compile(
    r"^rtfilter\.errors\.(\w+): (.*?)(?=\n+(?:\tat |\s*SQLSTATE|\s*$|\S))", re.MULTILINE | re.DOTALL
)
"""The last line of a trace of Python. Indented lines follow that show a place in a condition."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the error of rtfilter that a task has raised, instead of Spark's error."""
    try:
        yield
    except PySparkException as error:
        found = own_error(str(error))
        if found is None:
            raise
        raise found from None


def own_error(text: str) -> RTFilterError | None:
    """Return the error of rtfilter in the text of an error of Spark, or None."""
    found = [(name, message) for name, message in _OWN.findall(text + "\n") if name in _CLASSES]
    if not found:
        return None
    name, message = found[-1]
    first, *place = message.split("\n")
    if name == "PredicateError" and len(place) == 2:  # the condition, and a caret below it
        return PredicateError(first, place[0].strip(), place[1].index("^") - _indent(place[0]))
    return _CLASSES[name](message)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
