"""Memory for what searches find."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from rtfilter.index import room
from rtfilter.index.room import KEPT, GrowingArray
from rtfilter.index.tree import RStarTree


def test_what_grows_holds_no_more_than_its_rows_in_the_end():
    growing = GrowingArray(np.arange(5), 2.0)
    growing.put(np.arange(5, 9))
    before = growing.room(0)
    found = growing.closed()
    assert found.tolist() == list(range(9))
    assert found.base is None
    assert before.base is found  # nothing was copied
    assert found.nbytes == 9 * 8


def test_more_than_was_expected_has_room_as_well():
    growing = GrowingArray(np.zeros(1, np.int8), 1.0)
    growing.put(np.ones(KEPT + 10, np.int8))
    growing.put(np.full(3, 2, np.int8))
    found = growing.closed()
    assert (len(found), int(found.sum())) == (KEPT + 14, KEPT + 10 + 6)


def test_the_room_of_all_threads_is_forgotten():
    tree = RStarTree.bulk_load(np.zeros((5000, 2)), np.ones((5000, 2)))

    def kept():
        return len(room._scratch.kept.rooms)

    with ThreadPoolExecutor(1) as threads:
        for search in (tree.search, partial(threads.submit, tree.search)):
            search([[0.5, 0.5]])
        assert (kept(), threads.submit(kept).result()) == (1, 1)
        room.forget()
        assert (kept(), threads.submit(kept).result()) == (0, 0)


def test_a_thread_that_has_ended_is_forgotten():
    before = len(room._all)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(room.taken).result()
    assert len(room._all) == before
