"""Matching for coroutines: batches, order, bad events, cancelling at every step, back pressure, closing."""

import asyncio
import gc
import threading
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from itertools import chain
from math import inf, nan
from time import perf_counter
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rtfilter.asynchronous.async_filter as module
from kinds import KINDS, id_of
from oracle import as_sets
from rtfilter import AsyncFilter, EventError, EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import inside
from rtfilter.matchers import Takes
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.watch.metrics import Metrics

WAYS = pytest.mark.parametrize("pause", [inf, 0], ids=["loop", "thread"])
"""Where batches are matched."""


@pytest.fixture(autouse=True, scope="module")
def collecting_is_quick():
    gc.collect()
    gc.freeze()  # what is there need not be looked at again
    yield
    gc.unfreeze()


def run(main, debug=True):
    """Run a coroutine function; what asyncio would only log fails, and so do tasks that are left behind."""
    lost: list[dict] = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        async with asyncio.timeout(60):
            result = await main()
        await steps(3)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    result = asyncio.run(watched(), debug=debug)
    gc.collect()
    assert lost == []
    return result


@pytest.fixture(autouse=True)
def own_threads():
    """Gives the threads of the filter; none is left in the end. Other tests may leave theirs."""
    before = set(threading.enumerate())

    def found():
        return [one for one in threading.enumerate() if one.name.startswith("rtfilter") and one not in before]

    yield found
    assert not found()


async def steps(count):
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


def event(price, serial=0):
    return {"price": price, "serial": serial}


@WAYS
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_answers_have_the_ids_that_were_given(pause, kind):
    filter = EventFilter(Schema({"price": float}), ids=kind)
    names = [id_of(kind, number) for number in range(3)]
    filter.subscribe_many([f"price > {number}" for number in range(3)], ids=names)

    async def main():
        async with AsyncFilter(filter, pause=pause) as alerts:
            one = await alerts.match({"price": 1.5})
            completed = [set(ids.tolist()) async for _, ids, _ in alerts.as_completed([{"price": 9}])]
            return one, completed, await alerts.match_many([{"price": 0.5}, {}]), await alerts.match_many([])

    one, completed, found, nothing = run(main)
    assert (set(one.tolist()), completed) == (set(names[:2]), [set(names)])
    assert [ids.tolist() for ids in found] == [names[:1], []]
    assert (found.kind, nothing.kind, nothing.ids.dtype) == (kind, kind, one.dtype)


@WAYS
def test_times_to_live_are_held_against_the_moment_at_which_a_batch_begins(pause):
    now = [0.0]
    filter = EventFilter(Schema({"price": float}), clock=lambda: now[0])
    filter.subscribe_many(["price > 0", "price > 0"], ids=["a", "b"], ttl=[10, None])

    async def main():
        async with AsyncFilter(filter, pause=pause) as alerts:
            before = set((await alerts.match({"price": 1})).tolist())
            waiting = await alerts.submit({"price": 1})
            now[0] = 10.0
            return before, (await waiting).tolist()

    assert run(main) == ({"a", "b"}, ["b"])


class Noted(EventFilter):
    """Ten subscriptions. Knows its batches, by their prices, and holds up streams where a gate is set."""

    def __init__(self, **options):
        super().__init__(Schema({"price": float, "serial": int}), **options)
        self.subscribe_many([f"price > {low}" for low in range(10)])
        self.batches, self.arrivals = [], []
        self.gate = None

    def expected(self, price):
        return set(range(10)) & set(range(int(np.ceil(price))))

    def note(self, events, arrival):
        self.batches.append([row["price"] for row in map(events.row, range(len(events)))])
        self.arrivals.append(arrival)

    def match_batch(self, events, *, arrival=None):
        self.note(events, arrival)
        return super().match_batch(events, arrival=arrival)

    def stream(self, events, *, arrival=None):
        self.note(events, arrival)
        stream = super().stream(events, arrival=arrival)
        return stream if self.gate is None else self.gate.through(stream)


class Gate:
    """Holds up the thread before it tells an event, until the test lets some go."""

    def __init__(self):
        self.here, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def through(self, stream):
        try:
            for completion in stream:
                self.here.release()
                assert self.go.acquire(timeout=60)
                yield completion
        finally:
            stream.close()

    async def reached(self):
        assert await asyncio.to_thread(self.here.acquire, timeout=60)


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
def gated():
    """One event at a time, the last of a batch first; each waits at the gate."""
    filter = Noted(controller=FixedPlan(0, 1), order=lambda workload: np.arange(len(workload))[::-1])
    filter.gate = Gate()
    return filter


