"""The coordinates of many texts by compiled code; `rtfilter.events.encoding.string_code` defines them.

Long texts are told apart by BLAKE2b (RFC 7693). A call of hashlib for each takes twice as long as this does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rtfilter.basics.dtypes import FloatArray
from rtfilter.events import encoding
from rtfilter.events.encoding import SHORT_MASK, SPREADS, STRING_BYTES
from rtfilter.index.kernels.array_types import Byte1, Float2, Int1, Int2, Word1
from rtfilter.index.kernels.jit import kernel, part, unwrapped

BLOCK: Final = 128
"""Bytes that BLAKE2b mixes at once."""
_IV: Final = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
_ROUNDS: Final = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    ],
    np.int64,
)
"""The order in which each round takes the words of a block; after ten rounds, the first two follow again."""
_FIRST: Final = np.uint64(0x01010000 | 8)
"""A digest of eight bytes, without a key."""
_MASK, _LONG = np.uint64(SHORT_MASK), np.uint64(SHORT_MASK + 1)
_SPREAD, _SPREAD_AGAIN = (np.uint64(spread) for spread in SPREADS)


@unwrapped
def ascii_codes(texts: Sequence[str]) -> FloatArray:
    """Return the `string_code` of n ASCII strings, float64 (n, 3)."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    codes = np.empty((len(texts), 3))
    _write_codes(sizes, data, _IV, _ROUNDS, codes)
    return codes


def exercise() -> None:
    """Load or compile the kernel, and let `string_codes` use it from now on."""
    ascii_codes(["exercise"])
    encoding.use(ascii_codes)


@kernel
def _write_codes(sizes: Int1, data: Byte1, iv: Word1, rounds: Int2, codes: Float2) -> None:
    """Write order, identity and ending of texts that lie one after the other in `data`."""
    words, digest = np.empty(16, np.uint64), np.empty(8, np.uint64)
    begin = np.int64(0)
    for row in range(len(sizes)):
        size = sizes[row]
        order = ending = np.uint64(0)
        for at in range(min(size, STRING_BYTES)):
            shift = np.uint64(8 * (STRING_BYTES - 1 - at))
            byte = data[begin + size - 1 - at]
            if 65 <= byte <= 90:  # a capital letter
                byte |= 32
            order |= np.uint64(data[begin + at]) << shift
            ending |= np.uint64(byte) << shift
        if size > STRING_BYTES:
            identity = _digest(data[begin : begin + size], iv, rounds, words, digest) & _MASK | _LONG
        else:
            identity = ((order << np.uint64(3) | np.uint64(size)) * _SPREAD) & _MASK
            identity = ((identity ^ identity >> np.uint64(27)) * _SPREAD_AGAIN) & _MASK
            identity ^= identity >> np.uint64(26)
        codes[row, 0], codes[row, 1], codes[row, 2] = order, identity, ending
        begin += size


@part
def _digest(text: Byte1, iv: Word1, rounds: Int2, m: Word1, h: Word1) -> np.uint64:
    """Return the BLAKE2b digest of a text, eight bytes as a big-endian number; `m` and `h` are memory."""
    for place in range(8):
        h[place] = iv[place]
    h[0] ^= _FIRST
    done, size = np.int64(0), np.int64(len(text))
    while done < size:
        end = min(size, done + BLOCK)
        for place in range(16):
            word, first = np.uint64(0), done + 8 * place
            for at in range(8 if end - first > 8 else end - first):
                word |= np.uint64(text[first + at]) << np.uint64(8 * at)
            m[place] = word
        done = end
        v0, v1, v2, v3, v4, v5, v6, v7 = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
        v8, v9, v10, v11, v12, v13, v14, v15 = iv[0], iv[1], iv[2], iv[3], iv[4], iv[5], iv[6], iv[7]
        v12 ^= np.uint64(done)
        if done == size:
            v14 = ~v14
        for turn in range(12):
            s = rounds[turn % 10]
            v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, m[s[0]], m[s[1]])
            v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, m[s[2]], m[s[3]])
            v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, m[s[4]], m[s[5]])
            v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, m[s[6]], m[s[7]])
            v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, m[s[8]], m[s[9]])
            v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, m[s[10]], m[s[11]])
            v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, m[s[12]], m[s[13]])
            v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, m[s[14]], m[s[15]])
        h[0] ^= v0 ^ v8
        h[1] ^= v1 ^ v9
        h[2] ^= v2 ^ v10
        h[3] ^= v3 ^ v11
        h[4] ^= v4 ^ v12
        h[5] ^= v5 ^ v13
        h[6] ^= v6 ^ v14
        h[7] ^= v7 ^ v15
    found = np.uint64(0)
    for byte in range(8):
        found = found << np.uint64(8) | (h[0] >> np.uint64(8 * byte) & np.uint64(0xFF))
    return found


@part
def _mixed(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return four words of the state after two words of the block (RFC 7693: G)."""
    a += b + x
    d = _turned(d ^ a, np.uint64(32))
    c += d
    b = _turned(b ^ c, np.uint64(24))
    a += b + y
    d = _turned(d ^ a, np.uint64(16))
    c += d
    return a, _turned(b ^ c, np.uint64(63)), c, d


@part
def _turned(word: np.uint64, bits: np.uint64) -> np.uint64:
    return word >> bits | word << (np.uint64(64) - bits)
