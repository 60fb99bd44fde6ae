"""Two sites in this process, and what is published and delivered there."""

import time

BEAT = 0.1
EVENT = "/filters/default/events"


def until(found, seconds=60):
    """What a function finds, once it finds something."""
    end = time.monotonic() + seconds
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
