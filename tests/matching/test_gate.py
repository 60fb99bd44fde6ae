"""Turns at the index: who waits for whom."""

import gc
import os
import signal
import threading
import time

import pytest

import rtfilter.matching.gate
from interrupts import Interrupt, Lines
from rtfilter.matching.gate import Gate

WAIT = 120  # seconds until a test gives up; nothing here should take that long


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
    """Batches that have waited go before the next change; a waiting change goes before new batches."""
    gate, journal = Gate(turn=0), []
    first = Holder(gate.writing, journal, "w1")
    assert first.inside.wait(WAIT)
    second = Holder(gate.writing, journal, "w2")
    until(lambda: len(gate._changes) == 2)
    readers = [Holder(gate.reading, journal, "r") for _ in range(3)]
    until(lambda: len(gate._waiting) == 3)
    first.end()
    for reader in readers:
        assert reader.inside.wait(WAIT)
    late = Holder(gate.reading, journal, "late")
    until(lambda: len(gate._waiting) == 1)
    for reader in readers:
        reader.end()
    assert second.inside.wait(WAIT)
    second.end()
    assert late.inside.wait(WAIT)
    late.end()
    assert journal == ["w1", "r", "r", "r", "w2", "late"]


@pytest.mark.parametrize(("turn", "order"), [(0, "r1 w1 r2 w2 w3"), (60, "r1 w1 w2 w3 r2")])
def test_batches_wait_for_a_turn_of_changes_at_most(turn, order):
    """Changes follow each other, first come first, until a batch has waited for as long as a turn."""
    gate, journal = Gate(turn=turn), []
    reader = Holder(gate.reading, journal, "r1")
    assert reader.inside.wait(WAIT)
    first = Holder(gate.writing, journal, "w1")
    until(lambda: len(gate._changes) == 1)
    late = Holder(gate.reading, journal, "r2")
    until(lambda: len(gate._waiting) == 1)
    waiting = []
    for name in ("w2", "w3"):
        waiting.append(Holder(gate.writing, journal, name))
        until(lambda: len(gate._changes) == 1 + len(waiting))
    reader.end()
    everybody = [first, late, *waiting] if turn == 0 else [first, *waiting, late]
    for one in everybody:
        assert one.inside.wait(WAIT)
        one.end()
    assert " ".join(journal) == order


def test_a_change_finishes_open_streams_itself():
    gate, finished = Gate(), []
    with gate.reading():
        hold = gate.open_stream(lambda: finished.append(1), Gate())
    assert gate.readers == 1
    with gate.writing():  # in the thread that would have consumed the stream
        assert finished == [1]
    assert gate.readers == 0
    hold.close()
    assert gate.readers == 0


def test_a_stream_opened_while_a_change_waits_is_finished_too():
    gate, finished = Gate(), []
    with gate.reading():
        writer = Holder(gate.writing)
        until(lambda: len(gate._changes) == 1)
        hold = gate.open_stream(lambda: finished.append(1), Gate())
    assert writer.inside.wait(WAIT)
    assert finished == [1]
    writer.end()
    hold.close()


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
        hold = gate.open_stream(broken, Gate())
    with pytest.raises(KeyboardInterrupt), gate.writing():
        pass
    assert gate.readers == 2  # the stream could not be finished: it still holds the index
    late = Holder(gate.reading)
    assert late.inside.wait(WAIT)
    late.end()
    holder.end()
    with gate.writing():
        assert gate.readers == 0
    hold.close()


@pytest.mark.parametrize("wanted", ["reading", "writing"])
def test_who_computes_a_stream_does_not_wait_for_a_change_that_waits_for_it(wanted):
    """As a signal handler might, that comes meanwhile."""
    gate, steps = Gate(), Gate()

    def finish():
        with steps.writing():
            pass

    with gate.reading():
        hold = gate.open_stream(finish, steps)
    with steps.writing():
        writer = Holder(gate.writing)
        until(lambda: len(steps._changes) == 2)
        if wanted == "reading":
            with gate.reading():
                assert not writer.inside.is_set()
        else:
            with pytest.raises(RuntimeError, match="signal handler"), gate.writing():
                pass
    assert writer.inside.wait(WAIT)
    writer.end()
    hold.close()


def test_a_stream_that_is_forgotten_holds_nothing():
    gate = Gate()
    with gate.reading():
        hold = gate.open_stream(lambda: None, Gate())
    assert gate.readers == 1
    del hold
    assert gate.readers == 0


class Interrupted(Gate):
    """A gate at which the changes of one thread wait until they are told to give up."""

    def __init__(self):
        super().__init__()
        self.victim, self.give_up = None, threading.Event()

    def _wait_to_write(self, change):
        if threading.current_thread() is not self.victim:
            return super()._wait_to_write(change)
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
        until(lambda: len(gate._changes) == 1)
    victim = start(gate.change)
    until(lambda: len(gate._changes) == 1 + (first is not None))
    late = Holder(gate.reading)
    until(lambda: len(gate._waiting) == 1)
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


def pass_by(context):
    with context:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["reading", "writing"])
