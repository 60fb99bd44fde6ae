"""Which hosts and origins are answered to."""

from rtfilter.service.doors.admission import is_loopback


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
