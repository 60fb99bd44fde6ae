"""Memory for what searches find."""

import numpy as np

from rtfilter.index.room import KEPT, Growing


def test_what_grows_holds_no_more_than_its_rows_in_the_end():
    growing = Growing(np.arange(5), 2.0)
    growing.put(np.arange(5, 9))
    before = growing.room(0)
    found = growing.closed()
    assert found.tolist() == list(range(9))
    assert found.base is None
    assert before.base is found  # nothing was copied
    assert found.nbytes == 9 * 8


def test_more_than_was_expected_has_room_as_well():
    growing = Growing(np.zeros(1, np.int8), 1.0)
    growing.put(np.ones(KEPT + 10, np.int8))
    growing.put(np.full(3, 2, np.int8))
    found = growing.closed()
    assert (len(found), int(found.sum())) == (KEPT + 14, KEPT + 10 + 6)
