"""The intrinsics equal the NumPy expressions they stand for."""

import numpy as np
import pytest
from numba import njit

from cases import cases
from rtfilter.index.kernels import vector
from rtfilter.index.kernels.layout import LANES

rng = np.random.default_rng(5)
ROWS = 6
SHIFT = LANES


def masks(density):
    """Rows of 3 x LANES words, each bit set with this probability."""
    bits = rng.random((ROWS, 3 * LANES, 64)) < density
    return np.packbits(bits, axis=2, bitorder="little").view(np.uint64).reshape(-1)


@njit
def intersected(words, rows, sure, count, shift, found):
    return vector.intersect(words, rows, sure, count, shift, found)


@cases("sure", range(ROWS + 1))
@cases("density", [0, 0.02, 0.3, 0.9, 1])
def test_intersect_ands_all_rows(density, sure):
    words = masks(density)
    rows = np.arange(ROWS) * 3 * LANES
    found = np.full(3 * LANES, 7, np.uint64)
    some = intersected(words, rows, sure, ROWS, SHIFT, found)
    expected = np.bitwise_and.reduce(words.reshape(ROWS, -1))[SHIFT:][:LANES]
    assert some == expected.any()
    assert (found[SHIFT:][:LANES] == expected).all()
    assert (np.delete(found, np.s_[SHIFT : SHIFT + LANES]) == 7).all()  # nothing else is written


@njit
def word_by_word(words, one, other, shift, found):
    return vector.not_in_both(words, one, other, shift, found), vector.some_left(words, shift)


@pytest.mark.parametrize("density", [0, 0.1, 0.98, 1])
def test_not_in_both_names_the_words_with_other_bits(density):
    words, found = masks(density), masks(0.5)[: 3 * LANES]
    one, other = 0, 3 * LANES
    named, some = word_by_word(words, one, other, SHIFT, found)
    first, second = words[one + SHIFT :][:LANES], words[other + SHIFT :][:LANES]
    rest = found[SHIFT:][:LANES] & ~(first & second)
    assert named == sum(1 << w for w in range(LANES) if rest[w])
    assert some == words[SHIFT:][:LANES].any()


@njit
def compared(words, index, code):
    return vector.compare(words, index, code)


@cases("code", [0, 1, 127, 128, 254, 255])
def test_compare_is_unsigned_and_byte_by_byte(code):
    values = rng.integers(0, 256, 128).astype(np.uint8)
    values[64:70] = [0, code, 255, 128, 127, max(code, 1) - 1]
    above, equal = compared(values.view(np.uint64), 8, code)
    assert above == sum(1 << j for j in range(64) if values[64 + j] > code)
    assert equal == sum(1 << j for j in range(64) if values[64 + j] == code)


@njit
def counted(word):
    return vector.trailing_zeros(word), vector.ones(word)


@cases("word", [0, 1, 2, 12, 1 << 63, (1 << 64) - 1])
def test_bits_are_counted(word):
    zeros, ones = counted(np.uint64(word))
    assert ones == word.bit_count()
    assert zeros == (word & -word).bit_length() - 1 if word else zeros == 64
