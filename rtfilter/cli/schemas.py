"""The schema of a command: JSON, or a file of it.

The JSON is what `rtfilter.events.schema.Schema.from_json` reads, such as ``{"price": "float", "size":
{"type": "int", "low": 0, "high": 65535}}``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from rtfilter.cli.terminal import CommandError
from rtfilter.reading.files import parse_json, place

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema


def read_schema(given: str) -> Schema:
    """Return the schema that an argument is, where it is JSON; else that of the file which it names.

    Raises
    ------
    OSError
        The file cannot be read.
    CommandError
        There is no schema in it; names the attribute.
    """
    if given.lstrip().startswith(("{", "[")):
        return _parsed(os.fsencode(given), "--schema")
    with open(given, "rb") as stream:
        return _parsed(stream.read(), given)


def _parsed(text: bytes, name: str) -> Schema:
    from rtfilter.events.schema import Schema

    data = parse_json(text, place(name), object_pairs_hook=lambda pairs: _unique(pairs, name))
    try:
        return Schema.from_json(data)
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
        "default the first of each is told",
    )


def strict(schema: Schema) -> Schema:
    """Return the same attributes as a strict schema."""
    from rtfilter.events.schema import Schema

    return Schema(schema.attributes, strict=True)


def to_line(schema: Schema) -> str:
    """Return the schema as one line of JSON that `read_schema` reads."""
    entries = {}
    for name, attribute in schema.attributes.items():
        entry = attribute.to_json()
        entries[name] = entry if len(entry) > 1 else entry["type"]
    whole = {"strict": True, "attributes": entries} if schema.strict else entries
    return json.dumps(whole, ensure_ascii=False)
