"""What comes together in one request to a webhook, and to whom it goes beside it."""

import json

import pytest

from rtfilter.service.access import tokens
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users
from rtfilter.store.webhook_table import WebhookTable
from service.kills.links import over_websocket
from service.running import running
from service.webhooks.asking import hooked, publish, until
from service.webhooks.target import target

pytestmark = pytest.mark.slow

LINES = "application/x-ndjson"
EVENTS = "/filters/default/events"
SUBSCRIPTIONS = "/filters/default/subscriptions"


def publish_lines(server, *events):
    body = "\n".join(map(json.dumps, events)).encode()
    assert server.ask("POST", EVENTS, body, user="carl", kind=LINES).status == 202
    server.settle()


def sizes(told, count):
    """How many deliveries were in the first requests."""
    told.wait(count)
    return [len(body["deliveries"]) for body in told.bodies()]


def test_a_request_has_so_many_deliveries_at_most(tmp_path):
    with target() as told, running(tmp_path, webhook_private=True) as server:
        server.ask("POST", SUBSCRIPTIONS, {"where": "price > 0"})
        publish_lines(server, *({"price": price} for price in range(1, 251)))
        hooked(server, told.url)
        assert sizes(told, 3) == [100, 100, 50]


def test_a_request_has_so_many_bytes_at_most_or_one_delivery(tmp_path):
    with target() as told, running(tmp_path, webhook_private=True) as server:
        server.ask("POST", SUBSCRIPTIONS, {"where": "price > 0"})
        for size in (300, 100, 100, 100):
            publish_lines(server, {"price": 1, "more": "x" * 1000 * size})
        hooked(server, told.url)
        assert sizes(told, 3) == [1, 2, 1]


def test_a_digest_is_a_request_of_its_own(tmp_path):
    with target("hang") as told, running(tmp_path, webhook_private=True) as server:
        server.ask("PUT", "/webhook", {"url": told.url})
        server.ask("POST", SUBSCRIPTIONS, {"where": "price > 0", "digest": 1})
        server.ask("POST", SUBSCRIPTIONS, {"where": "price > 100"})
        publish_lines(server, {"price": 101})
        told.wait(1)
        publish_lines(server, {"price": 1}, {"price": 102}, {"price": 2})
        until(lambda: not server.pipeline.deliver._digests)  # all waits for the first request
        told.free()
        told.wait(4)
        found = [
            (body.get("digest", False), [one["event"]["price"] for one in body["deliveries"]])
            for body in told.bodies()
        ]
        assert found == [(False, [101]), (False, [101]), (False, [102]), (True, [1, 2])]


def test_a_session_takes_over_and_gives_back_what_it_did_not_acknowledge(tmp_path):
    with target() as told, running(tmp_path, webhook_private=True) as server:
        with over_websocket(server.port) as link:

            def hear(directive):
                while (message := json.loads(link.recv(timeout=60)))["directive"] != directive:
                    pass
                return message

            def say(directive, answer="ACK", **more):
                link.send(json.dumps({"directive": directive, **more}))
                hear(answer)

            say("CONNECT", "CONNECTED", user="ann")
            say("READY")
            hooked(server, told.url)
            until(lambda: len(server.pipeline.deliver._receivers["ann"]) == 2)
            publish(server, 1)
            say("ACK", upto=hear("EVENT")["number"])
            publish(server, 2)
            hear("EVENT")
        told.wait(1)
        assert told.prices() == [2]


# -- rights --------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path):
    """A server with users, what asks it as one of them, and what changes them."""
    database = engine(f"sqlite:///{tmp_path}/log.sqlite")
    users, made = Users(database), {}
    for name, role in {"root": "admin", "ann": "subscriber", "bob": "subscriber"}.items():
        users.add(name, "no password", [role])
        made[name] = tokens.new()
        users.add_token(name, tokens.digest(made[name]))
    with running(tmp_path, webhook_private=True) as server:

        def ask(user, method, path, body=None):
            return server.ask(method, path, body, user=None, Authorization=f"Bearer {made[user]}")

        ask.users, ask.database, ask.settle = users, database, server.settle
        yield ask
    database.dispose()


def hook(guarded, url, user):
    guarded(user, "POST", SUBSCRIPTIONS, {"where": "price > 0"})
    assert guarded(user, "PUT", "/webhook", {"url": url}).status == 200


def test_a_user_who_may_not_subscribe_is_sent_nothing_until_that_changes(guarded):
    with target() as lost, target() as other:
        hook(guarded, lost.url, "ann")
        hook(guarded, other.url, "bob")
        guarded.users.set_roles("ann", ["publisher"])
        until(lambda: guarded("root", "GET", "/webhook?user=ann").body["state"] == "stopped")
        guarded("root", "POST", EVENTS, {"price": 1})
        guarded.settle()
        other.wait(1)
        assert not lost.requests
        guarded.users.set_roles("ann", ["subscriber"])
        lost.wait(1)
        assert lost.prices() == [1]


def test_the_webhook_of_a_user_who_is_removed_is_forgotten(guarded):
    with target() as told:
        hook(guarded, told.url, "ann")
        guarded.users.remove("ann")
        until(lambda: guarded("root", "GET", "/webhook?user=ann").status == 404)
        assert WebhookTable(guarded.database).read() == []
