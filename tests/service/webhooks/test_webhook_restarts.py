"""Webhooks of a server that is killed or started again, and whose database fails."""

import random
import time

import pytest
from sqlalchemy.exc import OperationalError

import postgresql
from rtfilter.store import database
from rtfilter.store.log import Log
from service.kills.process import Server
from service.running import running
from service.webhooks.asking import hooked, publish, shown, until
from service.webhooks.target import target

pytestmark = pytest.mark.slow

JSON = {"Content_Type": "application/json"}


# -- killed --------------------------------------------------------------------------------------------------


class Killed:
    """A server as a process, which is killed and started again; `published` are all prices."""

    def __init__(self, folder):
        self._folder, self.published = folder, []
        self._flags = ("--schema", folder / "given.json", "--webhook-private")
        self._server = Server(folder, flags=self._flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.end()

    def hook(self, url):
        self._server.ask("POST", "/filters/default/subscriptions", "ann", '{"where": "price > 0"}', **JSON)
        self._server.ask("PUT", "/webhook", "ann", f'{{"url": "{url}"}}', **JSON)

    def publish(self):
        self.published.append(len(self.published) + 1)
        self._server.ask(
            "POST", "/filters/default/events", "carl", f'{{"price": {self.published[-1]}}}', **JSON
        )

    def again(self):
        self._server.end()
        self._server = Server(self._folder, flags=self._flags)


def id_of(request):
    return {name.lower(): value for name, value in request[0].items()}["webhook-id"]


def test_a_request_that_a_kill_cuts_off_comes_again_with_the_same_id(tmp_path):
    with target("hang", 200) as told, Killed(tmp_path) as server:
        server.hook(told.url)
        server.publish()
        told.wait(1)
        server.again()
        first, second = told.wait(2)
        assert id_of(first) == id_of(second)


@pytest.mark.long
def test_kills_lose_nothing(tmp_path):
    chance = random.Random(5)
    with target(200) as told, Killed(tmp_path) as server:
        server.hook(told.url)
        for _ in range(2):
            told.answers = [*chance.choices([200, 500, "close", "hang"], [6, 1, 1, 1], k=10), 200]
            for _ in range(15):
                server.publish()
            time.sleep(chance.uniform(0.0, 0.1))
            server.again()
        told.answers = [200]
        until(lambda: set(server.published) <= set(told.prices(told.taken)))


def test_what_is_durably_acknowledged_does_not_come_again_after_a_kill(tmp_path):
    with target() as told, Killed(tmp_path) as server:
        server.hook(told.url)
        for count in (1, 2):  # the second is not sent before the first one is written as acknowledged
            server.publish()
            told.wait(count)
        server.again()
        server.publish()
        until(lambda: 3 in told.prices())
        assert told.prices().count(1) == 1


# -- started again -------------------------------------------------------------------------------------------


def fail_and_restart(folder, **given):
    """Have a webhook fail once with each of three servers, of which the last one parks it."""
    given |= {"webhook_private": True, "webhook_tries": 3}
    with target(500) as told:
        for count in (1, 2, 3):
            with running(folder, **given) as server:
                if count == 1:
                    hooked(server, told.url)
                    publish(server, 1)
                until(lambda n=count, s=server: shown(s)["failures"] >= n)
                state = shown(server)["state"]
        return state, len(told.requests)


def test_failures_are_counted_over_restarts(tmp_path):
    assert fail_and_restart(tmp_path) == ("parked", 3)


@pytest.mark.long
@pytest.mark.needs("postgresql")
def test_failures_are_counted_over_restarts_on_postgresql(tmp_path):
    with postgresql.running() as there:
        assert fail_and_restart(tmp_path, database=there.url) == ("parked", 3)


def test_a_success_ends_the_count(tmp_path):
    with target(500, 200) as told:
        with running(tmp_path, webhook_private=True) as server:
            hooked(server, told.url)
            publish(server, 1)
            until(lambda: not server.ask("GET", "/deliveries").body["deliveries"])
            publish(server, 2)
            told.wait(3)  # it is not sent before what became of the first one is written
        with running(tmp_path, webhook_private=True) as server:
            assert shown(server)["failures"] == 0


# -- without room --------------------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch):
    """Whether the database may grow; see `service.faults.started`."""
    inner, now = database._begin, {"full": False}

    def begin(connection):
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if now['full'] else 2**30}")
        inner(connection)

    monkeypatch.setattr(database, "_begin", begin)
    return now


def test_a_webhook_for_which_there_is_no_room_is_refused_and_not_there(tmp_path, full):
    with running(tmp_path, webhook_private=True) as server:
        full["full"] = True
        url = "http://127.0.0.1/" + "x" * 1900
        users = (f"user{number}" for number in range(100))
        refused = next(
            (one for one in users if server.ask("PUT", "/webhook", {"url": url}, user=one).status == 503),
            None,
        )
        assert refused is not None
        assert server.ask("GET", "/webhook", user=refused).status == 404
        full["full"] = False
        assert server.ask("PUT", "/webhook", {"url": url}, user=refused).status == 200


def test_what_could_not_be_written_as_acknowledged_is_written_later(tmp_path, monkeypatch):
    inner, now = Log.commit, {"full": False}

    def commit(self, *given):
        if now["full"]:
            raise OperationalError("", {}, Exception("database or disk is full"))
        return inner(self, *given)

    monkeypatch.setattr(Log, "commit", commit)
    with target(500, 200) as told:
        with running(tmp_path, webhook_private=True) as server:
            hooked(server, told.url)
            publish(server, 1)
            told.wait(1)
            now["full"] = True
            until(lambda: told.taken)
            errors = server.pipeline.measures.database_errors
            until(lambda: server.pipeline.measures.database_errors > errors + 3)
            now["full"] = False
            publish(server, 2)
            told.wait(3)
        with running(tmp_path, webhook_private=True) as server:
            publish(server, 3)
            until(lambda: 3 in told.prices())
            assert told.prices().count(1) == 2  # the one that failed, and the other
