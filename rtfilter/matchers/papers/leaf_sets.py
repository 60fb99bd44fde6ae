"""Sets of small numbers in two forms (Bittner 2004): a few as pointers, many as a bit list.

Pointers are a Python set, a bit list is an integer with the bits of its numbers. Pointers change in place;
use the returned set instead of the argument.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import numpy as np

WORD = 64
"""Bits that one step compares."""

Leaf: TypeAlias = set[int] | int


def leaf_of(numbers: Collection[int], most: float) -> Leaf:
    """Return a set of numbers: pointers for at most `most` of them, else a bit list."""
    return set(numbers) if len(numbers) <= most else bits_of(numbers)


def bits_of(numbers: Collection[int]) -> int:
    """Return the bit list of some numbers."""
    ones = np.zeros(max(numbers, default=-1) + 1, np.uint8)
    ones[list(numbers)] = 1
    return int.from_bytes(np.packbits(ones, bitorder="little").tobytes(), "little")


def copied(leaf: Leaf) -> Leaf:
    """Return a copy of a set that changes independently."""
    return leaf if isinstance(leaf, int) else set(leaf)


def size_of(leaf: Leaf) -> int:
    """Return the size of a set."""
    return leaf.bit_count() if isinstance(leaf, int) else len(leaf)


def numbers_of(leaf: Leaf) -> Collection[int]:
    """Return the numbers of a set."""
    if not isinstance(leaf, int):
        return leaf
    found: list[int] = np.flatnonzero(np.unpackbits(_bytes(leaf), bitorder="little")).tolist()
    return found


def with_number(leaf: Leaf, number: int, most: float) -> Leaf:
    """Add a number to a set, and return it; it becomes a bit list if it then has more than `most`."""
    if isinstance(leaf, int):
        return leaf | 1 << number
    leaf.add(number)
    return leaf if len(leaf) <= most else bits_of(leaf)


def without_number(leaf: Leaf, number: int, most: float) -> Leaf:
    """Remove a number from a set, if present, and return it; with at most `most` it becomes pointers."""
    if not isinstance(leaf, int):
        leaf.discard(number)
        return leaf
    left = leaf & ~(1 << number)
    return left if left.bit_count() > most else set(numbers_of(left))


def common(one: Leaf, two: Leaf) -> tuple[Leaf, int]:
    """Return the intersection as a new set, and the steps that it took.

    A step looks one pointer up in the other set, or compares 64 bits with 64 bits.
    """
    if isinstance(one, int) and isinstance(two, int):
        return one & two, -(-min(one.bit_length(), two.bit_length()) // WORD)
    if isinstance(one, int):
        one, two = two, one
    assert not isinstance(one, int)
    if not isinstance(two, int):
        return one & two, min(len(one), len(two))
    bits = _bytes(two).tolist()
    end = len(bits) * 8
    return {number for number in one if number < end and bits[number >> 3] >> (number & 7) & 1}, len(one)


def _bytes(bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(bits.to_bytes(-(-bits.bit_length() // 8), "little"), np.uint8)
