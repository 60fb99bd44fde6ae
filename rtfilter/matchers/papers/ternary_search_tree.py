"""A ternary search tree (Bentley and Sedgewick 1997): texts, and which of them a longer text begins with."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

T = TypeVar("T")
_Side = Literal["low", "equal", "high"]


class _Node(Generic[T]):
    """A letter after what led to it: lesser and greater ones beside it, and what comes next below it."""

    __slots__ = ("equal", "high", "letter", "low", "value")

    def __init__(self, letter: str, equal: _Node[T] | None = None, value: T | None = None) -> None:
        self.letter, self.equal, self.value = letter, equal, value
        self.low: _Node[T] | None = None
        self.high: _Node[T] | None = None


class TernarySearchTree(Generic[T]):
    """A map of texts to values that are not None; every change can be interrupted, and made again.

    A look-up costs a step per letter, and per letter at most as many more as there are others beside it. They
    are not balanced: there are at most as many as the alphabet has. Nothing is recursive.
    """

    def __init__(self) -> None:
        self._top = _Node[T]("")  # no letter was read yet: its value is that of the empty text

    def __bool__(self) -> bool:
        return self._top.equal is not None or self._top.value is not None

    def put(self, text: str, value: T) -> None:
        """Give a text a value, in place of the one that it had."""
        links, at = self._path(text)
        if len(at) == len(text) + 1:
            at[-1].value = value
            return
        letters = text[len(at) - 1 :]
        chain = _Node(letters[-1], value=value)
        for letter in reversed(letters[:-1]):
            chain = _Node(letter, chain)
        parent, side = links[-1]
        setattr(parent, side, chain)  # all at once, so that nothing is left of a half

    def get(self, text: str) -> T | None:
        """The value of a text, None if it has none."""
        _, at = self._path(text)
        return at[-1].value if len(at) == len(text) + 1 else None

    def delete(self, text: str) -> None:
        """Take a text out, if it is there, and all nodes that no other text needs."""
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
        """The values of all texts that a text begins with, shortest first, the empty one included."""
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
        """The links followed to a text, the last perhaps to nothing, and the nodes of its first letters."""
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
    """The node of a letter among those beside one."""
    while node is not None and node.letter != letter:
        node = node.low if letter < node.letter else node.high
    return node
