"""Turns at the index: who waits for whom."""

import threading
import time

import pytest

from rtfilter.matching.gate import Gate

WAIT = 10  # seconds until a test gives up; nothing here should take that long


def start(action):
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def until(condition):
    limit = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.001)


class Holder:
    """A reader or writer in a thread of its own, that leaves when told."""

    def __init__(self, context, journal=None, name=""):
        self.inside, self.leave = threading.Event(), threading.Event()

        def hold():
            with context():
                if journal is not None:
                    journal.append(name)
                self.inside.set()
                assert self.leave.wait(WAIT)

        self.thread = start(hold)

    def end(self):
        self.leave.set()
        self.thread.join(WAIT)
        assert not self.thread.is_alive()


def test_readers_share_and_a_writer_is_alone():
    gate = Gate()
    one, two = Holder(gate.reading), Holder(gate.reading)
    assert one.inside.wait(WAIT)
    assert two.inside.wait(WAIT)
    assert gate.readers == 2
    writer = Holder(gate.writing)
    assert not writer.inside.wait(0.05)
    one.end()
    assert not writer.inside.wait(0.05)
    two.end()
    assert writer.inside.wait(WAIT)
    late = Holder(gate.reading)
    assert not late.inside.wait(0.05)
    writer.end()
    assert late.inside.wait(WAIT)
    late.end()


def test_changes_and_batches_alternate():
    """Waiting batches go before the next change; a waiting change goes before new batches."""
    gate, journal = Gate(), []
    first = Holder(gate.writing, journal, "w1")
    assert first.inside.wait(WAIT)
    second = Holder(gate.writing, journal, "w2")
    until(lambda: len(gate._writers_waiting) == 1)
    readers = [Holder(gate.reading, journal, "r") for _ in range(3)]
    until(lambda: gate._readers_waiting == 3)
    first.end()
    for reader in readers:
        assert reader.inside.wait(WAIT)
    late = Holder(gate.reading, journal, "late")
    until(lambda: gate._readers_waiting == 1)
    for reader in readers:
        reader.end()
    assert second.inside.wait(WAIT)
    second.end()
    assert late.inside.wait(WAIT)
    late.end()
    assert journal == ["w1", "r", "r", "r", "w2", "late"]


def test_changes_that_wait_together_take_one_turn():
    """A turn takes the changes that waited when it began, first come first; later ones wait for batches."""
    gate, journal = Gate(), []
    reader = Holder(gate.reading, journal, "r1")
    assert reader.inside.wait(WAIT)
    waiting = []
    for name in ("w1", "w2", "w3"):
        waiting.append(Holder(gate.writing, journal, name))
        until(lambda: len(gate._writers_waiting) == len(waiting))
    late_reader = Holder(gate.reading, journal, "r2")
    until(lambda: gate._readers_waiting == 1)
    reader.end()
    assert waiting[0].inside.wait(WAIT)
    late = Holder(gate.writing, journal, "w4")
    until(lambda: len(gate._writers_waiting) == 1)
    for one in waiting:
        assert one.inside.wait(WAIT)
        one.end()
    assert late_reader.inside.wait(WAIT)
    late_reader.end()
    assert late.inside.wait(WAIT)
    late.end()
    assert journal == ["r1", "w1", "w2", "w3", "r2", "w4"]


def test_a_change_finishes_open_streams_itself():
    gate, finished = Gate(), []
    with gate.reading():
        token = gate.open_stream(lambda: finished.append(1))
    assert gate.readers == 1
    with gate.writing():  # in the thread that would have consumed the stream
        assert finished == [1]
    assert gate.readers == 0
    gate.close_stream(token)
    assert gate.readers == 0


def test_a_stream_opened_while_a_change_waits_is_finished_too():
    gate, finished = Gate(), []
    with gate.reading():
        writer = Holder(gate.writing)
        until(lambda: len(gate._writers_waiting) == 1)
        gate.open_stream(lambda: finished.append(1))
    assert writer.inside.wait(WAIT)
    assert finished == [1]
    writer.end()


def test_a_change_that_fails_lets_others_in():
    gate = Gate()
    with pytest.raises(RuntimeError), gate.writing():
        raise RuntimeError
    with gate.reading():
        pass


def test_a_change_that_gives_up_waiting_lets_waiting_batches_in():
    gate = Gate()

    interruptions = [KeyboardInterrupt]

    def broken():
        if interruptions:
            raise interruptions.pop()

    holder = Holder(gate.reading)
    assert holder.inside.wait(WAIT)
    with gate.reading():
        gate.open_stream(broken)
    with pytest.raises(KeyboardInterrupt), gate.writing():
        pass
    assert gate.readers == 2  # the stream could not be finished: it still holds the index
    late = Holder(gate.reading)
    assert late.inside.wait(WAIT)
    late.end()
    holder.end()
    with gate.writing():
        assert gate.readers == 0


class Interrupted(Gate):
    """A gate at which the changes of one thread wait until they are told to give up."""

    def __init__(self):
        super().__init__()
        self.victim, self.give_up = None, threading.Event()

    def _writing_begun(self, change):
        if threading.current_thread() is not self.victim:
            return super()._writing_begun(change)
        assert self.give_up.wait(WAIT)
        raise KeyboardInterrupt

    def change(self):
        self.victim = threading.current_thread()
        with pytest.raises(KeyboardInterrupt), self.writing():
            pass


@pytest.mark.parametrize("moment", ["before its turn", "in its turn", "when it is next"])
def test_a_change_that_gives_up_holds_nobody_up(moment):
    gate = Interrupted()
    reader = Holder(gate.reading)
    assert reader.inside.wait(WAIT)
    first = None
    if moment == "in its turn":
        first = Holder(gate.writing)
        until(lambda: len(gate._writers_waiting) == 1)
    victim = start(gate.change)
    until(lambda: len(gate._writers_waiting) == 1 + (first is not None))
    late = Holder(gate.reading)
    until(lambda: gate._readers_waiting == 1)
    if moment != "before its turn":
        reader.end()
    if first is not None:
        assert first.inside.wait(WAIT)
    gate.give_up.set()
    victim.join(WAIT)
    if first is not None:
        first.end()
    assert late.inside.wait(WAIT)
    late.end()
    if moment == "before its turn":
        reader.end()
    assert gate.readers == 0
    with gate.writing():
        pass
