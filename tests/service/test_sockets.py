"""Sockets of servers and brokers: what they are bound to, and how an address is shown."""

import socket

import pytest

from rtfilter import sockets


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


def test_what_cannot_be_had_is_named():
    with sockets.bound("127.0.0.1", 0) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            sockets.bound("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("localhost", "localhost"), ("::1", "[::1]"), ("[::1]", "[::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_ipv6_addresses_have_brackets(host, shown):
    assert sockets.shown(host) == shown
