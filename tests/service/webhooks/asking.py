"""What tests of webhooks ask a server in a thread."""

import time


def hooked(server, url, user="ann"):
    """Give a user a subscription and a webhook; returns its secret."""
    server.ask("POST", "/filters/default/subscriptions", {"where": "price > 0"}, user=user)
    made = server.ask("PUT", "/webhook", {"url": url}, user=user)
    assert made.status == 200, made.body
    return made.body["secret"]


def publish(server, *prices):
    for price in prices:
        assert server.ask("POST", "/filters/default/events", {"price": price}, user="carl").status == 202
    server.settle()


def until(look):
    end = time.monotonic() + 60
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def shown(server, user="ann"):
    return server.ask("GET", "/webhook", user=user).body
