"""Servers that subscribe at each other: every event arrives at every site that wants it, once."""

import json
import time
from base64 import b64encode
from urllib.request import Request, urlopen

import pytest

import postgresql
from rtfilter.cli import main
from rtfilter.overlay.strategies import STRATEGIES
from rtfilter.service.origins import Origin, neighbour_of, origin_of
from rtfilter.service.settings import SettingsError, settings
from service.kills.process import Server
from service.sites.network import HEARTBEAT, ONE, Checker, Network, free, run
from service.sites.pairs import until

THREE = {"s0": "s0", "s1": "s1", "s2": "s2"}


def test_an_origin_is_written_in_place_of_a_user():
    origin = Origin("ann", "paris", 7, 1.5, "tokyo")
    assert origin.text == "ann:paris:7:1.5:tokyo"
    assert origin_of(origin.text) == origin
    assert origin_of("ann:paris:7:1.5:") == Origin("ann", "paris", 7, 1.5)
    for user in ("ann", "", "a:b:c:1.5:d", "a:b:7:c:d", "a:b:7:1.5"):
        assert origin_of(user) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cluster": "europe"}, "--site.*is needed with --cluster"),
        ({"site": "a:b"}, "--site"),
        ({"site": "a", "address": "paris"}, "--address"),
        ({"site": "a", "strategy": "gossip"}, "--strategy.*choose one of"),
    ],
)
def test_wrong_settings_of_a_site_are_refused(given, told, tmp_path):
    with pytest.raises(SettingsError, match=told):
        settings(data=tmp_path, **given)


def calm(network, seed=0, each=2):
    """Subscribe and publish everywhere, and compare."""
    checker = Checker(network, seed)
    for site in [*network.clusters] * each:
        checker.subscribe(site)
    for site in [*network.clusters] * 5:
        checker.publish(site)
    checker.check()
    return checker


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_event_arrives_at_every_site_that_wants_it(strategy, tmp_path):
    network = Network(tmp_path, {"s0": "a", "s1": "a", "s2": "b"}, strategy)
    try:
        network.start_all()
        calm(network)
    finally:
        network.end()


@pytest.mark.slow
def test_an_event_is_stored_where_it_is_wanted_and_nowhere_twice(tmp_path):
    network = Network(tmp_path, THREE, "profile_forwarding")
    try:
        network.start_all()
        checker = Checker(network, 0)
        body = json.dumps({"where": "price < 10"})
        path = "/filters/default/subscriptions?everywhere=true"
        checker.ask("s0", "POST", path, "ann", body, **ONE)
        for price in (5, 50):
            event = json.dumps({"price": price, "serial": price})
            checker.ask("s1", "POST", "/filters/default/events", "carl", event, **ONE)
        found = until(lambda: stored(checker, "s0"))
        (origin,) = [
            f"carl:s1:{position}:{at!r}" for _, price, position, at in stored(checker, "s1") if price == 5
        ]
        neighbours = {neighbour_of(user) for user, *_ in found}
        assert neighbours <= {"s1", "s2"}
        assert [(user.rpartition(":")[0], price) for user, price, *_ in found] == [(origin, 5)]
        assert all(price == 5 for _, price, *_ in stored(checker, "s2"))
    finally:
        network.end()


def stored(checker, site):
    """The user, price, position and time of each stored event."""
    found = checker.ask(site, "GET", "/filters/default/events", "admin")["events"]
    return [(one["user"], one["event"]["price"], one["position"], one["at"]) for one in found]


@pytest.mark.slow
def test_a_filter_that_comes_later_is_shared_too(tmp_path):
    network = Network(tmp_path, THREE)
    try:
        network.start_all()
        checker = Checker(network, 0)
        definition = json.dumps({"schema": {"speed": "float"}})
        for site in THREE:
            checker.ask(site, "PUT", "/filters/trucks", "admin", definition, **ONE)
        wish = json.dumps({"where": "speed > 1"})
        path = "/filters/trucks/subscriptions?everywhere=true"
        checker.ask("s2", "POST", path, "ann", wish, **ONE)
        checker.ask("s1", "POST", "/filters/trucks/events", "carl", json.dumps({"speed": 2}), **ONE)
        until(lambda: checker.ask("s2", "GET", "/deliveries", "ann")["deliveries"])
    finally:
        network.end()


