"""The attributes that subscriptions ask for: no others have to be read of an event."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from math import inf

from rtfilter.dtypes import FloatArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.elements import names_of
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
        self._others = [
            (field.name, _as_text(field.name), fields.places[field.name], field.width)
            for field in fields
            if field.name not in self.names
        ]
        """Attributes that no subscription asks for so far: name, name as JSON, first coordinate and width."""

    def note(self, filters: Filters, boxes: bool) -> None:
        """Ask for what the matcher needs to find subscriptions: what boxes bound, or else all they name."""
        if not self._others:
            return
        if boxes:
            columns = filters.boxes()
            self._note_boxes(columns.low, columns.high)
        else:
            self.ask(chain.from_iterable(map(names_of, filters.predicates())))

    def _note_boxes(self, low: FloatArray, high: FloatArray) -> None:
        """Ask for what some boxes bound, float64 (m, D) each."""
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
        """Ask for all that some predicates name. Where a constant is such a name, that counts as well."""
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
    """Return the name of an attribute in JSON texts of constraints; other text escapes its quotes."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
