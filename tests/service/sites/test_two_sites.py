"""What the page of sites promises, with two servers of this process, or with one that is alone."""

import logging
import re
import shlex
import sys
import time
from contextlib import contextmanager
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

import postgresql
from rtfilter.adaptive import FixedPlan
from rtfilter.cli import main
from rtfilter.client import connect_plain
from rtfilter.service import pipeline as module
from rtfilter.service.sites import catching_up
from rtfilter.service.sites.catching_up import KnownSite, Positions
from rtfilter.store.database import engine
from rtfilter.store.site_table import SiteTable
from service.certificates import certified
from service.running import running
from service.sites.alone import HERE, PLACE, alone
from service.sites.alone import until as until_true
from service.sites.network import free
from service.sites.pairs import BEAT, arrived, linked, publish, pull, shown, subscribe, until

ALONE = {"site": "here", "address": HERE, "rendezvous": HERE, "heartbeat": BEAT}
SUBSCRIPTIONS = "/filters/default/subscriptions"
BUSY = HTTPStatus.SERVICE_UNAVAILABLE, "/problems/busy"
SOON = 0.5
"""Seconds after which who waits for all sites gets an answer."""
PAGE = Path(__file__).parents[3] / "docs" / "overlay.md"
VARYING = {
    r'("position": |"subscriptions": \[)\d+': r"\1N",
    r"\d[\d,]* a second": "N a second",
    r":\d+$": ":PORT",
    r"^\d+$": "N",
}
"""What may differ from the page in the output of a command."""


@contextmanager
def two(folder, names, **flags):
    """Two sites that are linked; the first one is the rendezvous point, and the root."""
    first, second = names
    with (
        running(folder / first, site=first, heartbeat=BEAT, **flags) as one,
        running(
            folder / second, site=second, heartbeat=BEAT, rendezvous=one.opened.address, **flags
        ) as other,
    ):
        until(lambda: linked(one, other))
        yield one, other


@pytest.fixture(scope="module")
def cities(tmp_path_factory):
    """The sites of the page."""
    with two(tmp_path_factory.mktemp("cities"), ("paris", "tokyo")) as both:
        yield both


def wanted_everywhere(server, where, user="ann", key="once"):
    """The answer of a site that was asked to subscribe at all sites."""
    path = f"{SUBSCRIPTIONS}?everywhere=true"
    return server.ask("POST", path, {"where": where}, user=user, Idempotency_Key=key)


def prices(server):
    """The prices of all events in the log of a site."""
    found = server.ask("GET", "/filters/default/events?limit=1000", user="admin").body["events"]
    return [one["event"]["price"] for one in found]


# -- two sites -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_events_that_come_while_a_database_is_away_arrive_once_afterwards(cities):
    paris, tokyo = cities
    log = tokyo.pipeline._log
    commit, away, lost = log.commit, [True], [True]
    subscribe(tokyo, "price >= 1000")

    def refuse(requests, progress=None):
        if away:
            raise OperationalError("no", {}, Exception("the disk is full"))
        head = log.head
        placed = commit(requests, progress)
        if lost and any(one.key is not None for one in requests):
            lost.clear()  # it is stored, but only the next commit finds that out
            log.head, log._in_doubt = head, True
            raise OperationalError("no", {}, Exception("the answer is lost"))
        return placed

    log.commit = refuse
    try:
        for first in range(1000, 2500, 500):
            publish(paris, range(first, first + 500))
        time.sleep(20 * BEAT)  # so that the first ones are refused several times
        away.clear()
        arrived(tokyo, range(1000, 2500))
    finally:
        away.clear()
        log.commit = commit
    assert not lost
    until(lambda: linked(*cities))
    assert pull(tokyo) == []


