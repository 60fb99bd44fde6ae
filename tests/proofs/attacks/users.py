"""Attacks of one user of the lowest role, and a crowd without malice."""

import json
import time
from contextlib import suppress
from urllib.parse import quote

from proofs.attacks.measuring import add_user, users

EVENTS = "/filters/default/events"
SUBSCRIPTIONS = "/filters/default/subscriptions"
MATCH = "/filters/default/match"
NDJSON = "application/x-ndjson"


def subscribe(target, count, where="price > 0", user="eve", **more):
    """Subscribe so many times."""
    for first in range(0, count, 20_000):
        rows = [{"where": where, **more}] * min(20_000, count - first)
        answer = target.lines(SUBSCRIPTIONS, rows, user)
        assert all("subscription" in row for row in answer["rows"]), answer["rows"][0]


def settled(target, user="eve"):
    """Wait until all that was put in is matched."""
    target.ask("POST", MATCH, b'{"price": -1}', user)


def settle_events(target, count, user="eve"):
    """Wait until a user has so many deliveries."""
    until = time.monotonic() + 300
    while json.loads(target.ask("GET", "/statistics", user=user)[1])["pending"] < count:
        assert time.monotonic() < until
        time.sleep(0.2)


def take_all(target, user):
    """Acknowledge all that waits for a user."""
    path = "/deliveries?limit=1000"
    while found := json.loads(target.ask("GET", path, user=user)[1])["deliveries"]:
        taken = {"positions": [one["position"] for one in found]}
        target.ask("POST", "/acknowledgements", json.dumps(taken).encode(), user)


