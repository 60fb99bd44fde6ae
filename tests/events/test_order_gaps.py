"""The gaps between order coordinates of texts, beside all characters around."""

from cases import cases
from rtfilter.events.encoding import ORDER_MAX, order_code, order_gaps, utf8

EDGES = [
    "\0",
    "\x7f",
    "\x80",
    "ÿ",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ud800",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
]


@cases("before", ["", "a", "\x7f", "abcde", "abcdefg", "ÿ", "ab\uffff"])
@cases("edge", EDGES)
def test_ends_lie_beside_the_next_texts(before, edge):
    code = order_code(utf8(before + edge))
    low, high = order_gaps(code, code)
    assert low <= code <= high
    texts = [before + one + more for one in EDGES for more in ("", "\0", "\U0010ffff" * 3)] + [before, ""]
    for other in (order_code(utf8(text)) for text in texts):
        assert other == code or not low <= other <= high


def test_ends_of_a_range_lie_beside_each_other():
    last, first = order_code(utf8("\x7f" + "\U0010ffff" * 2)), order_code(utf8("\x80"))
    assert order_gaps(last, last)[1] + 1 == first
    assert order_gaps(first, first)[0] - 1 == last
    assert order_gaps(first, float("inf"))[1] == float("inf")
    assert order_gaps(float("-inf"), ORDER_MAX) == (float("-inf"), ORDER_MAX)