def results(tasks):
    return asyncio.gather(*tasks, return_exceptions=True)


# -- batches ---------------------------------------------------------------------------------------------


@WAYS
def test_what_is_asked_at_the_same_time_is_one_batch(noted, pause):
    prices = [k / 2 for k in range(24)]

    async def main():
        async with AsyncFilter(noted, pause=pause) as alerts:
            found = await asyncio.gather(*(alerts.match(event(price)) for price in prices))
            assert as_sets(found) == [noted.expected(price) for price in prices]
            assert (await alerts.match(event(3.5))).dtype == np.int64

    run(main)
    assert noted.batches == [prices, [3.5]]


def test_what_arrives_while_a_batch_is_searched_is_the_next_batch(gated):
    async def main():
        async with AsyncFilter(gated, pause=0) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(1)))]
            await gated.gate.reached()
            for price in (2, 3, 4):
                tasks.append(asyncio.create_task(alerts.match(event(price))))
                await steps(3)
            assert gated.batches == [[1]]
            gated.gate.go.release(4)
            assert as_sets(await asyncio.gather(*tasks)) == [gated.expected(price) for price in (1, 2, 3, 4)]

    run(main)
    assert gated.batches == [[1], [2, 3, 4]]


@WAYS
def test_no_batch_is_larger_than_its_size_and_the_order_is_that_of_arrival(noted, pause):
    async def main():
        async with AsyncFilter(noted, size=4, pause=pause) as alerts:
            await asyncio.gather(*(alerts.match(event(price)) for price in range(10)))

    run(main)
    assert noted.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("options", [{"size": 3}, {"most_waiting": 3}])
def test_a_batch_that_is_full_does_not_wait_for_the_delay(noted, options):
    async def main():
        async with AsyncFilter(noted, delay=1e6, pause=inf, **options) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(price))) for price in (1, 2)]
            await steps(5)
            assert noted.batches == []
            tasks.append(asyncio.create_task(alerts.match(event(3))))
            await asyncio.gather(*tasks)

    run(main)
    assert noted.batches == [[1, 2, 3]]


def test_the_first_event_of_a_batch_waits_for_the_delay(noted, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    async def main():
        timers = []

        def call_later(*given):
            timers.append(given)
            return asyncio.get_running_loop().call_at(inf, print)

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        alerts = AsyncFilter(noted, delay=5, pause=inf)
        answers = [await alerts.submit(event(1))]
        now[0] = 2.0
        answers.append(await alerts.submit(event(2)))
        ((seconds, begin),) = timers
        assert seconds == 5
        begin()
        assert all(answer.done() for answer in answers)
        answers.append(await alerts.submit(event(3)))
        assert timers[1][0] == 5

    run(main)
    assert noted.batches == [[1, 2]]
    assert noted.arrivals == [0]


def test_a_stream_releases_each_event_as_soon_as_it_is_known(gated):
    async def main():
        async with AsyncFilter(gated, pause=0) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(price))) for price in range(4)]
            for known in (3, 2, 1, 0):
                await gated.gate.reached()
                gated.gate.go.release()
                assert set((await tasks[known]).tolist()) == gated.expected(known)
                assert [task.done() for task in tasks] == [k >= known for k in range(4)]

    run(main)
    assert gated.batches == [[0, 1, 2, 3]]


def test_a_batch_is_matched_on_the_loop_where_it_is_expected_to_be_short(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module, "thread_time", lambda: clock[0])

    class Slow(Noted):
        takes = 0.0

        def match_batch(self, events, *, arrival=None):
            clock[0] += self.takes * len(events)
            return super().match_batch(events, arrival=arrival)

        def stream(self, events, *, arrival=None):
            self.streams += 1
            clock[0] += self.takes * len(events)
            return super().stream(events, arrival=arrival)

    async def main():
        slow, ways = Slow(), []
        async with AsyncFilter(slow, pause=1e-3) as alerts:

            async def batch(size, takes):
                slow.streams, slow.takes = 0, takes
                await asyncio.gather(*(alerts.match(event(1)) for _ in range(size)))
                return "thread" if slow.streams else "loop"

            assert await batch(50, 20e-6) == "loop"  # what is expected at the beginning
            assert await batch(51, 20e-6) == "thread"
            assert await batch(1, 3600) == "loop"  # loads code, say
            for _ in range(20):
                await batch(1, 20e-6)
            assert await batch(49, 20e-6) == "loop"  # it is forgotten
            ways = [await batch(1, 2e-3) for _ in range(40)]
            assert ways == sorted(ways)
            assert ways[-1] == "thread"
            for _ in range(40):
                await batch(1, 0)
            assert await batch(990, 0) == "loop"
            assert await batch(1001, 0) == "thread"  # nothing takes no time

    run(main, debug=False)


