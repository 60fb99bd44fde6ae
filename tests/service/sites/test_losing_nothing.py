"""Events that a site could miss without a fault of the network: its backlog is full, or its log is new."""

import time
from http.client import IncompleteRead

import pytest
from sqlalchemy.exc import OperationalError

from rtfilter.service.sites import catching_up
from rtfilter.store.backup_file import back_up, restore
from service.running import running

BEAT = 0.1
EVENT = "/filters/default/events"


def until(found):
    end = time.monotonic() + 60
    while not (result := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return result


def shown(server):
    return server.ask("GET", "/site", user="admin").body


def linked(*servers):
    """Whether each has a neighbour that takes what it sends, and misses nothing."""
    found = [shown(one) for one in servers]
    return all(
        one["current"] and one["neighbours"] and all(near["taking"] for near in one["neighbours"])
        for one in found
    )


def subscribe(server, where="price >= 0"):
    path = "/filters/default/subscriptions?everywhere=true"
    assert server.ask("POST", path, {"where": where}, user="ann").status == 201


def publish(server, prices):
    lines = b"\n".join(b'{"price": %d}' % price for price in prices)
    answer = server.ask("POST", EVENT, lines, user="carl", kind="application/x-ndjson")
    assert answer.status == 202, answer.body


def pull(server):
    """Take all that waits for a user; the prices."""
    prices = []
    while found := server.ask("GET", "/deliveries?limit=1000", user="ann").body["deliveries"]:
        prices += [one["event"]["price"] for one in found]
        server.ask("POST", "/acknowledgements", {"positions": [one["position"] for one in found]}, user="ann")
    return prices


def arrived(server, prices):
    """Wait until each price has arrived; none comes twice."""
    found = []
    until(lambda: found.extend(pull(server)) or set(found) >= set(prices))
    assert sorted(found) == sorted(prices)


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
