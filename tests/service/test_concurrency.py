"""The time of the event loop, shared by turns."""

import asyncio

import pytest

from rtfilter.service import concurrency
from rtfilter.service.concurrency import Rounds, Turn


def test_one_goes_on_in_each_round():
    async def run():
        line, done, rounds = Rounds(), [], []
        for number in range(3):
            line.join(lambda number=number: done.append(number))
        while len(done) < 3:
            await asyncio.sleep(0)
            rounds.append(len(done))
        return rounds

    rounds = asyncio.run(run())
    assert rounds[-1] == 3
    assert max(after - before for before, after in zip([0, *rounds], rounds, strict=False)) == 1


def test_addresses_take_turns_however_many_peers_they_have():
    async def run():
        line, done = Rounds(), []
        for address in ("a", "a", "a", "b", "b", "c"):
            line.join(lambda address=address: done.append(address), address)
        while len(done) < 6:
            await asyncio.sleep(0)
        return "".join(done)

    assert asyncio.run(run()) == "abcaba"


@pytest.mark.parametrize(("seconds", "order"), [(-1.0, "abab"), (1e9, "aabb")])
def test_work_waits_where_its_turn_is_over(monkeypatch, seconds, order):
    monkeypatch.setattr(concurrency, "TURN", seconds)

    async def run():
        line, done = Rounds(), []

        async def work(name):
            turn = Turn(line)
            for _ in range(2):
                done.append(name)
                await turn.pause()

        await asyncio.gather(work("a"), work("b"))
        return "".join(done)

    assert asyncio.run(run()) == order


def test_who_gives_up_waiting_has_no_turn():
    async def run():
        line = Rounds()
        task = asyncio.create_task(line.wait())
        await asyncio.sleep(0)
        task.cancel()
        await line.wait()
        return task.cancelled()

    assert asyncio.run(run())
