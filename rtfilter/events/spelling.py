"""Misspelt names of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final

from rtfilter.basics.text import listed, shown
from rtfilter.events.nesting import inner_paths

_LONG: Final = 100
"""Length in characters from which a name gets no suggestion."""
_SHORT: Final = 4
"""Length in characters from which a name with one other letter counts as misspelt."""
_KEPT: Final = 10_000
"""Most names in the cache of `meant`: a publisher may send new names without end."""
_SIGNS: Final = str.maketrans("", "", "_-. ")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the most similar known name; None if none is similar."""
    if len(name) > _LONG:
        return None
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else None


def correction(name: str, known: Sequence[str]) -> str:
    """Return the text after ``unknown attribute 'prise'`` in a message."""
    found = nearest(name, known)
    return f"; the schema has {listed(known)}" if found is None else f"; did you mean {found!r}?"


def unknown(name: object, known: Sequence[str]) -> str:
    """Return the message about an unknown name."""
    return f"unknown attribute {shown(name)}{correction(str(name), known)}"


class Spelling:
    """Distinguishes misspelt names from other names.

    A name is misspelt if it differs from an attribute, or from an object that contains attributes, by
    capitals and signs between words, or by one letter: another one, one more, one less, or two exchanged.
    Names with different numbers, such as ``x1`` and ``x2``, are different. The time does not grow with the
    number of attributes. `names` are those of all attributes of a schema.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._meant: dict[str, str] = {}
        self.inner: frozenset[str] = inner_paths(frozenset(names))
        """Paths of objects that contain attributes."""
        self.settled: set[str] = {*names, *self.inner}
        """Names that are not misspelt. The set grows."""

    @cached_property
    def _whole(self) -> dict[str, str]:
        return {_letters(name): name for name in (*sorted(self.inner), *self._names)}

    @cached_property
    def _shortened(self) -> dict[str, str]:
        return {one: name for letters, name in self._whole.items() for one in _shorter(letters)}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._whole))

    def settles(self, event: Mapping[Any, object]) -> bool:
        """Return whether an event has only settled names, and the schema no attributes in inner objects."""
        return not self.inner and self.settled.issuperset(event)

    def meant(self, name: str) -> str | None:
        """Return the attribute, or the path of an object, that a misspelt name means, or None."""
        found = self._meant.get(name)
        if found is not None or name in self.settled or len(name) > 2 * self._longest + _SHORT:
            return found
        found = self._looked_up(name)
        kept = self.settled if found is None else self._meant
        if len(kept) < _KEPT:
            if found is None:
                self.settled.add(name)
            else:
                self._meant[name] = found
        return found

    def _looked_up(self, name: str) -> str | None:
        letters = _letters(name)
        found = self._whole.get(letters)
        if found is None and len(letters) >= _SHORT:
            near = (self._whole.get(one) or self._shortened.get(one) for one in _shorter(letters))
            found = self._shortened.get(letters) or next(filter(None, near), None)
        return found if found is not None and _digits(found) == _digits(name) else None


def _letters(name: str) -> str:
    return name.casefold().translate(_SIGNS)


def _shorter(letters: str) -> Iterator[str]:
    """Yield the letters without one of them, if enough are left."""
    if len(letters) >= _SHORT - 1:
        yield from (letters[:at] + letters[at + 1 :] for at in range(len(letters)))


def _digits(name: str) -> list[str]:
    return [one for one in name if one.isdigit()]
