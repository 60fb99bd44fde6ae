"""How deep JSON nests, told without building it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.service.parse import require_shallow, require_shallow_lines
from rtfilter.service.service_errors import NotJSONError

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\'), inner, max_size=3),
    max_leaves=20,
)


def depth(value):
    """By looking at what is built."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.integers(0, 5))
def test_json_is_refused_exactly_where_it_is_deeper(value, most):
    body = json.dumps(value).encode()
    if depth(value) <= most:
        require_shallow(body, most)
        return
    with pytest.raises(NotJSONError, match=f"nest {most} deep"):
        require_shallow(body, most)


@given(VALUES, st.integers(0, 5), st.booleans())
def test_lines_do_not_hide_how_deep_a_document_is(value, most, spread):
    body = json.dumps(value, indent=0 if spread else None).replace("{", "\n{" if spread else "{").encode()
    if depth(value) <= most:
        require_shallow(body, most)
        return
    with pytest.raises(NotJSONError, match=f"nest {most} deep"):
        require_shallow(body, most)


@given(st.lists(VALUES, max_size=5), st.integers(0, 5))
def test_of_lines_each_is_looked_at(values, most):
    body = b"\n".join(json.dumps(value).encode() for value in values)
    if max(map(depth, values), default=0) <= most:
        require_shallow_lines(body, most)
        return
    with pytest.raises(NotJSONError, match=f"nest {most} deep"):
        require_shallow_lines(body, most)


def test_what_never_closes_is_deep():
    with pytest.raises(NotJSONError):
        require_shallow(b"[" * 1000, 64)
