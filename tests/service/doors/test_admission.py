"""Which hosts and origins are answered to."""

import socket
from contextlib import ExitStack
from ipaddress import ip_network

import pytest
import websockets.sync.client

from rtfilter.service.access import Access
from rtfilter.service.doors import admission
from rtfilter.service.doors.admission import Strangers, is_loopback
from service.running import running


def test_on_the_loopback_only_its_names_are_answered_to(server):
    own = ("localhost", "LOCALHOST.:80", "127.0.0.1:1234", "127.9.9.9", "[::1]:80", "a.localhost")
    others = ("example.org", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "")
    assert [host for host in own if server.ask("GET", "/healthz", Host=host).status != 200] == []
    for host in others:
        answer = server.ask("GET", "/healthz", Host=host)
        assert (answer.status, answer.body["type"]) == (421, "/problems/host"), host


def test_pages_of_other_hosts_are_refused(server):
    for origin, status in (
        ("http://localhost:80", 202),
        ("https://LOCALHOST:80", 202),
        ("http://localhost", 403),
        ("http://localhost:81", 403),
        ("http://example.org", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ):
        answer = server.ask(
            "POST", "/filters/default/events", {"price": 1}, Host="localhost:80", Origin=origin
        )
        assert answer.status == status, origin
        assert "access-control-allow-origin" not in answer.headers, origin


def test_no_other_origin_is_ever_allowed(server):
    answer = server.ask("OPTIONS", "/filters", Access_Control_Request_Method="GET")
    assert answer.status == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_what_is_no_loopback():
    names = ("::", "0.0.0.0", "", "example.org", "::ffff:8.8.8.8", "1", "localhost6")
    assert [name for name in names if is_loopback(name)] == []


@pytest.mark.parametrize(
    ("proxies", "address"), [("10.0.0.0/8, 127.0.0.1", "192.0.2.7"), ("192.0.2.0/24", "127.0.0.1")]
)
def test_the_address_of_a_client_is_what_a_trusted_proxy_says(tmp_path, monkeypatch, proxies, address):
    addresses, plain = [], Access.password

    def noted(self, name, password, address):
        addresses.append(address)
        return plain(self, name, password, address)

    monkeypatch.setattr(Access, "password", noted)
    given = {"X-Forwarded-For": "203.0.113.9, 192.0.2.7"}
    with running(tmp_path, trusted_proxies=proxies) as server:
        assert server.ask("GET", "/statistics", **given).status == 200
        url = f"ws://127.0.0.1:{server.port}/session"
        with websockets.sync.client.connect(url, additional_headers=given) as session:
            session.send('{"directive": "CONNECT", "user": "ann"}')
            session.recv()
    assert addresses == [address] * 2


def test_connections_of_a_trusted_proxy_are_not_counted_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "MOST_STRANGERS", 1)
    with running(tmp_path, trusted_proxies="127.0.0.1") as server, ExitStack() as links:
        for _ in range(3):
            links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert server.ask("GET", "/healthz").status == 200
    strangers = Strangers([ip_network("127.0.0.1")])
    assert strangers.come("127.0.0.1") is not None
    assert strangers.come("127.0.0.1") is None
