"""What the doors of the page answer, without a browser."""

import re

import pytest

from rtfilter.service.backlog import Backlog
from rtfilter.service.records import UserDelivery
from rtfilter.service.status import slowest
from service.running import running

FILES = ["/", "/page.css", "/page.js", "/icon.svg"]
EVENTS, SUBSCRIPTIONS = "/filters/default/events", "/filters/default/subscriptions"


@pytest.fixture(scope="module")
def unused(tmp_path_factory):
    """A server of which only the page is asked."""
    with running(tmp_path_factory.mktemp("unused")) as found:
        yield found


def test_a_browser_is_told_to_be_strict(unused):
    for path in FILES:
        answer = unused.ask("GET", path, user=None)
        assert answer.status == 200, path
        policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["form-action"] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'", path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["referrer-policy"] == "no-referrer", path


def test_what_a_browser_has_is_not_sent_again(unused):
    for path in FILES:
        first = unused.ask("GET", path, user=None)
        again = unused.ask("GET", path, user=None, if_none_match=first.headers["etag"])
        assert (again.status, again.bytes) == (304, b""), path
        assert again.headers["cache-control"] == "no-cache", path
        assert unused.ask("GET", path, user=None, if_none_match='"other"').bytes == first.bytes, path


def test_the_page_names_nothing_of_other_hosts(unused):
    for path in FILES:
        found = re.findall(rb"https?://[^\"'\s]+", unused.ask("GET", path, user=None).bytes)
        assert set(found) <= {b"http://www.w3.org/2000/svg"}


def test_the_page_is_the_same_for_all(unused, guarded):
    for path in FILES:
        assert unused.ask("GET", path, user="ann").bytes == guarded.ask("GET", path, user=None).bytes


def test_the_status_counts_what_came(server):
    made = server.ask("POST", SUBSCRIPTIONS, {"where": "price < 10"}).body["subscription"]
    for price in (5, 6, 50):
        server.ask("POST", EVENTS, {"price": price}, user="carl")
    server.settle()
    found = server.ask("GET", "/status", user=None)
    assert found.headers["cache-control"] == "no-store"
    (filter,) = found.body["filters"]
    assert (filter["name"], filter["subscriptions"]) == ("default", 1)
    assert (filter["events"], filter["matches"]) == (3, 2)
    assert sum(filter["response"]["counts"]) == 3
    assert len(filter["response"]["counts"]) == len(filter["response"]["bounds"]) + 1
    assert sum(one["events"] for one in filter["estimates"]) == 3
    assert found.body["settled"] == found.body["head"] > made
    (ann,) = found.body["slowest"]
    assert (ann["user"], ann["pending"], ann["connected"]) == ("ann", 2, False)
    assert [one["name"] for one in found.body["stages"]][-2:] == ["match", "deliver"]


def test_the_status_tells_the_plan_of_batches(server):
    server.ask("POST", SUBSCRIPTIONS, {"where": "price < 10"})
    lines = b'{"price": 1}\n' * 40
    server.ask("POST", EVENTS, lines, kind="application/x-ndjson")
    server.settle()
    (plan,) = server.ask("GET", "/status", user=None).body["filters"][0]["plans"]
    assert (plan["size_class"], plan["batches"]) == (32, 1)


def test_the_status_is_for_admins_where_there_are_users(guarded):
    def ask(user):
        header = {} if user is None else {"Authorization": f"Bearer {guarded.tokens[user]}"}
        return guarded.ask("GET", "/status", user=None, **header)

    assert [ask(user).status for user in (None, "ann", "root")] == [401, 403, 200]
    assert ask("root").body["open"] is False


def backlog(*moments):
    made = Backlog()
    for position, at in enumerate(moments, 1):
        made.add(UserDelivery(position, (1,), b"{}", "default", at, None))
    return made


def test_the_slowest_are_those_with_the_longest_and_the_oldest_backlogs():
    found = {f"long{n}": backlog(*[50.0] * (n + 10)) for n in range(20)}
    found |= {f"old{n}": backlog(n) for n in range(20)} | {"idle": backlog()}
    users = [user for user, _ in slowest(found)]
    assert users[:5] == [f"long{n}" for n in (19, 18, 17, 16, 15)]
    assert users[5:] == [f"old{n}" for n in range(5)]
