"""The attributes that subscriptions ask for. Other attributes of an event are not read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from math import inf

from rtfilter.dtypes import FloatArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.model.disjunction import names_of
from rtfilter.predicates.stored.predicate_store import Kept


class Asked:
    """Names of attributes that subscriptions ask for; names are added, never removed.

    Attributes
    ----------
    names : frozenset of str
        Attributes that a subscription asks for or has asked for, and attributes with a domain, which each
        event is checked against.
    """

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self.names = frozenset(fields.names[place] for place, _ in fields.bounded)
        self._others = [
            (field.name, _as_text(field.name), fields.places[field.name], field.width)
            for field in fields
            if field.name not in self.names
        ]
        """Attributes that no subscription asks for so far: name, name as JSON, first coordinate and width."""

    def note(self, filters: Filters, boxes: bool) -> None:
        """Ask for the attributes that the matcher needs: bounded ones for boxes, else all that are named."""
        if not self._others:
            return
        if boxes:
            columns = filters.boxes()
            self._note_boxes(columns.low, columns.high)
        else:
            self.ask(chain.from_iterable(map(names_of, filters.predicates())))

    def _note_boxes(self, low: FloatArray, high: FloatArray) -> None:
        """Ask for the attributes that some boxes bound, float64 (m, D) each."""
        if len(low) == 1:
            least, most = low[0].tolist(), high[0].tolist()
        elif len(low):
            least, most = low.max(axis=0).tolist(), high.min(axis=0).tolist()
        else:
            return
        self.ask(
            name
            for name, _, first, width in self._others
            if any(least[at] > -inf or most[at] < inf for at in range(first, first + width))
        )

    def note_kept(self, texts: Iterable[Kept]) -> None:
        """Ask for all attributes that some predicates name. A constant that equals a name counts as well."""
        for text in texts if self._others else ():
            found = [name for name, quoted, _, _ in self._others if quoted in text]
            if found:
                self.ask(found)

    def ask(self, names: Iterable[str]) -> None:
        """Ask for some attributes from now on."""
        new = frozenset(names) - self.names
        if new:
            self.names |= new
            self._others = [one for one in self._others if one[0] not in new]


def _as_text(name: str) -> bytes:
    """Return an attribute's name as it stands in the JSON text of constraints, in quotes."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
