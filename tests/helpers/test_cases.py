"""One test runs a table of cases, and tells all that fail."""

import pytest

from cases import cases


def test_each_row_is_tried_and_all_that_fail_are_told():
    tried = []

    @cases(("one", "two"), [(1, 1), (2, 3), (4, 4), (5, 6)])
    @cases("more", [0, 10])
    def test(one, two, more, fixture):
        tried.append((one, two, more, fixture))
        assert one == two or more, f"{one} is not {two}"

    with pytest.raises(AssertionError, match=r"2 of 4 cases fail") as raised:
        test(fixture="f")
    assert len(tried) == 8
    assert "(2, 3): 1 of 2 cases fail" in str(raised.value)
    assert "(5, 6): 1 of 2 cases fail" in str(raised.value)


def test_what_a_row_should_raise_and_does_not_is_told():
    @cases("error", [ValueError, pytest.param(KeyError, id="line 5")])
    def test(error):
        with pytest.raises(error):
            raise ValueError

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail\n'line 5'"):
        test()
    assert test.table[0] is ValueError
