"""Names that look like those of attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from rtfilter.events.nesting import inner_paths
from rtfilter.text import listed

_GUESSED: Final = 0.6
"""Likeness, from 0 to 1, of what an error proposes."""
_MISSPELT: Final = 0.75
"""Likeness from which on a name of an event is taken for another one misspelt."""
_COMPARED: Final = 20_000
"""Most pairs of names that are compared for one schema: a publisher may send new names without end."""
_DIGITS: Final = str.maketrans("", "", "0123456789")


def nearest(name: str, known: Sequence[str], likeness: float = _GUESSED) -> str | None:
    """Return the known name that is most like another name; None where none is."""
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), folded, n=1, cutoff=likeness)
    return folded[found[0]] if found else None


def correction(name: str, known: Sequence[str]) -> str:
    """Return what follows ``unknown attribute 'prise'`` in a message."""
    found = nearest(name, known)
    return f"; the schema has {listed(known)}" if found is None else f"; did you mean {found!r}?"


class Spelling:
    """Tells misspelt names from those of other attributes, each once.

    Parameters
    ----------
    names : sequence of str
        Of all attributes of a schema.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._left = _COMPARED
        self._meant: dict[str, str] = {}
        self.inner: frozenset[str] = inner_paths(frozenset(names))
        """Paths of objects that hold attributes."""
        self.settled: set[str] = {*names, *self.inner}
        """Names that are no misspelt ones. Grows."""

    def settles(self, event: Mapping[Any, object]) -> bool:
        """Whether an event has none but settled names, and no objects that hold attributes."""
        return not self.inner and self.settled.issuperset(event)

    def meant(self, name: str) -> str | None:
        """Return the attribute for which a name stands; None if it stands for none."""
        found = self._meant.get(name)
        if found is not None or self._left <= 0 or name in self.settled:
            return found
        self._left -= len(self._names)
        found = nearest(name, self._names, _MISSPELT)
        # Numbered attributes such as x1 and x2 are alike, and mean what they say.
        if found is None or (found != name and found.translate(_DIGITS) == name.translate(_DIGITS)):
            self.settled.add(name)
            return None
        self._meant[name] = found
        return found