def test_the_arrival_of_a_batch_is_that_of_its_first_event(gated):
    async def main():
        async with AsyncFilter(gated, pause=0) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(1)))]
            await gated.gate.reached()
            between = [perf_counter()]
            for price in (2, 3):
                tasks.append(asyncio.create_task(alerts.match(event(price))))
                await steps(1)
                between.append(perf_counter())
            gated.gate.go.release(3)
            await asyncio.gather(*tasks)
            assert gated.arrivals[0] < between[0] <= gated.arrivals[1] <= between[1]

    run(main)


# -- errors ----------------------------------------------------------------------------------------------


class Odd(dict):
    """A mapping that cannot be read."""

    def get(self, *_):
        raise ZeroDivisionError("odd")

    __getitem__ = get


BAD = [
    {"price": nan, "serial": 1},
    None,
    7,
    "price",
    object(),
    [1.0, 2],
    [event(1), event(2)],
    Odd(price=1.0, serial=2),
    np.array([1.0]),
]


@WAYS
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_a_bad_event_fails_alone_and_as_it_would_alone(noted, bad, pause):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        noted.match(bad)

    async def main():
        async with AsyncFilter(noted, pause=pause) as alerts:
            first, error, last = await results(map(alerts.match, [event(1), bad, event(3)]))
            assert as_sets([first, last]) == [noted.expected(1), noted.expected(3)]
            with pytest.raises(expected.type) as alone:
                await alerts.match(bad)
            for given in (error, alone.value):
                assert (type(given), str(given)) == (expected.type, str(expected.value))
            assert [type(one) for one in await results(map(alerts.match, [bad, bad]))] == [expected.type] * 2

    run(main)
    assert noted.batches[0] == [1, 3]


@WAYS
def test_events_of_other_forms_are_matched(noted, pause):
    pd = pytest.importorskip("pandas")
    forms = [
        np.array([2.5, 0]),
        pd.DataFrame([event(2.5)]),
        [event(2.5)],
        noted.schema.read(event(2.5)),
        type("Own", (Mapping,), {k: lambda _, *a, k=k: getattr(event(2.5), k)(*a) for k in
                                 ("__getitem__", "__iter__", "__len__")})(),
    ]  # fmt: skip

    async def main():
        async with AsyncFilter(noted, pause=pause) as alerts:
            found = await asyncio.gather(*map(alerts.match, forms))
            assert as_sets(found) == [noted.expected(2.5)] * len(forms)

    run(main)


@WAYS
def test_texts_are_one_batch_and_a_bad_one_fails_alone(noted, pause):
    texts = ['{"price": 1.5}', b'{"price": 3.5}']

    async def main():
        async with AsyncFilter(noted, pause=pause) as alerts:
            both = await asyncio.gather(*map(alerts.match, texts))
            good, bad, mapping = await results(map(alerts.match, [texts[0], '{"price": }', event(3.5)]))
            assert as_sets([*both, good, mapping]) == [
                noted.expected(price) for price in (1.5, 3.5, 1.5, 3.5)
            ]
            assert isinstance(bad, EventError)
            assert isinstance((await results(map(alerts.match, ["{}", "{}{}"])))[1], EventError)

    run(main)
    assert noted.batches[0] == [1.5, 3.5]


@WAYS
def test_each_refused_event_is_counted_once(pause):
    filter = Noted(metrics=Metrics())

    async def main():
        async with AsyncFilter(filter, pause=pause) as alerts:
            await results(map(alerts.match, [event(1), event(nan), event(2), None, event(inf)]))

    run(main)
    assert inside(filter).metrics.refused_events == 3
    assert inside(filter).metrics.registry.get_sample_value("rtfilter_events_total") == 2