@pytest.mark.slow
def test_the_commands_of_the_page_say_what_it_says(cities, monkeypatch, capsys, tmp_path):
    paris, tokyo = cities
    monkeypatch.setenv("RTFILTER_URL", paris.opened.address)
    until(lambda: linked(*cities))
    (block,) = (
        one
        for one in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        if "rtfilter subscribe" in one
    )
    shown = re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert [re.search(r"rtfilter (\w+)", command)[1] for command, _ in shown] == [
        "subscribe",
        "publish",
        "listen",
        "map",
    ]
    for command, lines in shown:
        before, _, last = command.rpartition(" | ")
        if before:
            program, text = shlex.split(before)
            assert program == "echo"
            (tmp_path / "given").write_text(f"{text}\n")
        program, *arguments = shlex.split(last.replace("8081", str(tokyo.port)))
        assert program == "rtfilter"
        if arguments[0] == "listen":  # it would wait for ever
            until(lambda: paris.pipeline.deliver.backlog("ann").pending)
        with (tmp_path / "given").open("a+") as given:
            given.seek(0)
            monkeypatch.setattr(sys, "stdin", given)
            assert main(arguments) == 0
        found = capsys.readouterr()
        assert varying(found.out + found.err) == varying(lines), command


def varying(text):
    """A text without what may differ from the page."""
    for pattern, short in VARYING.items():
        text = re.sub(pattern, short, text, flags=re.MULTILINE)
    return text


@pytest.mark.slow
def test_events_of_another_site_come_in_the_order_of_their_key(cities):
    """Here the last event of each batch is matched first; who asks for no order gets it first."""
    paris, tokyo = cities
    definition = {"schema": {"price": "float", "symbol": "str"}, "key": "symbol"}
    for site in cities:
        assert site.ask("PUT", "/filters/keyed", definition, user="admin").status == HTTPStatus.OK
    until(lambda: linked(*cities))
    index = tokyo.pipeline.filters._indexes["keyed"]
    index.filter.configure(controller=FixedPlan(0, 1))
    stream = index.stream
    index.stream = lambda events: SimpleNamespace(groups=lambda: [*stream(events).groups()][::-1])
    where, count = {"where": "price >= 0"}, 300
    path = "/filters/keyed/subscriptions?everywhere=true"
    for user, order in (("olga", {"order": "key"}), ("bob", {})):
        assert tokyo.ask("POST", path, where | order, user=user).status == HTTPStatus.CREATED
    with (
        connect_plain(tokyo.opened.address, user="olga") as olga,
        connect_plain(tokyo.opened.address, user="bob") as bob,
    ):
        both = [client.deliveries(timeout=60) for client in (olga, bob)]
        publish_keyed(paris, 1)
        for deliveries in both:
            next(deliveries)  # from now on, events are sent as soon as their matches are known
        publish_keyed(paris, count)
        mine, other = (
            [
                (event.body["symbol"], event.position)
                for delivery in islice(deliveries, count)
                for event in delivery.events
            ]
            for deliveries in both
        )
    assert sorted(mine) == sorted(other)
    assert len(set(mine)) == count
    for symbol in "ab":
        places = [position for one, position in mine if one == symbol]
        assert places == sorted(places)
    assert [position for _, position in other] != sorted(position for _, position in other)


def publish_keyed(server, count):
    events = b"\n".join(b'{"price": %d, "symbol": "%c"}' % (at, b"ab"[at % 2]) for at in range(count))
    path, kind = "/filters/keyed/events", "application/x-ndjson"
    assert server.ask("POST", path, events, user="carl", kind=kind).status == HTTPStatus.ACCEPTED


