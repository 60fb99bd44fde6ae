"""The server with a database of PostgreSQL, killed or ended, and started again."""

from itertools import islice

import pytest
from real_server import Framed, serving

import postgresql
from rtfilter.client import connect_plain

pytestmark = pytest.mark.needs("postgresql")


@pytest.fixture(scope="module")
def url():
    with postgresql.server() as dsn:
        options = dict(part.split("=") for part in dsn.split())
        yield f"postgresql://rtfilter:topsecret@/{options['dbname']}?host={options['host']}"


def test_what_is_pending_comes_after_a_kill(tmp_path, url):
    with serving(tmp_path, RTFILTER_DATABASE=url) as server:
        with connect_plain(server.url, user="ann") as ann:
            id = ann.subscribe("price > 5")
            positions = ann.publish([{"price": 6.0}, {"price": 1.0}, {"price": 7.0}])
            deliveries = ann.deliveries(timeout=60)
            assert next(deliveries).position == positions[0]
            next(deliveries)  # which acknowledges the one before
        server.kill()
        server.start()
        with connect_plain(server.url, user="ann") as ann:
            (again,) = ann.publish([{"price": 8.0}])
            found = [(one.position, one.subscriptions) for one in islice(ann.deliveries(timeout=60), 2)]
        assert found == [(positions[2], (id,)), (again, (id,))]


@pytest.mark.long
def test_frames(tmp_path, url):
    with serving(tmp_path, RTFILTER_DATABASE=url) as server:
        with Framed(server) as peer:
            peer.say("CONNECT", user="bob")
            id = peer.say("SUBSCRIBE", where="price > 50")["subscription"]
            (position,) = peer.say("PUBLISH", event={"price": 51.0})["positions"]
        server.end()
        server.start()
        with Framed(server) as peer:
            peer.say("CONNECT", user="bob")
            assert peer.say("GET")["pending"] == 1
            found = peer.delivery()
            assert (found["position"], found["subscriptions"]) == (position, [id])
            assert peer.say("ACK", upto=found["number"]) == {"directive": "ACK"}
            assert peer.say("GET")["pending"] == 0