def together(count, work):
    """Do work in so many threads."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


# -- what is large once it is read ---------------------------------------------------------------------------


def events_with_961_choices(target):
    """A request of 2.5 MB to match events with two lists of 31 elements each, and some that are published."""
    event = {"price": list(range(31)), "symbol": [f"s{n}" for n in range(31)]}
    body = b"\n".join([json.dumps(event).encode()] * 6_000)
    target.ask("POST", MATCH, body, kind=NDJSON)
    target.ask("POST", EVENTS, body[:100_000].rpartition(b"\n")[0], kind=NDJSON)
    settled(target)


events_with_961_choices.prepare = lambda target: subscribe(target, 10)


def many_matches(target):
    """2,000 subscriptions and 20,000 events that all match, to be matched only."""
    target.ask("POST", MATCH, b'{"price": 1}\n' * 20_000, kind=NDJSON)


many_matches.prepare = lambda target: subscribe(target, 2000)


def lines_with_an_unknown_field(target):
    """100,000 subscriptions that are refused."""
    target.ask("POST", SUBSCRIPTIONS, b'{"where": "price > 1", "what": 1}\n' * 100_000, kind=NDJSON)


# -- what is removed -----------------------------------------------------------------------------------------


def _pending(target, subscriptions, events=10_000, **more):
    """A user with so many subscriptions and deliveries, of one subscription each."""
    subscribe(target, 1)
    target.lines(EVENTS, [{"price": 1}] * events)
    settle_events(target, events)
    subscribe(target, subscriptions, "price > 5", **more)


def subscriptions_that_end_together(target):
    """20,000 subscriptions of a user with 10,000 deliveries end by themselves."""
    time.sleep(45)


subscriptions_that_end_together.prepare = lambda target: _pending(target, 20_000, ttl=30)


def a_filter_is_removed(target):
    """It has 10,000 subscriptions, of a user with 10,000 deliveries."""
    target.ask("DELETE", "/filters/default", user="admin")


a_filter_is_removed.prepare = lambda target: _pending(target, 10_000)


# -- what nobody reads ---------------------------------------------------------------------------------------


def unread_deliveries(target):
    """25 connections ask for deliveries and read nothing; each delivery has 100,000 ids."""
    links = [target.link() for _ in range(25)]
    for link in links:
        link.sendall(target.head("GET", "/deliveries?limit=1000"))
    time.sleep(15)
    for link in links:
        link.close()


def _long_deliveries(target):
    subscribe(target, 100_000)
    target.lines(EVENTS, [{"price": 1}] * 5)
    settle_events(target, 1)
    settled(target, "other")


unread_deliveries.prepare = _long_deliveries


def unfinished_bodies(target):
    """60 bodies of 16 MB that lack a byte, of a user who may not publish."""
    links = []
    for _ in range(60):
        with suppress(OSError):
            link = target.link()
            links.append(link)
            link.settimeout(0.5)
            size = 16_000_000
            given = {"Content_Type": NDJSON, "Content_Length": size}
            link.sendall(target.head("POST", EVENTS, "eve:eve-password", **given))
            link.sendall(b"\n" * (size - 1))
    time.sleep(5)
    for link in links:
        link.close()


unfinished_bodies.accounts = [("root", "admin"), ("eve", "subscriber"), ("second", "subscriber")]
unfinished_bodies.second = "second:second-password"


def unfinished_bodies_of_a_publisher(target):
    """The same of a user who may."""
    unfinished_bodies(target)


unfinished_bodies_of_a_publisher.accounts = [
    ("root", "admin"),
    ("eve", "publisher"),
    ("second", "subscriber"),
]
unfinished_bodies_of_a_publisher.second = "second:second-password"


def a_query_of_large_events(target):
    """A query that looks at 1,000 events of 400 kB."""
    target.ask("GET", f"{EVENTS}?where={quote('price > 5')}")


def _large_events(target):
    more = [{str(n): n} for n in range(30_000)]
    for _ in range(34):
        target.lines(EVENTS, [{"price": 1, "more": more}] * 30)


a_query_of_large_events.prepare = _large_events


def queries_of_one_user(target):
    """40 queries at a time that look at 100,000 events each and find none."""
    together(40, lambda _: target.ask("GET", f"{EVENTS}?where={quote('price > 5')}"))


def _many_events(target):
    for _ in range(4):
        target.lines(EVENTS, [{"price": 1, "symbol": "x" * 50}] * 25_000)


queries_of_one_user.prepare = _many_events
queries_of_one_user.asked = ("GET", f"{EVENTS}?limit=1")


# -- what waits ----------------------------------------------------------------------------------------------


def a_backlog_of_ids(target):
    """4,000 small events, each of which matches 3,000 subscriptions of one user, who takes them then."""
    target.lines(EVENTS, [{"price": 1}] * 4_000)
    settled(target)
    take_all(target, "eve")


a_backlog_of_ids.prepare = lambda target: subscribe(target, 3000)


def a_crowd(target):
    """400 events that 50,000 subscriptions of 1,000 users match, who take them then; no malice."""
    target.lines(EVENTS, [{"price": 1}] * 400)
    settled(target)
    for user in range(1000):
        take_all(target, f"u{user}")


def _crowd(target):
    for user in range(1000):
        subscribe(target, 50, user=f"u{user}")


a_crowd.prepare = _crowd


def a_user_is_removed(target):
    """The user has 10,000 subscriptions and 10,000 deliveries; a crowd has some that expire."""
    target.lines(EVENTS, [{"price": 1}] * 400, "root:root-password")
    users("remove", target.data, "eve")
    path, admin = "/statistics", "root:root-password"
    while json.loads(target.ask("GET", path, user=admin)[1])["server"]["waiting_deliveries"]:
        time.sleep(0.5)


def _crowd_and_users(target):
    _pending(target, 10_000)
    _crowd(target)
    for name, role in (("root", "admin"), ("eve", "subscriber"), ("second", "subscriber")):
        add_user(target.data, name, role)


a_user_is_removed.prepare = _crowd_and_users
a_user_is_removed.flags = ("--backlog-age", 90)
a_user_is_removed.second = "second:second-password"

PIPELINE, DELIVER = "service/test_pipeline.py", "service/test_deliver.py"
DOORS, TIMEOUTS = "service/doors/test_http_doors.py", "service/doors/test_timeouts.py"
ARROW = "service/doors/test_arrow_bodies.py"
ATTACKS = {
    events_with_961_choices: f"{PIPELINE}::test_events_with_lists_are_matched_in_parts",
    many_matches: f"{ARROW}::test_many_matches_are_looked_up_and_written_in_parts",
    lines_with_an_unknown_field: f"{DOORS}::test_refused_lines_take_little_memory",
    subscriptions_that_end_together: f"{PIPELINE}::test_what_ends_together_ends_in_parts",
    a_filter_is_removed: f"{PIPELINE}::test_what_ends_together_ends_in_parts",
    unread_deliveries: f"{DOORS}::test_long_deliveries_are_written_in_parts",
    unfinished_bodies: f"{TIMEOUTS}::test_a_body_that_waits_for_room_is_not_read",
    unfinished_bodies_of_a_publisher: f"{TIMEOUTS}::test_bodies_of_one_user_have_room_in_order",
    a_query_of_large_events: f"{PIPELINE}::test_large_events_are_queried_part_by_part",
    queries_of_one_user: f"{PIPELINE}::test_a_query_comes_between_the_parts_of_another_users",
    a_backlog_of_ids: f"{DELIVER}::test_events_that_match_alike_share_their_ids",
    a_crowd: f"{DELIVER}::test_an_event_with_many_matches_is_told_in_steps",
    a_user_is_removed: f"{PIPELINE}::test_all_subscriptions_are_looked_through_in_turns",
}
"""Attacks, and the test in `make test` that is the short form of each."""