@pytest.mark.slow
def test_events_meet_at_the_cluster_that_is_set_for_their_filter(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", SOON)
    flags = {"heartbeat": BEAT, "strategy": "rendezvous", "rendezvous_for": "default=b"}
    with running(tmp_path / "a", site="a", **flags) as a:
        flags |= {"site": "b", "port": free(), "rendezvous": a.opened.address}
        with running(tmp_path / "b", **flags) as b:
            until(lambda: linked(a, b))
            assert shown(a)["root"]
            until(lambda: wanted_everywhere(a, "price > 5").status == HTTPStatus.CREATED)
            assert shown(b)["subscriptions"] == 1
            publish(b, [7])
            arrived(a, [7])
        refused = wanted_everywhere(a, "price > 50", key="later")
        assert (refused.status, refused.body.get("type")) == BUSY
        with running(tmp_path / "b", **flags) as b:
            until(lambda: wanted_everywhere(a, "price > 50", key="later").status == HTTPStatus.CREATED)
            publish(b, [70])
            arrived(a, [70])


@pytest.mark.slow
def test_near_boxes_are_one_at_the_neighbour(tmp_path):
    with two(tmp_path, "ab", strategy="profile_forwarding", slack=0.3) as (a, b):
        subscribe(b, "price BETWEEN 0 AND 10")
        subscribe(b, "price BETWEEN 12 AND 20")
        until(lambda: shown(a)["subscriptions"] == 1)
        subscribe(b, "price BETWEEN 1000 AND 1010")  # too far away
        assert shown(a)["subscriptions"] == 2
        publish(a, [5, 11, 15, 500, 1005])
        arrived(b, [5, 15, 1005])
        assert prices(b) == [5, 11, 15, 1005]


@pytest.mark.slow
def test_an_event_arrives_over_tls(tmp_path, monkeypatch):
    certificate, key = certified(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ports = {name: free() for name in "ab"}
    addresses = {name: f"https://localhost:{port}" for name, port in ports.items()}
    flags = {
        "certificate": certificate,
        "certificate_key": key,
        "heartbeat": BEAT,
        "rendezvous": addresses["a"],
    }

    def site(name):
        return running(tmp_path / name, site=name, address=addresses[name], port=ports[name], **flags)

    with site("a") as a, site("b") as b:
        until(lambda: linked(a, b))
        subscribe(b)
        publish(a, [7])
        arrived(b, [7])


@pytest.mark.slow
def test_a_site_that_is_gone_for_good_is_missed_until_someone_says_so_and_may_come_back(tmp_path):
    def forgotten(name):
        return stays.ask("DELETE", f"/site/sites/{name}", user="admin").status

    with running(tmp_path / "stays", site="stays", heartbeat=BEAT) as stays:
        given = {"site": "goes", "heartbeat": BEAT, "port": free(), "rendezvous": stays.opened.address}
        with running(tmp_path / "goes", **given) as goes:
            until(lambda: linked(stays, goes))
            until(lambda: "goes" in shown(stays)["sites"])
            subscribe(stays)
            assert forgotten("goes") == HTTPStatus.CONFLICT  # it is here
            assert forgotten("other") == HTTPStatus.NOT_FOUND
        until(lambda: not shown(stays)["neighbours"])
        time.sleep(5 * BEAT)
        assert not shown(stays)["current"]
        assert forgotten("goes") == HTTPStatus.NO_CONTENT
        assert shown(stays)["current"]
        assert "goes" not in shown(stays)["sites"]
        assert forgotten("goes") == HTTPStatus.NOT_FOUND
        with running(tmp_path / "goes", **given) as goes:
            publish(goes, [1])
            arrived(stays, [1])
            until(lambda: linked(stays, goes) and "goes" in shown(stays)["sites"])


# -- a site alone --------------------------------------------------------------------------------------------


def strategy_of(server):
    return shown(server)["strategy"]


@pytest.mark.slow
def test_a_strategy_is_kept_over_a_restart(tmp_path):
    path = "/site/strategy"
    with running(tmp_path, **ALONE) as site:
        until(lambda: shown(site)["root"])
        assert site.ask("PUT", path, {"strategy": "flood"}, user="admin").status == HTTPStatus.CONFLICT
        assert strategy_of(site) == "hybrid"
        changed = site.ask("PUT", path, {"strategy": "event_forwarding"}, user="admin")
        assert changed.status == HTTPStatus.NO_CONTENT
        until(lambda: strategy_of(site) == "event_forwarding")
    with running(tmp_path, **ALONE) as site:
        until(lambda: strategy_of(site) == "event_forwarding")


def test_who_waits_too_long_for_all_sites_asks_again_with_the_same_key(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", SOON)
    with running(tmp_path, **ALONE) as server:
        site, held = server.pipeline.site, []
        confirm, site._confirm = site._confirm, held.append
        refused = wanted_everywhere(server, "price > 5")
        assert (refused.status, refused.body.get("type")) == BUSY
        (stored,) = server.ask("GET", "/subscriptions").body["subscriptions"]
        until(lambda: held)
        site._confirm = confirm
        server.run(call(confirm, held))
        again = wanted_everywhere(server, "price > 5")
        assert again.status == HTTPStatus.CREATED
        assert again.body["subscription"] == stored["subscription"]
        assert len(server.ask("GET", "/subscriptions").body["subscriptions"]) == 1


async def call(function, each):
    """Call a function on the loop of the server."""
    for one in each:
        function(one)


def test_events_that_an_origin_has_removed_are_a_critical_line(tmp_path, monkeypatch, caplog):
    log = {"removed": 0, "head": 5, "log": "1"}

    def answer(address, path):
        return dict(log) if path == "/site" else {"events": [], "next": None}

    monkeypatch.setattr(catching_up, "_answer", answer)

    async def script(pipeline, site):
        await until_true(lambda: site.shown.root)

        async def read(**changes):
            log.update(changes)
            site.catching_up.anew()
            await until_true(lambda: site.shown.current)
            assert site.shown.sites["far"].position == log["head"]

        site.catching_up.hear(Positions({"far": KnownSite("http://127.0.0.1:9", 0)}))
        await read()
        await read(removed=5, head=8)
        assert critical() == []
        await read(removed=10, head=12)
        await read()

    def critical():
        return [one.getMessage() for one in caplog.records if one.levelno == logging.CRITICAL]

    alone(tmp_path, script)
    (line,) = critical()
    assert re.fullmatch("events of far between its positions 8 and 10 may be lost here: .*", line)


def test_all_sites_hear_that_a_site_is_gone_and_that_it_is_back(tmp_path):
    far = KnownSite("http://127.0.0.1:9", 5, "1")

    async def script(pipeline, site):
        await until_true(lambda: site.shown.root)

        def hear(turns, name="far"):
            site.catching_up.hear(Positions({name: far._replace(turns=turns)}))
            return "far" in site.shown.sites, site.shown.current

        assert hear(0) == (True, False)  # there is nobody at its address
        assert hear(1) == (False, True)
        assert hear(0) == (False, True)  # told by a site that has not heard of it
        assert hear(2) == (True, False)
        assert hear(1) == (True, False)
        site.forget("far")
        assert hear(2) == (False, True)
        assert hear(3, "unheard") == (False, True)
        await site.catching_up.store()
        kept = type(site.catching_up)(site._stages, "here", None, site._table, site._router)
        assert {name: one.turns for name, one in kept.known.items()} == {"far": 3, "unheard": 3}
        for told, own in ((0, 0), (1, 2), (2, 2), (1, 2), (4, 4), (5, 6)):
            hear(told, "here")
            assert site.catching_up.turns == own

    alone(tmp_path, script)


def test_the_log_has_the_place_of_a_site(tmp_path, caplog):
    caplog.set_level(logging.INFO, "rtfilter.service.sites.site")

    async def script(pipeline, site):
        await until_true(lambda: site.shown.root)
        caplog.clear()
        broker, below = site._broker, PLACE._replace(designated="near")
        nowhere, at_root = below._replace(parent=""), below._replace(parent="", root=True)
        for root, place in (
            ("", nowhere),
            ("", below),  # the root becomes known soon
            ("top", below),
            ("top", below),
            ("cluster", at_root),
            ("", nowhere),
        ):
            site._broker = SimpleNamespace(place=place, membership=SimpleNamespace(root=root))
            site._log_place()
        site._broker = broker
        return caplog.messages[:]

    nowhere = "cluster cluster has no place in the tree, and looks for one"
    assert alone(tmp_path, script) == [
        nowhere,
        "the root of the tree is cluster top; above cluster cluster, for which near stands, is above",
        "cluster cluster is the root of the tree now; near stands for it",
        nowhere,
    ]


# -- the table of a site -------------------------------------------------------------------------------------


def keep_values(url):
    made = engine(url)
    table = SiteTable(made)
    assert table.get("root") is None
    for name, value in (("root", b"1"), ("term", b"\0\xff"), ("root", b"2"), ("none", b"")):
        table.put(name, value)
    assert table.get("root") == b"2"
    made.dispose()
    made = engine(url)
    again = SiteTable(made)
    assert [again.get(name) for name in ("root", "term", "none", "have")] == [b"2", b"\0\xff", b"", None]
    made.dispose()


def test_values_of_a_site_are_kept(tmp_path):
    keep_values(f"sqlite:///{tmp_path}/log.sqlite")


@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_values_of_a_site_are_kept_on_postgresql():
    with postgresql.running() as server:
        keep_values(server.url)
