"""Which hosts and origins are answered to."""

import pytest

from rtfilter.service.doors.admission import is_loopback


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("127.0.0.1:1234", 200),
        ("127.9.9.9", 200),
        ("[::1]:80", 200),
        ("a.localhost", 200),
        ("example.org", 421),
        ("localhost.example.org", 421),
        ("127.0.0.1.example.org", 421),
        ("10.0.0.1", 421),
        ("", 421),
    ],
)
def test_on_the_loopback_only_its_names_are_answered_to(server, host, status):
    answer = server.ask("GET", "/healthz", Host=host)
    assert answer.status == status
    assert status == 200 or answer.body["type"] == "/problems/host"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:80", 200),
        ("https://LOCALHOST:80", 200),
        ("http://localhost", 403),
        ("http://localhost:81", 403),
        ("http://example.org", 403),
        ("null", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
def test_pages_of_other_hosts_are_refused(server, origin, status):
    answer = server.ask("POST", "/filters/default/events", {"price": 1}, Host="localhost:80", Origin=origin)
    assert answer.status == (202 if status == 200 else 403)
    assert "access-control-allow-origin" not in answer.headers


def test_no_other_origin_is_ever_allowed(server):
    answer = server.ask("OPTIONS", "/filters", Access_Control_Request_Method="GET")
    assert answer.status == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("name", ["::", "0.0.0.0", "", "example.org", "::ffff:8.8.8.8", "1", "localhost6"])
def test_what_is_no_loopback(name):
    assert not is_loopback(name)
