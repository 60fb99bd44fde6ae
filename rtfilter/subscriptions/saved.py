"""Subscriptions as facts and arrays, and back: the content of a snapshot and of a pickle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import SnapshotError
from rtfilter.basics.text import shown
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Matcher, Savable
from rtfilter.matchers.registry import MATCHERS, Factory, factory_of, name_of
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.predicates.stored.predicate_store import PredicateStore
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.ids import KINDS
from rtfilter.subscriptions.labels import Labels

TEXT_COORDINATES: Final = 3
"""Coordinates of a text; a snapshot without this number has two."""
_OPEN: Final = (("box_low", -inf), ("box_high", inf))
"""The saved sides of boxes, and the value of each that bounds nothing."""


def to_arrays(held: Subscriptions) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """Return the data that `from_arrays` needs: facts in JSON, and arrays by name."""
    arrays = held.predicates.to_arrays()
    arrays["boxless_ids"] = np.array(sorted(held.unmatchable), np.int64)
    arrays |= held.labels.to_arrays()
    if held.unbounded.handles:
        arrays["unbounded_ids"] = np.array(sorted(held.unbounded.handles), np.int64)
    content = "predicates"
    if isinstance(held.matcher, Savable):
        content = "arrays"
        arrays |= held.matcher.to_arrays()
    elif held.matcher.takes.boxes:
        content = "boxes"
        boxes = held.matcher.content().boxes()
        arrays |= {f"box_{name}": column for name, column in boxes._asdict().items()}
    plain = held.labels.names is None and held.labels.deadlines is None
    meta = {
        "schema": held.schema.to_json(),
        "text_coordinates": TEXT_COORDINATES,
        # Former versions know neither names nor expiry: this key makes them refuse the snapshot.
        "next_id" if plain else "next_handle": held.next_id,
        "version": held.version,
        "subscriptions": len(held),
        "matcher": held.name,
        "options": dict(held.matcher.options),
        "content": content,
        "ids": next((name for name, kind in KINDS.items() if kind is held.kind), None),
        "max_unbounded": held.unbounded.most,
        "asked": sorted(held.used.names),
    }
    return meta, arrays


def from_arrays(
    meta: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
    matcher: Factory | None = None,
    schema: Schema | None = None,
    clock: Callable[[], float] = time.time,
) -> Subscriptions:
    """Return the subscriptions of `to_arrays`, with another matcher or other options if they are given.

    A name alone leaves the options as they are. Pass the matcher if it is not registered. Raises
    `SnapshotError` if another matcher is passed although the saved one wrote arrays of its own, and
    `ValueError` or `LookupError` for data that `to_arrays` cannot have made.
    """
    saved = meta.get("matcher", "rtree")
    own = saved if saved in MATCHERS or matcher is None else matcher
    chosen = factory_of(own)
    known = Schema.from_json(meta["schema"]) if schema is None else schema
    options = meta.get("options", {})
    made = chosen(known, **options) if own == saved or isinstance(chosen, type) else chosen(known)
    predicates = PredicateStore.from_arrays(arrays)
    if arrays["boxless_ids"].dtype.kind not in "iu":
        raise ValueError("the ids without boxes are no integers")
    unmatchable = arrays["boxless_ids"].tolist()
    content = meta.get("content", "arrays")
    next_id = meta["next_handle"] if "next_handle" in meta else meta["next_id"]
    if content not in ("arrays", "boxes", "predicates") or not 0 <= next_id < 2**63:
        raise ValueError(f"content {shown(content)} or next id {shown(next_id)} is not valid")
    lacks = _lacking_endings(known) if meta.get("text_coordinates") is None else []
    if lacks and content == "boxes":
        arrays = {**arrays, **{side: _with_endings(arrays[side], lacks, end) for side, end in _OPEN}}
    if content == "arrays":
        if not isinstance(made, Savable):
            raise SnapshotError(f"the matcher {saved!r} saved arrays of its own; open the snapshot with it")
        made = _rebuilt(made, known, arrays, lacks) if lacks else type(made).from_arrays(known, arrays)
    # Snapshots of former versions do not name the type: all their ids were integers.
    saved_kind = meta.get("ids", "int" if next_id else None)
    if saved_kind is not None and saved_kind not in list(KINDS):
        raise ValueError(f"{shown(saved_kind)} is no type of ids")
    kind = None if saved_kind is None else KINDS[saved_kind]
    held = Subscriptions(known, own, made, predicates, unmatchable, next_id, kind, clock)
    held.used.add(meta.get("asked", known.names))  # former versions do not save it
    held.version = meta.get("version", 0)
    held.unbounded.most = most = meta.get("max_unbounded", MAX_UNBOUNDED)
    unbounded = arrays.get("unbounded_ids", np.empty(0, np.int64))
    if unbounded.dtype.kind not in "iu" or not (most is None or (type(most) is int and most >= 0)):
        raise ValueError("the ids of unbounded subscriptions, or their limit, are no integers")
    held.unbounded.handles.update(unbounded.tolist())
    if content == "arrays" and "max_unbounded" not in meta:  # former versions did not count unbounded ones
        held.unbounded.note(made.content())
    if content != "arrays":
        filters = _saved_filters(held, arrays, boxes=content == "boxes")
        if made.takes.boxes or content == "predicates":
            held.fill(filters.ids, filters)
        else:  # boxes of an own class, opened with a matcher of constraints
            draft = held.draft(list(filters.predicates()))
            held.put(filters.ids, draft._replace(filters=draft.filters.named(filters.ids)))
    if len(held) != meta.get("subscriptions", len(held)):
        raise ValueError(f"there are {len(held)} subscriptions, not {meta['subscriptions']}")
    if kind not in (None, int) or not {"deadlines", "metadata_handles"}.isdisjoint(arrays):
        held.labels = Labels.from_arrays(kind, arrays, held.handles())
        held.reuse()
    if matcher is None or (name_of(matcher) == name_of(own) and _has_options(held, matcher)):
        return held
    return held.with_matcher(matcher)


def _lacking_endings(schema: Schema) -> list[int]:
    """Return the places in boxes of former versions where a coordinate is missing, for `np.insert`.

    Texts had two coordinates there, order and identity; `ending`, which they lacked, follows these.
    """
    texts = [schema.offsets[name] for name, one in schema.attributes.items() if one.family == "str"]
    return [place - before + 2 for before, place in enumerate(texts)]


def _with_endings(side: AnyArray, lacks: list[int], end: float) -> AnyArray:
    """Insert endings that bound nothing into a side of boxes of former versions, float64 (m, D)."""
    if side.ndim != 2 or max(lacks) > side.shape[1]:
        raise ValueError("the boxes do not fit the schema")
    found: AnyArray = np.insert(side, lacks, end, axis=1)
    return found


def _rebuilt(empty: Savable, schema: Schema, arrays: Mapping[str, AnyArray], lacks: list[int]) -> Matcher:
    """Build the matcher again that a former version saved; `empty` is of its class."""
    plain = Schema({f"coordinate{place}": float for place in range(schema.dimensions - len(lacks))})
    former = type(empty).from_arrays(plain, arrays)
    ids, low, high, exact = former.content().boxes()
    low, high = _with_endings(low, lacks, -inf), _with_endings(high, lacks, inf)
    made: Matcher = type(empty)(schema, **former.options)  # type: ignore[call-arg]
    made.add(Filters.of_boxes(schema, BoxColumns(ids, low, high, exact)))
    return made


def _has_options(held: Subscriptions, matcher: Factory) -> bool:
    """Return whether the matcher has the options that another of its name would have."""
    if not isinstance(matcher, Mapping):
        return True
    return dict(factory_of(matcher)(held.schema).options) == dict(held.matcher.options)


def _saved_filters(held: Subscriptions, arrays: Mapping[str, AnyArray], boxes: bool) -> Filters:
    """Return filters to rebuild a matcher from: boxes, or stored predicates and those of the other boxes."""
    columns: BoxColumns | None = None
    if boxes:
        columns = BoxColumns(*(arrays[f"box_{name}"] for name in BoxColumns._fields))
        _require_boxes(columns, held.schema)
        if held.matcher.takes.boxes:
            return Filters.of_boxes(held.schema, columns)
    ids = [id for id in held.predicates if id not in held.unmatchable]
    found = [one for one in map(held.predicates.read, ids) if one is not None]
    names = np.array(ids, np.int64)
    if columns is not None:
        # Bounds have one box each, and no other data than ends.
        alone: Any = (column[~np.isin(columns.ids, names)] for column in columns)
        bounds = Filters.of_boxes(held.schema, BoxColumns(*alone))
        found += bounds.with_ends(held.ends.of(bounds.ids)).predicates()
        names = np.concatenate([names, bounds.ids])
    return Filters.of_predicates(held.schema, found, names)


def _require_boxes(columns: BoxColumns, schema: Schema) -> None:
    """Raise `ValueError` for saved columns that are no boxes of a schema."""
    rows, shape = (len(columns.ids),), (len(columns.ids), schema.dimensions)
    kinds = "".join(column.dtype.kind for column in columns)
    if kinds != "iffb" or [column.shape for column in columns] != [rows, shape, shape, rows]:
        raise ValueError("the arrays of boxes do not fit together, or do not fit the schema")