@pytest.mark.parametrize("held", ["reading", "writing", "open_stream"])
def test_whoever_is_interrupted_while_waiting_holds_nobody_up(wanted, held):
    """An interrupt at each line of a call that waits for another thread."""
    at = 0
    while True:
        gate, over = Gate(), threading.Event()
        holder = Holder(gate.reading if held == "open_stream" else getattr(gate, held))
        assert holder.inside.wait(WAIT)
        if held == "open_stream":
            hold = gate.open_stream(lambda gate=gate: time.sleep(0.001), Gate())

        def let_go(gate=gate, holder=holder, over=over):
            until(lambda: gate._waiting or [c for c in gate._changes if c.bell] or over.is_set())
            holder.end()

        helper = start(let_go)
        try:
            with Lines([rtfilter.matching.gate], at):
                pass_by(getattr(gate, wanted)())
        except Interrupt:
            pass
        else:
            break  # all lines have had their turn
        finally:
            over.set()
            helper.join(WAIT)
        for context in (gate.reading, gate.writing, gate.reading):
            other = start(lambda context=context: pass_by(context()))
            other.join(WAIT)
            assert not other.is_alive()
        if held == "open_stream":
            hold.close()
        assert gate.readers == 0
        at += 1
    assert at > 5


def test_a_thread_never_waits_for_itself():
    gate = Gate()
    with gate.reading():
        with pytest.raises(RuntimeError, match="matching or changing already"):
            pass_by(gate.writing())
        change = start(lambda: pass_by(gate.writing()))
        until(lambda: gate._changes)
        pass_by(gate.reading())  # as a signal handler does; the change would wait for both
    change.join(WAIT)
    assert not change.is_alive()
    with gate.writing():
        for context in (gate.reading, gate.writing):
            with pytest.raises(RuntimeError, match="this thread is"):
                pass_by(context())
    assert gate.readers == 0


def test_a_change_that_was_cut_short_is_put_in_order_by_the_next_who_is_alone():
    broken, calls = [True], []

    def recover():
        calls.append(threading.get_ident())
        if broken:
            raise Interrupt(broken.pop())

    gate = Gate(recover)

    def cut_short():
        with pytest.raises(Interrupt):
            pass_by(gate.writing())

    cut_short()
    assert calls == [threading.get_ident()]
    reader = start(lambda: pass_by(gate.reading()))
    reader.join(WAIT)
    assert calls[1:] == [reader.ident] * (len(calls) - 1)
    assert len(calls) >= 2
    assert not gate._changes


def waits_in_a_handler(gate, monkeypatch, inner):
    """A batch waits for a change; meanwhile a handler of its thread does `inner`, and the change ends."""
    found = []
    first = Holder(gate.writing)
    assert first.inside.wait(WAIT)
    second = Holder(gate.writing)
    until(lambda: len(gate._changes) == 2)

    def interrupted(entry):
        monkeypatch.undo()
        waiting = len(gate._changes) + len(gate._waiting)

        def end_first():
            until(lambda: found or len(gate._changes) + len(gate._waiting) > waiting)
            first.end()

        ender = start(end_first)
        try:
            inner()
            found.append("done")
        except RuntimeError as error:
            found.append(str(error))
        ender.join(WAIT)
        return entry.heard()

    monkeypatch.setattr(rtfilter.matching.gate.Reading, "heard", interrupted)
    outer = start(lambda: pass_by(gate.reading()))
    until(lambda: found)
    second.end()
    outer.join(WAIT)
    assert not outer.is_alive()
    until(lambda: not gate._changes)
    assert gate.readers == 0
    return found


def test_a_handler_that_changes_while_its_thread_waits_to_match_is_told_so(monkeypatch):
    gate = Gate(turn=0)
    (found,) = waits_in_a_handler(gate, monkeypatch, lambda: pass_by(gate.writing()))
    assert "matching or changing already" in found


def test_a_handler_that_matches_while_its_thread_waits_to_match_is_let_in_with_it(monkeypatch):
    gate = Gate(turn=0)
    assert waits_in_a_handler(gate, monkeypatch, lambda: pass_by(gate.reading())) == ["done"]


def test_a_batch_within_one_that_only_looks_waits_for_the_change(monkeypatch):
    """A finalizer that matches may run between any two lines of another match."""
    gate, order = Gate(), []
    change = Holder(gate.writing)
    assert change.inside.wait(WAIT)
    wait = Gate._wait_to_read

    def finalizer_first(self, reading):
        monkeypatch.undo()
        start(lambda: (until(lambda: gate._waiting), order.append("change ends"), change.end()))
        pass_by(gate.reading())
        order.append("inner")
        wait(self, reading)

    monkeypatch.setattr(Gate, "_wait_to_read", finalizer_first)
    outer = start(lambda: pass_by(gate.reading()))
    outer.join(WAIT)
    assert not outer.is_alive()
    assert order == ["change ends", "inner"]


def test_waiting_leaves_no_garbage():
    gate = Gate()
    gc.collect()
    gc.disable()
    try:
        for context in (gate.reading, gate.writing):
            holder = Holder(gate.writing)
            assert holder.inside.wait(WAIT)
            waiting = start(lambda context=context: pass_by(context()))
            until(lambda: gate._waiting or len(gate._changes) == 2)
            holder.end()
            waiting.join(WAIT)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [one for one in gc.garbage if type(one).__module__ == rtfilter.matching.gate.__name__]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert kept == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("held", ["reading", "writing"])
def test_a_forked_process_waits_for_nobody_of_the_other(held):
    recovered = []
    gate = Gate(lambda: recovered.append(os.getpid()))
    holder = Holder(getattr(gate, held))
    assert holder.inside.wait(WAIT)
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT)
        pass_by(gate.writing())
        pass_by(gate.reading())
        os._exit(0 if os.getpid() in recovered else 1)
    assert os.waitpid(child, 0)[1] == 0
    holder.end()
