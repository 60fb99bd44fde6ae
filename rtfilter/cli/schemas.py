"""The schema of a command, or the whole definition of a filter: JSON, or a file with it.

The JSON is what `rtfilter.definition.Definition.from_json` reads, such as ``{"price": "float", "size":
{"type": "int", "low": 0, "high": 65535}}``, or ``{"schema": {"price": "float"}, "matcher": "counting"}``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rtfilter.basics.text import shown
from rtfilter.cli.terminal import CommandError
from rtfilter.reading.files import parse_json, place

if TYPE_CHECKING:
    from rtfilter.basics.options import Named
    from rtfilter.definition import Definition
    from rtfilter.events.schema import Schema


MATCHING = """\
A definition is an object with the attributes as "schema", and with any of
  "matcher"        a name, or an object with it and options: {"name": "rtree", "capacity": [64, 512]}
  "controller"     in the same form: {"name": "wang", "rounds": 32, "threshold": 1000} is the paper's
  "order"          of the events of a batch: "shortest" (default), "fifo", "longest"
  "max_unbounded"  most subscriptions that no box bounds (default: 1000)
"""
"""The format of a definition, for help texts."""


def read_schema(given: str) -> Schema:
    """Return the schema of `read_definition`, for commands without a filter. Raises the same errors."""
    from rtfilter.events.schema import Schema  # importing `definition` takes as long again

    data, name = _data(given)
    with suppress(ValueError):
        return Schema.from_json(data)
    return _definition(data, name, {}).schema


def read_definition(given: str, **default: Any) -> Definition:
    """Return the definition in an argument, if that is JSON; else the definition in the file of this name.

    Parameters
    ----------
    given : str
    **default
        See `Definition.from_json`.

    Raises
    ------
    OSError
        The file cannot be read.
    CommandError
        The data are no definition; the message names the attribute, option or key.
    """
    return _definition(*_data(given), default)


def read_named(given: str) -> Named:
    """Return an object with options, if the argument is JSON; else the argument, as a name."""
    if not given.lstrip().startswith("{"):
        return given
    found: dict[str, Any] = parse_json(os.fsencode(given), shown(given))
    return found


def _data(given: str) -> tuple[Any, str]:
    """Return the JSON of an argument, or of the file of this name, and its name for messages."""
    if given.lstrip().startswith(("{", "[")):
        text, name = os.fsencode(given), "--schema"
    else:
        with open(given, "rb") as stream:
            text, name = stream.read(), given
    return parse_json(text, place(name), object_pairs_hook=lambda pairs: _unique(pairs, name)), name


def _definition(data: Any, name: str, default: dict[str, Any]) -> Definition:
    from rtfilter.definition import Definition

    try:
        return Definition.from_json(data, **default)
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from None


def _unique(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise CommandError(f"{path}: {name!r} occurs twice; keep one")
    return found


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Declare --strict."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse events with attributes that the schema lacks, or with values of another type; by "
        "default the first of each is reported",
    )


def strict(schema: Schema) -> Schema:
    """Return the same attributes as a strict schema."""
    from rtfilter.events.schema import Schema

    return Schema(schema.attributes, strict=True)


def with_strict(definition: Definition) -> Definition:
    """Return the same definition with a strict schema."""
    return replace(definition, schema=strict(definition.schema))


def to_line(schema: Schema) -> str:
    """Return the schema as one line of JSON that `read_schema` reads."""
    entries = {}
    for name, attribute in schema.attributes.items():
        entry = attribute.to_json()
        entries[name] = entry if len(entry) > 1 else entry["type"]
    whole = {"strict": True, "attributes": entries} if schema.strict else entries
    return json.dumps(whole, ensure_ascii=False)
