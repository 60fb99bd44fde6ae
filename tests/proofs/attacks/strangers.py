"""Attacks of those who say not who they are."""

import base64
import socket
import time
from contextlib import suppress

LONG = 10.0
"""Seconds that an attack goes on."""
UPGRADE = (
    b"GET /session HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"0" * 16) + b"\r\n"
)
MASKED = b"\x80" + bytes(4)


def session(target):
    """A new WebSocket; nothing is said yet."""
    link = target.link()
    link.sendall(UPGRADE + b"\r\n")
    link.recv(10_000)
    return link


def again_and_again(begin, data):
    """Send data over one connection at a time, for `LONG`; a closed one is replaced."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        with suppress(OSError), begin() as link:
            link.settimeout(1.0)
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    link.sendall(data)


def pings_before_connect(target):
    """Empty pings, whose pongs nobody reads."""
    again_and_again(lambda: session(target), (b"\x89" + MASKED) * 40_000)


def empty_continuations_before_connect(target):
    """One message of which no part has a byte."""

    def begin():
        link = session(target)
        link.sendall(b"\x01" + MASKED)
        return link

    again_and_again(begin, (b"\x00" + MASKED) * 40_000)


def frames_of_five_bytes_over_tcp(target):
    """READY without a body, which is refused before CONNECT."""
    again_and_again(lambda: target.link(target.tcp_port), b"\x00\x00\x00\x01\x04" * 40_000)


def trailers(target):
    """Trailers of 100 MiB after a chunked body, and some without an end."""
    for user in ("", "Authorization: Basic ZXZlOg==\r\n"):
        head = f"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\n{user}"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
        for data in (b"x:y\r\n" * 200_000, b"x" * 10**6):
            with suppress(OSError), target.link() as link:
                link.sendall(head.encode())
                for _ in range(105):
                    link.sendall(data)


def upgrades_that_cannot_be_read(target):
    """1,000 connections whose upgrade has a long header, many headers, or a body."""
    long = UPGRADE + b"X: " + b"x" * 9_000 + b"\r\n\r\n"
    many = UPGRADE + b"x:y\r\n" * 140 + b"\r\n"
    posted = UPGRADE.replace(b"GET", b"POST") + b"Content-Length: 4\r\n\r\nabcd"
    links = []
    for number in range(1000):
        with suppress(OSError):
            link = target.link()
            links.append(link)
            link.sendall((long, many, posted)[number % 3])
    time.sleep(LONG)
    for link in links:
        link.close()


def requests_in_a_row(target):
    """450 connections with 400 requests each, sent at once; no answer is read."""
    links = []
    for number in range(450):
        path = ("/healthz", "/nowhere", "/statistics")[number % 3]
        with suppress(OSError):
            link = target.link()
            links.append(link)
            link.settimeout(0.1)
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 400)
    time.sleep(LONG)
    for link in links:
        link.close()


def silent_connections(target):
    """5,000 connections that say nothing."""
    links = []
    for number in range(5000):
        with suppress(OSError):
            links.append(target.link(target.tcp_port if number % 2 else target.port))
    time.sleep(LONG)
    for link in links:
        link.close()


def large_tags(target):
    """Directives that are refused, with a tag of nearly the size of a message; no answer is read."""
    tag = b'{"directive":"READY","tag":"' + b"x" * 1_000_000 + b'"}'
    frame = b"\x81\xff" + len(tag).to_bytes(8, "big") + bytes(4) + tag
    framed = b'{"tag":"' + b"x" * 1_000_000 + b'"}'
    over_tcp = (1 + len(framed)).to_bytes(4, "big") + b"\x04" + framed
    links = []
    for number in range(10):
        link = session(target) if number % 2 else target.link(target.tcp_port)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        link.settimeout(1.0)
        links.append(link)
        with suppress(OSError):
            for _ in range(250):
                link.sendall(frame if number % 2 else over_tcp)
    time.sleep(1)
    for link in links:
        link.close()


TCP, TIMEOUTS = "service/test_tcp.py", "service/doors/test_timeouts.py"
ENDLESS = f"{TIMEOUTS}::test_who_never_ends_is_closed_and_takes_no_memory"
ATTACKS = {
    pings_before_connect: ENDLESS,
    empty_continuations_before_connect: ENDLESS,
    frames_of_five_bytes_over_tcp: f"{TCP}::test_a_peer_may_send_little_before_it_says_who_it_is",
    trailers: ENDLESS,
    upgrades_that_cannot_be_read: f"{TIMEOUTS}::test_an_upgrade_that_cannot_be_read_is_answered_and_closed",
    requests_in_a_row: f"{TIMEOUTS}::test_requests_that_wait_go_with_their_connection",
    silent_connections: f"{TIMEOUTS}::test_a_peer_of_an_address_with_many_strangers_is_closed",
    large_tags: "service/test_conversation.py::test_a_long_tag_is_refused",
}
"""Attacks, and the test in `make test` that is the short form of each."""