class Complete(RTreeMatcher):
    """Takes no event that lacks an attribute."""

    takes = Takes(missing=False)


@WAYS
def test_a_matcher_that_refuses_an_event_refuses_it_alone(pause):
    filter = Noted(matcher=Complete)

    async def main():
        async with AsyncFilter(filter, pause=pause) as alerts:
            found = await results(map(alerts.match, [event(1), {"price": 2}, event(3)]))
            assert as_sets([found[0], found[2]]) == [filter.expected(1), filter.expected(3)]
            assert isinstance(found[1], EventError)
            assert "needs all attributes" in str(found[1])

    run(main)


@WAYS
@pytest.mark.parametrize("raised", [ZeroDivisionError("found"), StopIteration(), SystemExit()])
def test_an_error_of_the_filter_reaches_all_of_its_batch_and_no_others(raised, pause):
    class Failing(Noted):
        def note(self, events, arrival):
            super().note(events, arrival)
            if len(self.batches) == 1:
                raise raised

    filter = Failing()

    async def main():
        alerts = AsyncFilter(filter, size=3, pause=pause)
        tasks = [asyncio.create_task(alerts.match(event(price))) for price in range(4)]
        first = await results(tasks[:3])
        assert set((await tasks[3]).tolist()) == filter.expected(3)
        for error in first:
            if isinstance(raised, ZeroDivisionError):
                assert error is raised
            else:
                assert isinstance(error, RuntimeError)
                assert error.__cause__ is raised
        assert set((await alerts.match(event(5))).tolist()) == filter.expected(5)
        await alerts.aclose()

    if pause and isinstance(raised, SystemExit):
        with pytest.raises(SystemExit):  # ends the loop, as it should
            run(main)
    else:
        run(main)


def test_a_batch_for_which_there_is_no_thread_fails_and_the_next_one_tries_again(noted, monkeypatch):
    async def main():
        async with AsyncFilter(noted, pause=0) as alerts:
            with monkeypatch.context() as patch:
                patch.setattr(
                    module.ThreadPoolExecutor, "submit", Mock(side_effect=RuntimeError("no thread"))
                )
                found = await results([alerts.match(event(1)), alerts.match(event(2))])
            assert [str(error) for error in found] == ["no thread"] * 2
            assert set((await alerts.match(event(3))).tolist()) == noted.expected(3)

    run(main)


# -- back pressure ---------------------------------------------------------------------------------------


def test_who_finds_no_room_waits_for_it_in_order_of_arrival(gated):
    async def main():
        async with AsyncFilter(gated, most_waiting=2, pause=0) as alerts:
            asked = [asyncio.create_task(alerts.submit(event(0)))]
            await gated.gate.reached()
            asked += [asyncio.create_task(alerts.submit(event(price))) for price in range(1, 7)]
            await steps(5)
            assert [task.done() for task in asked] == [True] * 3 + [False] * 4
            answers = [task.result() for task in asked[:3]]
            answers[1].cancel()  # makes room for one
            await steps(2)
            assert [task.done() for task in asked] == [True] * 4 + [False] * 3
            gated.gate.go.release()
            await gated.gate.reached()  # the next batch has begun, which makes room for two
            await steps(2)
            assert [task.done() for task in asked] == [True] * 6 + [False]
            gated.gate.go.release(9)
            found = await asyncio.gather(*[await task for task in asked], return_exceptions=True)
            assert isinstance(found.pop(1), asyncio.CancelledError)
            assert as_sets(found) == [gated.expected(price) for price in (0, 2, 3, 4, 5, 6)]

    run(main)
    assert gated.batches == [[0], [2, 3], [4, 5], [6]]


def test_events_are_taken_from_their_source_as_there_is_room(gated):
    taken = []

    def source():
        for price in range(7):
            taken.append(price)
            yield event(price)

    async def main():
        async with AsyncFilter(gated, most_waiting=2, pause=0) as alerts:
            task = asyncio.create_task(alerts.match_many(source()))
            await gated.gate.reached()
            await steps(5)
            assert taken == [0, 1, 2, 3, 4]  # two are searched, two wait, one waits for room
            gated.gate.go.release(7)
            assert as_sets(await task) == [gated.expected(price) for price in range(7)]

    run(main)


