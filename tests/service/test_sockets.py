"""Sockets of servers: what they are bound to, and how an address is shown."""

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from rtfilter.basics import sockets
from rtfilter.service.doors import timeouts


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_nobody_connects_before_it_listens(host):
    if ":" in host and not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    with sockets.bound(host, 0) as bound:
        family, address = bound.family, bound.getsockname()
        with socket.socket(family) as other, pytest.raises(ConnectionRefusedError):
            other.connect(address)
        bound.listen()
        with socket.socket(family) as other:
            other.connect(address)


def test_an_ipv6_address_takes_no_ipv4_connections():
    with sockets.bound("::", 0) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        socket.create_connection(("::1", port)).close()


@pytest.mark.parametrize(
    ("host", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:1:2:3", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "unknown:x", False),
    ],
)
def test_one_peer_may_have_all_addresses_of_an_ipv6_network(host, other, same):
    assert (sockets.network(host) == sockets.network(other)) == same
    assert timeouts._Admitted._address.fget(SimpleNamespace(client=(host, 1))) == sockets.network(host)


def test_what_cannot_be_had_is_named():
    with sockets.bound("127.0.0.1", 0) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            sockets.bound("127.0.0.1", port)


def test_a_peer_that_takes_nothing_is_given_up_after_so_many_seconds():
    with socket.socket() as connection:
        sockets.keep_alive(connection, 2.5)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500  # milliseconds


@pytest.mark.parametrize(
    ("host", "shown"),
    [("localhost", "localhost"), ("::1", "[::1]"), ("[::1]", "[::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_ipv6_addresses_have_brackets(host, shown):
    assert sockets.shown(host) == shown


def test_an_address_has_brackets_only_beside_a_port():
    assert [sockets.bare(host) for host in ("[::1]", "::1", "[::1")] == ["::1", "::1", "[::1"]


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "raised"),
    [
        (150, 700, 50, 150),
        (150, 700, 500, 600),
        (150, 700, 1000, 700),
        (150, 150, 500, 150),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_as_many_files_may_be_open_as_connections_need_or_the_system_permits(soft, hard, asked, raised):
    """In a process of its own: a limit that was lowered cannot be raised again."""
    program = (
        "import resource; from rtfilter.basics import sockets; one = resource.RLIMIT_NOFILE; "
        f"resource.setrlimit(one, ({soft}, {hard})); "
        f"sockets.make_room({asked}); print(resource.getrlimit(one)[0])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == str(raised), ran.stderr
