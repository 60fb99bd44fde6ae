"""Events that a site could miss without a fault of the network: its backlog is full, or its log is new."""

import time
from http.client import IncompleteRead

import pytest
from sqlalchemy.exc import OperationalError

from rtfilter.service.sites import catching_up
from rtfilter.store.backup_file import back_up, restore
from service.running import running
from service.sites.pairs import BEAT, arrived, linked, publish, pull, subscribe, until


@pytest.mark.slow
def test_what_a_full_backlog_drops_is_read_from_the_log(tmp_path):
    with (
        running(tmp_path / "a", site="a", heartbeat=BEAT, backlog_count=100) as a,
        running(tmp_path / "b", site="b", heartbeat=BEAT, rendezvous=a.opened.address) as b,
    ):
        until(lambda: linked(a, b))
        subscribe(b)
        commit, away = b.pipeline._log.commit, [True]

        def refuse(*given):
            if away:
                raise OperationalError("no", {}, Exception("the disk is full"))
            return commit(*given)

        b.pipeline._log.commit = refuse
        for first in range(0, 500, 50):
            publish(a, range(first, first + 50))
        time.sleep(20 * BEAT)  # in which it could be told that it has all of them
        away.clear()
        arrived(b, range(500))
        until(lambda: linked(a, b))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a new disk", "a backup"])
def test_events_of_a_site_that_gives_positions_again_arrive_once(how, tmp_path):
    saved, again = tmp_path / "saved.tar", tmp_path / "again"
    with running(tmp_path / "a", site="a", heartbeat=BEAT) as a:
        settings = {"site": "b", "heartbeat": BEAT, "rendezvous": a.opened.address}
        with running(tmp_path / "b", **settings) as b:
            until(lambda: linked(a, b))
            subscribe(a)
            publish(b, range(3))
            arrived(a, range(3))
            back_up(tmp_path / "b", saved)
            publish(b, range(10, 15))
            arrived(a, range(10, 15))
        if how == "a backup":
            restore(saved, again)
        with running(again, **settings) as b:
            until(lambda: linked(a, b))
            publish(b, range(20, 23))
            arrived(a, range(20, 23))
            time.sleep(10 * BEAT)
            assert pull(a) == []


def test_what_an_origin_breaks_off_is_read_again(tmp_path, monkeypatch):
    answer, broken = catching_up._answer, [True]

    def break_off(address, path):
        if broken and "events" in path:
            broken.pop()
            raise IncompleteRead(b"")
        return answer(address, path)

    monkeypatch.setattr(catching_up, "_answer", break_off)
    with (
        running(tmp_path / "a", site="a", heartbeat=BEAT) as a,
        running(tmp_path / "b", site="b", heartbeat=BEAT, rendezvous=a.opened.address) as b,
    ):
        until(lambda: linked(a, b))
        assert not broken
