"""The attributes that subscriptions ask for: no others have to be read of an event."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import inf

from rtfilter.dtypes import FloatArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.elements import names_of
from rtfilter.predicates.model import Constraint
from rtfilter.predicates.store import Kept


class Asked:
    """Names of attributes. They only grow; nobody is told which subscription asked first.

    Attributes
    ----------
    names : frozenset of str
        Those that some subscription asks for, or asked for once, and those with a domain, which every event
        has to keep.
    """

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self.names = frozenset(fields.names[place] for place, _ in fields.bounded)
        self._coordinates: dict[str, range] = {
            field.name: range(fields.places[field.name], fields.places[field.name] + field.width)
            for field in fields
            if field.name not in self.names
        }
        """Coordinates of the others, which nobody asks for so far."""

    def note(self, filters: Filters, boxes: bool) -> None:
        """Ask for what the matcher needs to find subscriptions: what boxes bound, or else all they name."""
        if not self._coordinates:
            return
        if boxes:
            columns = filters.boxes()
            self.note_boxes(columns.low, columns.high)
        else:
            self.note_kept(filters.predicates())

    def note_boxes(self, low: FloatArray, high: FloatArray) -> None:
        """Ask for what some boxes bound, float64 (m, D) each."""
        if len(low) == 1:
            least, most = low[0].tolist(), high[0].tolist()
        elif len(low):
            least, most = low.max(axis=0).tolist(), high.min(axis=0).tolist()
        else:
            return
        self.ask(
            name
            for name, own in self._coordinates.items()
            if any(least[at] > -inf or most[at] < inf for at in own)
        )

    def note_kept(self, kept: Iterable[Kept]) -> None:
        """Ask for all that some predicates name; those that are text may seem to name more than they do."""
        if not self._coordinates:
            return
        found: set[str] = set()
        for one in kept:
            if isinstance(one, bytes):
                found.update(name for name in self._coordinates if _as_text(name) in one)
                continue
            for conjunction in one.filters:
                for test in conjunction.constraints:
                    if type(test) is not Constraint:
                        found |= names_of(one)
                        break
                    found.add(test.attribute)
        self.ask(found)

    def ask(self, names: Iterable[str]) -> None:
        """Ask for some attributes from now on."""
        new = frozenset(names)
        if new:
            self.names |= new
            self._coordinates = {name: at for name, at in self._coordinates.items() if name not in new}


def _as_text(name: str) -> bytes:
    """How JSON texts of constraints name an attribute; within other text a quote has a backslash."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
