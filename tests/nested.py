"""Events with objects and lists, whose values are at times of another type."""

from hypothesis import strategies as st

TYPES = {"x": float, "d.a": int, "d.b": str, "d.e.f": int, "t": bool}
POOLS = {float: [0, 1, 7, 2.5, 2**53 + 1], int: [0, 1, 7, -1, 2**53 + 1], str: ["a", "ab", "abcdefg"]}
POOLS[bool] = [False, True]
ODD = {float: "7", int: True, str: 7, bool: 1}


def some(kind: type) -> st.SearchStrategy:
    """A value, or a list of values, with nulls, values of another type and lists in it."""
    one = st.sampled_from([*POOLS[kind], *POOLS[kind], ODD[kind], None])
    many = st.lists(one | st.lists(one, max_size=2), max_size=3)
    return one | many


def objects(inner: dict[str, st.SearchStrategy]) -> st.SearchStrategy:
    """An object, or a list of them, also in lists, and beside values that are none."""
    one = st.fixed_dictionaries({}, optional=inner)
    return (
        one | st.lists(one, max_size=3) | st.lists(one | st.lists(one, max_size=2) | st.just(5), max_size=3)
    )


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "x": some(float),
        "t": some(bool),
        "d": objects({"a": some(int), "b": some(str), "e": objects({"f": some(int)})}),
        "other": st.just([{"d": 1}]),
    },
)
