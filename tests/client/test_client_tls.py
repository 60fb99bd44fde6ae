"""The clients, the commands and the doors over TLS, with a certificate of one's own."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from base64 import b64encode

import pytest
from real_server import ENVIRONMENT, Framed, serving

import forks
from rtfilter.cli import FAILED, main
from rtfilter.client import ClientError, UnreachableError, connect, connect_plain, get_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    key, file = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(file), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory, certificate):
    flags = ("--certificate", certificate, "--certificate-key", certificate.parent / "key.pem")
    with serving(tmp_path_factory.mktemp("served"), *flags, scheme="wss") as server:
        yield server


@pytest.fixture
def _trusted(monkeypatch, certificate):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("scheme", ["wss", "https"])
def test_the_clients_trust_what_the_variable_names(server, scheme):
    url = server.url.replace("wss", scheme)

    async def main():
        async with asyncio.timeout(60), connect(url, user="ann") as client:
            await client.subscribe("price > 5")
            await client.publish({"price": 7.0})
            async for delivery in client:
                await delivery.acknowledge()
                return delivery.event

    assert asyncio.run(main()) == {"price": 7.0}
    with connect_plain(url, user="ann") as client:
        assert client.user == "ann"
    client = get_client("ann", "", url)
    assert client.disconnect().result(60)


def test_a_context_counts_more(server, certificate):
    context = ssl.create_default_context(cafile=certificate)
    with connect_plain(server.url, user="ann", ssl=context) as client:
        assert client.user == "ann"


def test_a_certificate_that_nobody_trusts_is_refused(server, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(UnreachableError, match=r"not trusted: self.signed .*SSL_CERT_FILE"):
        connect_plain(server.url, user="ann")


@pytest.mark.usefixtures("_trusted")
def test_a_certificate_of_another_host_is_refused(server):
    with pytest.raises(UnreachableError, match="not trusted: IP address mismatch"):
        connect_plain(server.url.replace("localhost", "127.0.0.1"), user="ann")


@pytest.mark.usefixtures("_trusted")
def test_the_commands(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RTFILTER_URL", server.url)
    assert main(["subscribe", "price > 10", "--user", "eve"]) == 0
    (tmp_path / "ticks.jsonl").write_text('{"price": 11.0}\n')
    assert main(["publish", str(tmp_path / "ticks.jsonl"), "--user", "bob"]) == 0
    capsys.readouterr()
    listen = ("-m", "rtfilter", "listen", "--user", "eve", "--count", "1")
    found = forks.python(*listen, env=ENVIRONMENT | os.environ, stdout=subprocess.PIPE)
    assert json.loads(found.communicate(timeout=60)[0])["event"] == {"price": 11.0}


@pytest.mark.usefixtures("_trusted")
def test_https(server):
    asked = urllib.request.Request(
        server.url.replace("wss", "https") + "/filters",
        headers={"Authorization": "Basic " + b64encode(b"ann:").decode()},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert json.load(answer)["filters"][0]["name"] == "default"


def test_frames(server, certificate):
    with Framed(server, ssl.create_default_context(cafile=certificate)) as peer:
        assert peer.say("CONNECT", user="zoe")["user"] == "zoe"
        id = peer.say("SUBSCRIBE", where="price > 20")["subscription"]
        (position,) = peer.say("PUBLISH", event={"price": 21.0})["positions"]
        peer.say("GET")
        assert peer.say("READY") == {"directive": "ACK"}
        found = peer.delivery()
        assert (found["position"], found["subscriptions"]) == (position, [id])


@pytest.mark.usefixtures("_trusted")
def test_the_other_scheme_is_told(server, capsys):
    url = server.url.replace("wss", "ws")
    with pytest.raises(UnreachableError, match="with TLS it is wss://"):
        connect_plain(url, user="ann")
    with pytest.raises(ClientError, match=r"ssl is for wss://"):
        connect_plain(url, user="ann", ssl=ssl.create_default_context())
    assert main(["listen", "--user", "ann", "--url", url]) == FAILED
    assert "with TLS it is wss://" in capsys.readouterr().err


@pytest.mark.usefixtures("_trusted")
def test_a_server_without_tls_is_told(tmp_path):
    async def main():
        async def answer(reader, writer):
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(UnreachableError, match="the URL of a server without TLS has ws://"):
                await connect(f"wss://127.0.0.1:{port}", user="ann").open()

    asyncio.run(main())
