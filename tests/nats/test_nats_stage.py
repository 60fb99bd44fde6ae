"""A worker on a real cluster: which events meet which subscriptions, and what is stored."""

import asyncio
import json
from functools import wraps

import pyarrow as pa
import pytest
from stage import again, new_name, stage, until

from rtfilter.nats import key_of, nats_worker, pull
from rtfilter.nats.subjects import MARK, BucketShard

pytestmark = pytest.mark.needs("nats")


def run(test):
    """Run a test on an event loop."""

    @wraps(test)
    def wrapped(**given):
        return asyncio.run(asyncio.wait_for(test(**given), 120))

    return wrapped


def held_up(worker):
    """Let a worker ask for the end of the bucket only once the returned event is set."""
    reach, may = worker.bucket.reach, asyncio.Event()

    async def held():
        await may.wait()
        await reach()

    worker.bucket.reach = held
    return may


@run
async def test_all_forms_of_messages(cluster):
    table = pa.table({"price": [1.0, 60.0]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    bodies = [
        b'{"price": 5}',
        b'{"price": 50}\n{"price": 6}\n',
        b'[{"price": 60}, {"price": 7}]',
        sink.getvalue().to_pybytes(),
        b'{\n "price": 4\n}',
    ]
    async with stage(cluster) as made:
        await made.subscribe("low", "price < 10")
        first = (await made.publish(*bodies))[0]
        await made.done()
        found = await made.matches()
        places = [(one["sequence"] - first, one["row"]) for one in found]
        assert sorted(places) == [(0, 0), (1, 1), (2, 1), (3, 0), (4, 0)]
        assert all(one["user"] == "ann" and one["subscriptions"] == ["low"] for one in found)
        assert {one["event"]["price"] for one in found} == {5, 6, 7, 1.0, 4}


@run
async def test_bad_events_and_subscriptions_are_reported(cluster):
    async with stage(cluster) as made:
        reports = await made.client.subscribe(f"rtfilter.{made.name}.refused")
        await made.client.flush()
        await made.subscribe("good", "price < 10")
        revision = await made.subscribe("bad", "price <")
        bodies = [
            b'{"price": 5}',
            b"",
            b'{"price": NaN}',
            b'{"price": 5}\n{"price": 1e999}\n{"price": 6}',
            b"7",
        ]
        sequences = await made.publish(*bodies)
        await made.done()
        assert await made.seen() == {
            (sequences[0], 0): ["good"],
            (sequences[3], 0): ["good"],
            (sequences[3], 2): ["good"],
        }
        told = [json.loads((await reports.next_msg(5)).data) for _ in range(5)]
        (subscription,) = [one for one in told if "subscription" in one]
        assert (subscription["subscription"], subscription["revision"]) == ("bad", revision)
        events = sorted(
            (one["sequence"], one["row"]) for one in told if "sequence" in one and one["row"] is not None
        )
        assert events == [(sequences[2], 0), (sequences[3], 1), (sequences[4], 0)]
        assert all(one["reason"] for one in told)


@run
async def test_changes_that_were_stored_before_an_event_was_published_count(cluster):
    """Just before each event one subscription is added, one is replaced, and one is removed."""
    async with stage(cluster) as made:
        sequences = []
        for turn in range(40):
            await made.subscribe(f"added-{turn}", "price < 10")
            await made.subscribe(f"replaced-{turn - 1}", "price > 10")
            await made.bucket.delete(f"removed-{turn - 2}")
            for name in (f"replaced-{turn}", f"removed-{turn}"):
                await made.subscribe(name, "price < 10")
            sequences += await made.publish(b'{"price": 5}')
        await made.done()
        seen = await made.seen()
        for turn, sequence in enumerate(sequences):
            found = set(seen[sequence, 0])
            assert {f"added-{one}" for one in range(turn + 1)} <= found
            assert not found & {f"replaced-{one}" for one in range(turn)}
            assert not found & {f"removed-{one}" for one in range(turn - 1)}


@run
async def test_a_worker_that_is_late_waits_for_the_changes(cluster):
    """Changes reach the worker three seconds late; the event that came after them sees them all the same."""
    async with stage(cluster) as made:
        (worker,) = made.workers
        apply = worker.bucket._apply

        async def late(messages):
            await asyncio.sleep(3)
            await apply(messages)

        worker.bucket._apply = late
        await made.subscribe("it", "price < 10")
        (sequence,) = await made.publish(b'{"price": 5}')
        await made.done()
        assert await made.seen() == {(sequence, 0): ["it"]}
        assert worker.bucket.behind > 0


@run
async def test_a_change_between_the_event_and_its_match_counts_or_not(cluster):
    """The race that is left: here the worker asks for the end of the bucket only after the change."""
    async with stage(cluster) as made:
        (worker,) = made.workers
        may = held_up(worker)
        await made.subscribe("old", "price < 10")
        (before,) = await made.publish(b'{"price": 5}')
        await made.subscribe("new", "price < 10")
        await made.bucket.delete("old")
        may.set()
        await made.done()
        assert await made.seen() == {(before, 0): ["new"]}  # although it is younger than the event


@run
async def test_a_former_leader_of_the_bucket_is_not_believed(cluster):
    """The leader stands still, others elect a new one and store a change; then it goes on."""
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.subscribe("it", "price < 10")
        await worker.bucket.last()
        info = await made.engine.stream_info(f"KV_{made.name}")
        leader = int(info.cluster.leader.rpartition("-")[2])
        others = [number for number in range(3) if number != leader]
        cluster.pause(others)
        try:
            await asyncio.sleep(3.5)
            asked = asyncio.create_task(worker.bucket.last())
            await asyncio.sleep(1)
            assert not asked.done()  # it has not heard from the others, and cannot write
        finally:
            cluster.pause(others, resume=True)
        assert await asyncio.wait_for(asked, 60) >= info.state.last_seq
        marks = worker.bucket.marks
        await made.engine._nc.request(f"$JS.API.STREAM.LEADER.STEPDOWN.KV_{made.name}", b"", timeout=5)

        async def moved():
            try:
                return (await made.engine.stream_info(f"KV_{made.name}")).cluster.leader not in (None, "")
            except Exception:
                return False

        await until(moved)
        await again(lambda: made.subscribe("that", "price < 10"))
        (sequence,) = await again(lambda: made.publish(b'{"price": 5}'))
        await made.done()
        assert (await made.seen())[sequence, 0] == ["it", "that"]
        assert worker.bucket.marks > marks
        assert MARK not in await made.bucket.keys()


@run
async def test_the_end_of_the_bucket_may_be_gone(cluster):
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.subscribe("a", "price < 10")
        await made.subscribe("b", "price < 10")
        await worker.bucket.reach()
        await made.engine.purge_stream(f"KV_{made.name}", subject=f"$KV.{made.name}.b")
        sequences = await made.publish(b'{"price": 5}', b'{"price": 5}')
        await made.done()
        await until(lambda: len(worker.bucket.subscriptions.users) == 1)
        sequences += await made.publish(b'{"price": 5}')
        await made.done()
        seen = await made.seen()
        assert seen[sequences[-1], 0] == ["a"]
        await made.engine.purge_stream(f"KV_{made.name}")
        worker.bucket._reloaded = -100.0
        await made.publish(b'{"price": 5}')
        await made.done()
        await until(lambda: len(worker.bucket.subscriptions.users) == 0)
        await made.subscribe("c", "price < 10")
        (last,) = await made.publish(b'{"price": 5}')
        await made.done()
        assert (await made.seen())[last, 0] == ["c"]


@run
async def test_receivers(cluster):
    for out, right in (
        ("out.{subscription}", {("out.x.1", ("x.1",)), ("out.y", ("y",)), ("out.z", ("z",))}),
        ("out.{user}", {("out.a=2Eb=20=C3=A9", ("x.1", "y")), ("out.bob", ("z",))}),
        ("out.all", {("out.all", ("x.1", "y", "z"))}),
    ):
        name = new_name()
        async with stage(cluster, out=f"{name}{out}", filter=name, events=f"{name}.events.>") as made:
            await made.subscribe("x.1", "price < 10", "a.b \u00e9")
            await made.subscribe("y", "price < 20", "a.b \u00e9")
            await made.subscribe("z", "price < 30", "bob")
            await made.publish(b'{"price": 5}')
            await made.done()
            listener = await made.engine.subscribe(f"{name}out.>", ordered_consumer=True)
            found = set()
            for _ in right:
                message = await listener.next_msg(10)
                found.add(
                    (message.subject.removeprefix(name), tuple(json.loads(message.data)["subscriptions"]))
                )
            assert found == right


@run
async def test_a_time_to_live_ends(cluster):
    async with stage(cluster) as made:
        await made.subscribe("brief", "price < 10", ttl=1)
        await made.subscribe("long", "price < 10", ttl=1000)
        (one,) = await made.publish(b'{"price": 5}')
        await made.done()
        await asyncio.sleep(1.2)
        (two,) = await made.publish(b'{"price": 5}')
        await made.done()
        assert await made.seen() == {(one, 0): ["brief", "long"], (two, 0): ["long"]}


@run
async def test_shards_have_all_together(cluster):
    async with stage(cluster, workers=0) as made:
        shards = [await made.worker(shard=BucketShard(number, 2)) for number in (1, 2)]
        keys = [key_of(f"order {number}") for number in range(20)]
        for key in keys:
            await made.subscribe(key, "price < 10")
        (sequence,) = await made.publish(b'{"price": 5}')

        async def both():
            return len(await made.matches()) == 2

        await until(both)
        assert await made.seen() == {(sequence, 0): sorted(keys)}
        assert all(0 < len(worker.bucket.subscriptions.users) < 20 for worker in shards)


@run
async def test_a_worker_begins_with_its_snapshot(cluster, tmp_path):
    async with stage(cluster, data=tmp_path) as made:
        (worker,) = made.workers
        for number in range(50):
            await made.subscribe(f"k{number}", "price < 10")
        await worker.bucket.reach()
        await made.stop(worker)
        await made.bucket.delete("k7")
        await made.subscribe("new", "price < 10")
        worker = await made.worker()
        assert worker._setup.subscriptions.revision >= 50
        (sequence,) = await made.publish(b'{"price": 5}')
        await made.done()
        right = sorted({"new", *(f"k{number}" for number in range(50))} - {"k7"})
        assert await made.seen() == {(sequence, 0): right}
        assert worker.bucket._number < 10  # it has read the rest only


@run
async def test_a_large_message_leaves_out_the_event_and_then_is_cut(cluster):
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.subscribe("one", "price < 10")
        text = "x" * (worker.client.max_payload - 300)
        (one,) = await made.publish(json.dumps({"price": 5, "more": text}).encode())
        await made.done()
        (found,) = await made.matches()
        assert (found["sequence"], found["subscriptions"], "event" in found) == (one, ["one"], False)
        for number in range(5):
            await made.subscribe(f"{number}" * 200, "price < 10")
        worker.client._max_payload = 1200
        (two,) = await made.publish(b'{"price": 5}')
        await made.done()
        assert len((await made.seen())[two, 0]) == 6


@run
async def test_long_batches_keep_their_events(cluster):
    """A search in the thread takes longer than the engine waits; another worker gets none of its events."""
    async with stage(cluster, ack_wait=1.0) as made:
        (worker,) = made.workers
        await made.subscribe("it", "price < 10")
        await worker.bucket.reach()
        search, turns = worker._search, []

        def slow(events, bad):
            import time

            turns.append(len(events))
            time.sleep(2.5)
            yield from search(events, bad)

        worker._search, worker._pace = slow, 1.0
        await made.publish(b'{"price": 5}')
        info = await made.done()
        assert turns == [1]
        assert info.num_redelivered == 0


@run
async def test_a_failing_search_leaves_out_one_event(cluster):
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.subscribe("it", "price < 10")
        await worker.bucket.reach()
        search = worker._search

        def failing(events, bad):
            if any(b"13" in text for text in events.texts):
                raise RuntimeError("unlucky")
            yield from search(events, bad)

        worker._search = failing
        (sequence,) = await made.publish(b'{"price": 5}\n{"price": 13}\n{"price": 6}')
        await made.done()
        assert await made.seen() == {(sequence, 0): ["it"], (sequence, 2): ["it"]}
        assert worker._measures.refused_events == 1


@run
async def test_the_events_of_a_dead_worker_come_again_and_are_stored_once(cluster):
    async with stage(cluster, ack_wait=2.0) as made:
        (dying,) = made.workers
        await made.subscribe("it", "price < 10")
        await dying.bucket.reach()

        dying._some_stored.set = lambda: None  # so nothing is acknowledged
        sequences = await made.publish(*[b'{"price": 5}'] * 5)

        async def stored():
            return len(await made.matches()) == 5

        await until(stored)
        await made.kill(dying)
        heir = await made.worker()
        info = await made.done()
        assert info.num_redelivered == 0  # any more
        assert sorted(one["sequence"] for one in await made.matches()) == sequences
        await until(lambda: heir._publisher.duplicates >= 4)


@run
async def test_a_worker_that_ends_gives_its_events_to_others(cluster):
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.subscribe("it", "price < 10")
        await worker.bucket.reach()
        may = held_up(worker)
        await made.publish(b'{"price": 5}')
        await until(lambda: worker._unacknowledged)
        await made.publish(*[b'{"price": 5}'] * 20)
        await until(lambda: len(worker._pull.rest()) == 20)
        ending = asyncio.create_task(made.stop(worker))
        may.set()
        await ending
        await made.worker()
        await made.done()
        assert len(await made.matches()) == 21


@run
async def test_a_deleted_consumer_ends_the_worker(cluster):
    async with stage(cluster) as made:
        (worker,) = made.workers
        await made.engine.delete_consumer(f"{made.name}-events", made.name)
        with pytest.raises(Exception, match="was deleted"):
            await asyncio.wait_for(worker.task, 30)


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_server_may_die_and_come_back(cluster, victim):
    async def go():
        async with stage(cluster) as made:
            await made.subscribe("it", "price < 10")
            sequences = await made.publish(b'{"price": 5}')
            cluster.kill(victim)
            try:
                for _ in range(20):
                    while True:
                        try:
                            sequences += await made.publish(b'{"price": 5}')
                            break
                        except Exception:  # no leader now
                            await asyncio.sleep(0.1)
            finally:
                cluster.start(victim)
            await made.done()
            seen = await made.seen()
            assert {sequence for sequence, _ in seen} >= set(sequences)
            assert all(keys == ["it"] for keys in seen.values())

    asyncio.run(asyncio.wait_for(go(), 120))


def test_a_pull_repeats_lost_requests(cluster, monkeypatch):
    monkeypatch.setattr(pull, "SILENT", 1.5)
    monkeypatch.setattr(nats_worker, "EVENTS", 5)

    async def go():
        async with stage(cluster) as made:
            (worker,) = made.workers
            worker._pull._asked = 10_000  # as if the engine had lost them
            await made.subscribe("it", "price < 10")
            await made.publish(*[b'{"price": 5}'] * 12)
            await made.done()
            assert len(await made.matches()) == 12

    asyncio.run(asyncio.wait_for(go(), 60))