@pytest.mark.slow
def test_nothing_is_lost_while_sites_are_killed_held_and_cut_off(tmp_path):
    done = run(tmp_path, 30, 0, {"s0": "a", "s1": "a", "s2": "b", "s3": "c"})
    assert done["kill of a site"] + done["hold of a site"] + done["cut of a site"]
    assert done["deliveries"]


@pytest.mark.slow
def test_sites_with_users_have_a_role_and_a_password(tmp_path):
    network = Network(tmp_path, {"s0": "s0", "s1": "s1"})
    roles = {"admin": ["admin"], "s0": ["site", "subscriber"], "s1": ["site", "subscriber"]}
    for user in roles:
        (tmp_path / f"{user}.password").write_text(f"the password of {user}")
    for site in network.clusters:
        for user, own in roles.items():
            given = ["users", "--data", tmp_path / site / "data", "add", user]
            given += [flag for role in own for flag in ("--role", role)]
            given += ["--password-file", tmp_path / f"{user}.password"]
            assert main(list(map(str, given))) == 0
    try:
        for site in network.clusters:
            network.more = ("--site-password", tmp_path / f"{site}.password")
            network.start(site)
        end = time.monotonic() + 60
        while True:
            request = Request(f"http://127.0.0.1:{network.ports['s0']}/site")
            secret = b64encode(b"admin:the password of admin").decode()
            request.add_header("Authorization", f"Basic {secret}")
            with urlopen(request) as answer:
                found = json.load(answer)
            if found["current"] and [one["taking"] for one in found["neighbours"]] == [True]:
                break
            assert time.monotonic() < end, found
            time.sleep(0.1)
    finally:
        network.end()


@pytest.mark.slow
def test_the_strategy_changes_while_events_are_under_way(tmp_path):
    network = Network(tmp_path, THREE)
    try:
        network.start_all()
        checker = calm(network)
        for strategy in ("profile_forwarding", "event_forwarding", "rendezvous"):
            changed(network, strategy)
            for site in [*THREE] * 5:
                checker.publish(site)
            checker.subscribe("s0")
        checker.check()
    finally:
        network.end()


def changed(network, strategy):
    """Ask the root, whichever it is by now, until all sites have the strategy."""
    end, wanted = time.monotonic() + 60, json.dumps({"strategy": strategy})
    while True:
        found = {site: network.servers[site].ask("GET", "/site", "admin")[1] for site in THREE}
        if all(one["strategy"] == strategy for one in found.values()):
            return
        assert time.monotonic() < end, found
        for site, one in found.items():
            if one["root"]:
                network.servers[site].ask("PUT", "/site/strategy", "admin", wanted, (409,), **ONE)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_a_site_may_have_a_standby(tmp_path):
    network = Network(tmp_path, {"s0": "s0", "s1": "s1"})
    ports = network.ports["s1"], free()
    address = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    flags = ["--standby", "--site", "s1", "--address", address, "--heartbeat", HEARTBEAT]
    flags += ["--rendezvous", f"http://127.0.0.1:{network.ports['s0']}"]
    with postgresql.running() as database:
        try:
            network.start("s0")
            servers = []
            for port in ports:
                folder = tmp_path / str(port)
                folder.mkdir()
                given = ["--port", port, "--schema", folder / "given.json", *flags]
                servers.append(Server(folder, database.url, flags=given, patient=True))
            network.servers["s1"] = servers[0]
            checker = calm(network)
            servers[0].kill()
            servers[0].end()
            checker.publish("s0")
            network.servers["s1"] = servers[1]
            until(lambda: servers[1].ask("GET", "/readyz", "ann", allowed=(503,))[0] == 200)
            for site in ["s0", "s1"] * 5:
                checker.publish(site)
            checker.check()
        finally:
            network.end()
