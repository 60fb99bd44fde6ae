"""One request to a webhook: TLS, names, and answers that are strange."""

import asyncio
import shutil
import socket
import ssl
import time

import pytest

from rtfilter.service.webhooks.sending import Sender
from service.certificates import certified
from service.running import running
from service.webhooks.asking import hooked, publish, shown, until
from service.webhooks.target import target

pytestmark = pytest.mark.slow

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
LONG = 3600.0
"""Seconds of a request that no test waits for."""


async def here(host, port):
    """The address of any name."""
    return ["127.0.0.1"]


def post(url, resolve=here, timeout=LONG):
    """What became of a request, with the resolver given."""

    async def run():
        sender = Sender(True, resolve, timeout)
        try:
            return await sender.lane(quick=True).post(url, {}, b"{}")
        finally:
            await sender.close()

    return asyncio.run(run())


# -- TLS -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of hook.example, signed by itself, and beside it its key."""
    return certified(tmp_path_factory.mktemp("hook"), "hook.example")[0]


@pytest.fixture
def secured(certificate):
    """A target with TLS; `named` are the names that it was asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.parent / "key.pem")
    named = []
    context.sni_callback = lambda link, name, own: named.append(name)
    with target(tls=context) as told:
        told.named = named
        yield told


@pytest.fixture
def _trusted(monkeypatch, certificate):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@openssl
@pytest.mark.usefixtures("_trusted")
def test_the_name_of_the_url_is_asked_for_at_the_address_that_was_checked(secured):
    assert post(f"https://hook.example:{secured.port}/hook").error is None
    ((headers, _),) = secured.requests
    assert (secured.named, headers["Host"]) == (["hook.example"], f"hook.example:{secured.port}")


@openssl
def test_a_certificate_that_nobody_trusts_gets_nothing(secured):
    assert "certificate" in post(f"https://hook.example:{secured.port}/hook").error
    assert not secured.requests


@openssl
@pytest.mark.usefixtures("_trusted")
def test_a_certificate_of_another_name_gets_nothing(secured):
    assert "certificate" in post(f"https://other.example:{secured.port}/hook").error
    assert not secured.requests


def test_a_name_is_resolved_once_for_a_connection():
    asked = []

    async def resolve(host, port):
        asked.append(host)
        return ["127.0.0.1"]

    with target() as told:
        assert post(f"http://hook.example:{told.port}/hook", resolve).error is None
    assert asked == ["hook.example"]


# -- strange answers -----------------------------------------------------------------------------------------


def test_a_long_answer_is_not_read_to_its_end():
    with target("endless") as told:
        assert post(told.url).status == 200
        assert told.broken.wait(60)


def test_a_peer_that_says_nothing_of_tls_fails_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = post(f"https://hook.example:{silent.getsockname()[1]}/hook", timeout=0.5)
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(60)
            while peer.recv(2**16):  # until it is closed, which may not wait for the garbage collector
                pass
    assert "did not answer" in found.error


def test_a_redirect_is_not_followed(tmp_path):
    with target(307, 200) as told, running(tmp_path, webhook_private=True) as server:
        hooked(server, told.url)
        publish(server, 1)
        told.wait(2)
        assert told.paths == ["/hook", "/hook"]


HOUR = 3600
"""Seconds that a target may ask for."""


@pytest.mark.parametrize(("status", "asked", "waits"), [(429, "1800", 1800), (503, "86400", HOUR)])
def test_the_next_try_waits_as_asked_but_not_for_ever(tmp_path, status, asked, waits):
    with target((status, asked)) as told, running(tmp_path, webhook_private=True) as server:
        hooked(server, told.url)
        before = time.time()
        publish(server, 1)
        at = until(lambda: shown(server)["next_try"])
        assert before + waits <= at <= time.time() + waits


def test_a_strange_wish_to_wait_counts_as_none():
    strange = ["-5", "soon", "1e9", "", "Fri, 99 Foo 2020", "Mon, 01 Jan 0001 00:00:00 GMT"]
    with target(*((503, asked) for asked in strange)) as told:
        found = [post(told.url) for _ in strange]
    assert [(one.status, one.retry_after or 0.0) for one in found] == [(503, 0.0)] * len(strange)


# -- who holds up whom ---------------------------------------------------------------------------------------


def test_targets_that_hang_take_no_place_from_one_that_is_quick(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.webhooks.sending.AT_ONCE", 2)
    monkeypatch.setattr("rtfilter.service.server.Sender", lambda private: Sender(private, timeout=LONG))
    with target() as quick, target("hang") as slow, running(tmp_path, webhook_private=True) as server:
        hooked(server, quick.url)
        publish(server, 1)
        until(lambda: not server.ask("GET", "/deliveries").body["deliveries"])
        for user in ("bob", "eve", "zoe"):
            hooked(server, slow.url, user)
        publish(server, 2)
        slow.wait(2)
        publish(server, 3)
        until(lambda: {2, 3} <= set(quick.prices()))
        slow.free()