# -- cancelling ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("pause", "rounds"), [(inf, 14), (0, 9)], ids=["loop", "thread"])
def test_cancelling_at_every_step_harms_nobody_else(noted, pause, rounds):
    many = [(one, other) for one in range(5) for other in range(one, 5)]

    async def scenario(cancelled, after):
        noted.batches.clear()
        async with AsyncFilter(noted, most_waiting=2, pause=pause) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(price))) for price in range(5)]
            await steps(after)
            ends = {k: tasks[k].cancel() for k in cancelled}
            for price, found in enumerate(await results(tasks)):
                if price not in cancelled or not ends[price]:
                    assert set(found.tolist()) == noted.expected(price)
                else:
                    assert isinstance(found, asyncio.CancelledError)
            searched = list(chain.from_iterable(noted.batches))
            assert searched == sorted(set(searched))
            assert set(range(5)) - set(searched) <= set(cancelled)
            again = [alerts.submit(event(7)) for _ in range(2)]
            for asked in again:  # there is room for both, at once
                with pytest.raises(StopIteration):
                    asked.send(None)
            await alerts.match(event(8))
        return len(searched)

    async def main():
        return [await scenario(cancelled, after) for after in range(rounds) for cancelled in many]

    searched = run(main, debug=False)
    assert {min(searched), max(searched)} == {3, 5}


@WAYS
def test_cancelling_many_at_every_step_takes_all_back(noted, pause):
    async def scenario(after):
        async with AsyncFilter(noted, most_waiting=2, pause=pause) as alerts:
            many = asyncio.create_task(alerts.match_many(map(event, range(5))))
            other = asyncio.create_task(alerts.match(event(6)))
            await steps(after)
            ended = not many.cancel()
            found = (await results([many]))[0]
            assert ended or isinstance(found, asyncio.CancelledError)
            assert set((await other).tolist()) == noted.expected(6)
            for asked in [alerts.submit(event(7)) for _ in range(2)]:  # there is room for both, at once
                with pytest.raises(StopIteration):
                    asked.send(None)
            await alerts.match(event(8))
        return ended

    async def main():
        return [await scenario(after) for after in range(24)]

    ended = run(main, debug=False)
    assert not ended[0]
    assert pause == 0 or ended[-1]


def test_an_event_that_is_cancelled_while_it_waits_is_not_searched(gated):
    async def main():
        async with AsyncFilter(gated, pause=0) as alerts:
            tasks = [asyncio.create_task(alerts.match(event(price))) for price in (0, 1)]
            await gated.gate.reached()
            tasks += [asyncio.create_task(alerts.match(event(price))) for price in (2, 3)]
            await steps(2)
            tasks[0].cancel()  # is being searched, without harm
            tasks[2].cancel()
            gated.gate.go.release(9)
            found = await results(tasks)
            assert [type(found[k]) for k in (0, 2)] == [asyncio.CancelledError] * 2
            assert as_sets([found[1], found[3]]) == [gated.expected(1), gated.expected(3)]

    run(main)
    assert gated.batches == [[0, 1], [3]]


def test_a_batch_of_which_all_are_cancelled_is_no_batch(noted):
    async def main():
        async with AsyncFilter(noted, pause=inf) as alerts:
            for _ in range(2):
                (await alerts.submit(event(1))).cancel()
            await steps(3)
            await alerts.match(event(2))

    run(main)
    assert noted.batches == [[2]]


def test_an_error_nobody_waits_for_any_more_is_not_reported(noted):
    async def main():
        async with AsyncFilter(noted, pause=inf) as alerts:
            task = asyncio.create_task(alerts.match(event(nan)))
            await steps(2)  # it has failed, and the task will be told next
            task.cancel()
            assert isinstance((await results([task]))[0], asyncio.CancelledError)

    run(main)


# -- closing ---------------------------------------------------------------------------------------------


