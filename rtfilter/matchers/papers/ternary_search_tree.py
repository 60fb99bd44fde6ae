"""A ternary search tree (Bentley and Sedgewick 1997): texts, and a search for the prefixes of a text."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

T = TypeVar("T")
_Side = Literal["low", "equal", "high"]


class _Node(Generic[T]):
    """A letter of a text: links to smaller and greater letters at its place, and to the next letters."""

    __slots__ = ("equal", "high", "letter", "low", "value")

    def __init__(self, letter: str, equal: _Node[T] | None = None, value: T | None = None) -> None:
        self.letter, self.equal, self.value = letter, equal, value
        self.low: _Node[T] | None = None
        self.high: _Node[T] | None = None


class TernarySearchTree(Generic[T]):
    """A map of texts to values that are not None; an interrupted change can be repeated.

    A look-up costs a step per letter, and at most one more for each other letter at the same place. These are
    not balanced: their number is at most that of the alphabet. Nothing is recursive.
    """

    def __init__(self) -> None:
        self._top = _Node[T]("")  # before the first letter: its value is that of the empty text

    def __bool__(self) -> bool:
        return self._top.equal is not None or self._top.value is not None

    def put(self, text: str, value: T) -> None:
        """Set the value of a text."""
        links, at = self._path(text)
        if len(at) == len(text) + 1:
            at[-1].value = value
            return
        letters = text[len(at) - 1 :]
        chain = _Node(letters[-1], value=value)
        for letter in reversed(letters[:-1]):
            chain = _Node(letter, chain)
        parent, side = links[-1]
        setattr(parent, side, chain)  # all at once, so that an interrupt leaves no part of it

    def get(self, text: str) -> T | None:
        """Return the value of a text, None if it has none."""
        _, at = self._path(text)
        return at[-1].value if len(at) == len(text) + 1 else None

    def delete(self, text: str) -> None:
        """Remove a text, if it is there, and all nodes that no other text needs."""
        links, at = self._path(text)
        if len(at) == len(text) + 1:
            at[-1].value = None
        for parent, side in reversed(links):
            node: _Node[T] | None = getattr(parent, side)
            if node is None:
                continue
            needed = node.value is not None or node.equal is not None
            if needed or (node.low is not None and node.high is not None):
                break  # a node with both sides stays until one of them is removed
            setattr(parent, side, node.high if node.low is None else node.low)

    def prefixes_of(self, text: str) -> list[T]:
        """Return the values of all stored prefixes of a text, shortest first, the empty text included."""
        found = [] if self._top.value is None else [self._top.value]
        below = self._top.equal
        for letter in text:
            node = _beside(below, letter)
            if node is None:
                break
            if node.value is not None:
                found.append(node.value)
            below = node.equal
        return found

    def _path(self, text: str) -> tuple[list[tuple[_Node[T], _Side]], list[_Node[T]]]:
        """Return the links to a text, the last of which may lead nowhere, and the nodes of its letters."""
        links: list[tuple[_Node[T], _Side]] = []
        at = [self._top]
        for letter in text:
            parent, side = at[-1], "equal"  # type: tuple[_Node[T], _Side]
            links.append((parent, side))
            while (node := getattr(parent, side)) is not None and node.letter != letter:
                parent, side = node, "low" if letter < node.letter else "high"
                links.append((parent, side))
            if node is None:
                break
            at.append(node)
        return links, at


def _beside(node: _Node[T] | None, letter: str) -> _Node[T] | None:
    """Return the node of a letter among the letters at one place."""
    while node is not None and node.letter != letter:
        node = node.low if letter < node.letter else node.high
    return node
