"""Parsing predicates in any notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtfilter.events.schema import Schema
from rtfilter.predicates.model import Predicate

Source = str | Mapping[str, Any] | Predicate
"""The types that `parse` accepts."""


def parse(source: Source, schema: Schema) -> Predicate:
    """Return the predicate that `source` describes; see `Predicate.parse`."""
    return Predicate.parse(source, schema)