def test_closing_fails_all_that_are_not_known(gated):
    async def main():
        alerts = AsyncFilter(gated, most_waiting=2, pause=0)
        tasks = [asyncio.create_task(alerts.match(event(0)))]
        await gated.gate.reached()
        tasks += [asyncio.create_task(alerts.match(event(price))) for price in range(1, 6)]
        await steps(3)  # one is searched, two wait, and three wait for room
        tasks[-1].cancel()
        closing = [asyncio.create_task(alerts.aclose()) for _ in range(2)]
        *found, cancelled = await results(tasks)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert [type(one) for one in found] == [RuntimeError] * 5
        assert all("closed" in str(one) for one in found)
        assert not any(task.done() for task in closing)  # the thread still searches
        gated.gate.go.release()
        await asyncio.gather(*closing)
        await alerts.aclose()
        for ask in (alerts.match, alerts.submit, lambda one: alerts.match_many([one])):
            with pytest.raises(RuntimeError, match="is closed"):
                await ask(event(1))

    run(main)
    assert gated.batches == [[0]]
    assert set(gated.match(event(3)).tolist()) == gated.expected(3)


def test_closing_gives_up_the_rest_of_the_batch(gated):
    told = []

    async def main():
        alerts = AsyncFilter(gated, pause=0)
        tasks = [asyncio.create_task(alerts.match(event(price))) for price in range(4)]
        await gated.gate.reached()
        closing = asyncio.create_task(alerts.aclose())
        await results(tasks)
        gated.gate.go.release(4)
        await closing
        told.append(gated.gate.here.acquire(blocking=False))

    run(main)
    assert told == [False]
    gated.subscribe("price > 1")  # no stream is open


def test_closing_that_is_cancelled_leaves_the_thread_to_end_by_itself(gated, own_threads):
    async def main():
        alerts = AsyncFilter(gated, pause=0)
        task = asyncio.create_task(alerts.match(event(1)))
        await gated.gate.reached()
        (thread,) = own_threads()
        closing = asyncio.create_task(alerts.aclose())
        await steps(2)
        closing.cancel()
        assert isinstance((await results([closing]))[0], asyncio.CancelledError)
        assert isinstance((await results([task]))[0], RuntimeError)
        gated.gate.go.release()
        thread.join(60)

    run(main)


def test_a_loop_that_ends_without_closing_loses_nothing_else(gated, own_threads):
    async def main():
        alerts = AsyncFilter(gated, pause=0)
        task = asyncio.create_task(alerts.match(event(1)))
        await gated.gate.reached()
        task.cancel()
        await results([task])
        return alerts

    alerts = run(main)
    (thread,) = own_threads()
    gated.gate.go.release()  # finds the loop closed
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(alerts.match(event(1)))
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(alerts.aclose())
    del alerts
    while thread.is_alive():
        gc.collect()
        thread.join(0.01)
    gated.subscribe("price > 1")  # no stream is open


def test_nothing_works_without_a_loop(noted):
    asked = AsyncFilter(noted).match(event(1))
    with pytest.raises(RuntimeError, match="no running event loop"):
        asked.send(None)


def test_wrong_parameters_are_refused(noted):
    with pytest.raises(TypeError, match="must be an EventFilter, not None"):
        AsyncFilter(None)
    for size in (0, -1, 5):
        with pytest.raises(ValueError, match=f"size is from 1 to most_waiting, 4; got {size}"):
            AsyncFilter(noted, size=size, most_waiting=4)
    with pytest.raises(ValueError, match="size is from 1 to most_waiting, 0; got 0"):
        AsyncFilter(noted, most_waiting=0)
    with pytest.raises(TypeError):
        AsyncFilter(noted, size=1.5)
    for delay in (-1, nan, inf):
        with pytest.raises(ValueError, match="delay is in seconds, 0 or more"):
            AsyncFilter(noted, delay=delay)
    for pause in (-1, nan):
        with pytest.raises(ValueError, match="pause is in seconds, 0 or more"):
            AsyncFilter(noted, pause=pause)


# -- many ------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("count", [0, 1, 30])
def test_many_are_matched_as_a_batch_is(noted, count, pause):
    events = [event(k / 3) for k in range(count)]

    async def main():
        async with AsyncFilter(noted, most_waiting=8, pause=pause) as alerts:
            return await alerts.match_many(iter(events))

    found, expected = run(main), EventFilter.match_batch(noted, events)
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert (found.offsets.dtype, found.ids.dtype) == (np.int64, np.int64)
    assert as_sets(found) == as_sets(expected)


