"""Definitions of filters in JSON, for servers, and files of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from rtfilter.basics.options import Named
from rtfilter.basics.text import shown
from rtfilter.events.schema import Attribute, Schema
from rtfilter.filter import EventFilter, inside
from rtfilter.matchers.port import Takes
from rtfilter.matchers.registry import MATCHERS, make_matcher
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.scheduler import ORDERS
from rtfilter.watch.metrics import Metrics

DEFAULT_CONTROLLER: Final = "cost"
"""The name of the controller if a definition has none."""


@dataclass(frozen=True)
class Definition:
    """A schema, and the other arguments of an `EventFilter`.

    Parameters
    ----------
    schema : Schema
    matcher : str, mapping or None
        A name, or an object with a ``name`` and options. None: a scan that moves to the R*-tree; see
        `EventFilter`.
    controller : str, mapping or None
        The same for a controller of `rtfilter.adaptive.CONTROLLERS`. None: `CostController`.
    order : str
        A key of `rtfilter.scheduler.ORDERS`.
    max_unbounded : int or None

    Raises
    ------
    ValueError
        An argument has a wrong value, or an unknown name or option.
    """

    schema: Schema
    matcher: Named | None = None
    controller: Named | None = None
    order: str = "shortest"
    max_unbounded: int | None = MAX_UNBOUNDED

    def __post_init__(self) -> None:
        for name in ("matcher", "controller"):
            object.__setattr__(self, name, _plain(name, getattr(self, name)))
        if not isinstance(self.order, str) or self.order not in ORDERS:
            raise ValueError(f"order is one of {', '.join(ORDERS)}, not {shown(self.order)}")
        self.filter()  # checks the other arguments

    def filter(self, *, metrics: Metrics | None = None) -> EventFilter:
        """Return an empty filter."""
        return EventFilter(
            self.schema,
            order=self.order,
            controller=self.controller,
            metrics=metrics,
            matcher=self.matcher,
            max_unbounded=self.max_unbounded,
        )

    def require_whole(self, where: str) -> None:
        """Raise `ValueError` if the matcher does not take all subscriptions and events.

        `where` names the user of the filter, such as "a server", which refuses no subscription that it
        stored.
        """
        if not _takes_all(inside(self.filter()).matcher.takes):
            names = [name for name in MATCHERS if self._would_take_all(name)]
            raise ValueError(
                f"the matcher {shown(self.matcher)} does not take all subscriptions and events, as {where} "
                f"needs; choose one of {', '.join(names)}"
            )

    def _would_take_all(self, matcher: str) -> bool:
        try:
            return _takes_all(make_matcher(matcher, self.schema).takes)
        except ValueError:  # the matcher does not take the schema
            return False

    @classmethod
    def from_json(cls, data: object, **default: Any) -> Definition:
        """Return the definition that a JSON value describes.

        Parameters
        ----------
        data : mapping or list
            A schema, as of `Schema.from_json`; or an object with one as ``schema``, and with ``matcher``,
            ``controller``, ``order`` and ``max_unbounded`` if they are not the default:
            ``{"schema": {"price": "float"}, "matcher": {"name": "rtree", "capacity": [64, 512]}}``.
        **default
            Values for keys that `data` does not have, instead of the defaults of the class.

        Raises
        ------
        ValueError
            The data are no definition; the message names the attribute, option or key.
        """
        if not _is_whole(data):
            return cls(Schema.from_json(data), **default)
        assert isinstance(data, Mapping)
        unknown = [name for name in data if name not in KEYS]
        if unknown:
            raise ValueError(
                f"{shown(unknown[0])} is an unknown key; besides schema, use {', '.join(KEYS[1:])}"
            )
        return cls(**{**default, **data, "schema": Schema.from_json(data["schema"])})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` turns into an equal definition, with all keys."""
        return {name: getattr(self, name) for name in KEYS} | {"schema": self.schema.to_json()}


KEYS: Final = tuple(one.name for one in fields(Definition))
"""The keys of a definition as JSON."""


def _takes_all(takes: Takes) -> bool:
    return takes.everything and takes.missing


def _plain(what: str, named: Any) -> Any:
    """Return a `Named` as plain JSON, a name alone as text; raise `ValueError` for other values."""
    if not isinstance(named, str | Mapping | None):
        raise ValueError(f'{what} is a name, or an object with a "name" and options; got {shown(named)}')
    try:
        named = json.loads(json.dumps(named if named is None or isinstance(named, str) else dict(named)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} has an option that JSON cannot hold: {error}") from None
    alone = isinstance(named, Mapping) and list(named) == ["name"] and isinstance(named["name"], str)
    return named["name"] if alone else named


def _is_whole(data: object) -> bool:
    """Return whether JSON is a whole definition. A schema may also have an attribute named "schema"."""
    if not isinstance(data, Mapping) or not isinstance(inner := data.get("schema"), Mapping | list):
        return False
    try:
        Attribute.from_json(inner)
    except ValueError:
        return True
    return False
