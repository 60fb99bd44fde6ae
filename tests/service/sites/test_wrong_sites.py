"""Sites that cannot work together say so, and do not disturb others."""

import json
from base64 import b64encode
from types import SimpleNamespace

import pytest

from rtfilter.overlay.codec import encoded
from rtfilter.overlay.routing_messages import Confirm
from rtfilter.service.server import DataError
from rtfilter.service.settings import SettingsError, settings
from rtfilter.service.sites.site import NetworkSite
from service.kills.links import over_websocket
from service.running import running
from service.sites.pairs import BEAT, linked, shown, subscribe, until

ALONE = {"site": "a", "heartbeat": BEAT}


def other(folder, a, **more):
    return running(folder, **{"site": "b", "heartbeat": BEAT, "rendezvous": a.opened.address} | more)


def said(caplog, *parts):
    """Wait until a warning has all these parts; the number of such warnings."""

    def found():
        lines = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        return sum(all(part in line for part in parts) for line in lines)

    return until(found)


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"strategy": "profile_forwarding"}, ["--strategy profile_forwarding", "has hybrid"]),
        ({"heartbeat": 2 * BEAT}, ["--heartbeat 0.2", "has 0.1"]),
        ({"rendezvous_for": "default=a"}, ["--rendezvous-for {'default': 'a'}", "has none"]),
        ({"site": "a"}, ["there is another site a"]),
    ],
)
def test_a_site_that_cannot_belong_to_the_network_is_refused(more, parts, tmp_path, caplog):
    with running(tmp_path / "a", **ALONE) as a:
        until(lambda: shown(a)["root"])
        with other(tmp_path / "b", a, **more) as b:
            assert said(caplog, "no connection to", *parts) == 1
            until(lambda: not shown(a)["neighbours"])
            assert not shown(b)["parent"]


def test_a_second_site_of_a_name_is_refused_until_the_first_is_gone(tmp_path, caplog):
    with running(tmp_path / "a", **ALONE) as a:
        with other(tmp_path / "b", a) as b:
            until(lambda: linked(a, b))
            with other(tmp_path / "c", a) as second:
                said(caplog, "no connection to", "there is another site b, at " + b.opened.address)
                assert not shown(second)["parent"]
        with other(tmp_path / "c", a) as second:
            until(lambda: linked(a, second))


def test_the_data_of_another_site_are_refused(tmp_path):
    with running(tmp_path, **ALONE) as a:
        until(lambda: shown(a)["root"])
    match = "data of the site a.*--site a"
    with pytest.raises(DataError, match=match), running(tmp_path, **ALONE | {"site": "b"}):
        pass


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rendezvous_for": "trades"}, "--rendezvous-for.*FILTER=CLUSTER"),
        ({"rendezvous_for": "trades="}, "--rendezvous-for.*FILTER=CLUSTER"),
        ({"rendezvous_for": "=x"}, "--rendezvous-for.*FILTER=CLUSTER"),
        ({"rendezvous_for": "a=x,a=y"}, "--rendezvous-for.*FILTER=CLUSTER"),
        ({"host": "0.0.0.0"}, "--address.*is needed"),
        ({"address": "http://a,b"}, "--address"),
    ],
)
def test_settings_that_no_site_can_use_are_refused(given, told, tmp_path):
    with pytest.raises(SettingsError, match=told):
        settings(data=tmp_path, **ALONE, **given)


def test_a_missing_password_is_told_before_the_server_serves(tmp_path):
    missing = tmp_path / "no.password"
    with (
        pytest.raises(FileNotFoundError, match="password"),
        running(tmp_path, **ALONE, site_password=missing),
    ):
        pass


def answers(server, user, *messages):
    """The answers to messages of a session, to CONNECT first."""
    with over_websocket(server.port) as link:
        found = []
        for one in [{"directive": "CONNECT", "user": user}, *messages]:
            link.send(json.dumps(one))
            found.append(json.loads(link.recv(timeout=60)))
        return found


def test_a_user_name_has_no_colon_where_there_are_no_users(tmp_path):
    with running(tmp_path) as server:
        (said,) = answers(server, "ann:x")
        assert said["directive"] == "ERROR"
        assert "without a colon" in said["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"site": "x", "cluster": "x", "message": b64encode(b"rubbish").decode()},
        {"site": "y", "cluster": "y", "message": b64encode(encoded(Confirm(("y", 1, 1)))).decode()},
    ],
)
def test_a_wrong_message_is_refused(body, tmp_path):
    with running(tmp_path, **ALONE) as server:
        _, said = answers(server, "x", {"directive": "SITE", **body})
        assert said["directive"] == "ERROR"
        until(lambda: shown(server)["root"])


def test_an_error_of_a_message_disturbs_nobody_else(tmp_path, monkeypatch, caplog):
    receive, broken = NetworkSite._receive, [True]

    def break_once(self, message, site, cluster, now):
        if broken and self.settings.name == "a":
            broken.pop()
            self = SimpleNamespace(_broker=None)  # of which nothing can be asked
        return receive(self, message, site, cluster, now)

    monkeypatch.setattr(NetworkSite, "_receive", break_once)
    with running(tmp_path / "a", **ALONE) as a, other(tmp_path / "b", a) as b:
        until(lambda: linked(a, b))
        subscribe(b)


def test_filters_that_differ_are_named_and_others_work(tmp_path, caplog):
    with running(tmp_path / "a", **ALONE) as a, other(tmp_path / "b", a) as b:
        until(lambda: linked(a, b))
        more = {"schema": {"size": "int"}}
        assert b.ask("PUT", "/filters/more", more, user="admin").status == 200
        wish = {"where": "size > 3"}
        assert b.ask("POST", "/filters/more/subscriptions", wish, user="ann").status == 201
        said(caplog, "a message of the site b is left out", "more", "same filters")
        subscribe(b)