@WAYS
def test_a_bad_one_of_many_fails_all_and_tells_its_row(noted, pause):
    events = [event(price) for price in range(12)]
    events[7] = events[9] = event(nan)

    async def main():
        async with AsyncFilter(noted, most_waiting=5, pause=pause) as alerts:
            with pytest.raises(EventError, match="event 7: attribute 'price' is NaN") as caught:
                await alerts.match_many(events)
            assert caught.value.row == 7
            with pytest.raises(EventError, match="for a single event use match"):
                await alerts.match_many(event(1))
            await asyncio.gather(*(alerts.match(event(1)) for _ in range(5)))  # all room is free

    run(main)


def test_completions_come_as_they_are_known_and_leaving_takes_the_rest_back(gated):
    async def main():
        async with AsyncFilter(gated, pause=0, size=3) as alerts:
            seen = []
            async with aclosing(alerts.as_completed(map(event, range(7)))) as completions:
                gated.gate.go.release(4)
                async for row, ids, response in completions:
                    assert set(ids.tolist()) == gated.expected(row)
                    assert response > 0
                    seen.append(row)
                    if len(seen) == 4:
                        break
            gated.gate.go.release(9)
            await alerts.match(event(9))
            return seen

    assert run(main) == [2, 1, 0, 5]
    assert gated.batches == [[0, 1, 2], [3, 4, 5], [9]]


# -- random interleavings --------------------------------------------------------------------------------


class Model(Noted):
    """Knows what each event matches, by its serial number, at the moment when its batch begins."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()  # so that the thread never finds one changed, and the other not
        self.lows = {id: id for id in range(10)}
        self.truth = {}
        self.order = []

    def add(self, low):
        with self.lock:
            self.lows[self.subscribe(f"price > {low}")] = low

    def drop(self, place):
        with self.lock:
            id = sorted(self.lows)[place % len(self.lows)]
            assert self.unsubscribe(id)
            del self.lows[id]

    def stream(self, events, *, arrival=None):
        with self.lock:
            return super().stream(events, arrival=arrival)

    def note(self, events, arrival):
        for row in map(events.row, range(len(events))):
            self.truth[row["serial"]] = {id for id, low in self.lows.items() if row["price"] > low}
            self.order.append(row["serial"])


STEP = st.one_of(
    st.tuples(st.just("match"), st.integers(1, 5)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("add"), st.integers(0, 9)),
    st.tuples(st.just("drop"), st.integers(0, 30)),
)


@settings(max_examples=60)
@given(st.lists(STEP, max_size=25), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_whatever_happens_each_event_gets_what_it_matched_when_its_batch_began(todo, size, more, threaded):
    model = Model()

    async def main():
        tasks = []
        async with AsyncFilter(
            model, size=size, most_waiting=size + more, pause=0 if threaded else inf
        ) as alerts:
            for what, number in todo:
                if what == "match":
                    for _ in range(number):
                        asked = alerts.match(event(0.5 + number * len(tasks) % 10, len(tasks)))
                        tasks.append(asyncio.create_task(asked))
                elif what == "step":
                    await steps(number)
                elif what == "cancel" and tasks:
                    tasks[number % len(tasks)].cancel()
                elif what == "add":
                    model.add(number)
                elif what == "drop" and model.lows:
                    model.drop(number)
                assert len(alerts._waiting) <= size + more
            for serial, found in enumerate(await results(tasks)):
                if not isinstance(found, asyncio.CancelledError):
                    assert set(found.tolist()) == model.truth[serial]
        assert model.order == sorted(set(model.order))  # each once, in order of arrival

    asyncio.run(main())


def test_changes_from_coroutines_go_on_beside_batches(gated):
    async def main():
        async with AsyncFilter(gated, pause=0) as alerts:
            task = asyncio.create_task(alerts.match(event(5.5)))
            await gated.gate.reached()
            added = await asyncio.to_thread(gated.subscribe, "price > 5")  # finishes the stream, and goes on
            gated.gate.go.release(2)
            assert added not in (await task).tolist()
            assert added in (await alerts.match(event(5.5))).tolist()

    run(main)


def test_several_loops_share_a_filter(noted):
    found = {}

    def serve(name):
        async def main():
            async with AsyncFilter(noted) as alerts:
                many = (alerts.match(event(price)) for price in range(10))
                found[name] = as_sets(await asyncio.gather(*many))

        asyncio.run(main())

    threads = [threading.Thread(target=partial(serve, name)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [noted.expected(price) for price in range(10)] for name in range(3)}
