"""A server serves without compiled code: neither its start nor its first events wait for a compiler."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

import uncompiled
from rtfilter.client import connect_plain


@contextmanager
def serving(folder):
    """Run a server that cannot compile; yields its URL."""
    (folder / "schema.json").write_text('{"price": "float", "symbol": "str"}')
    command = [sys.executable, "-m", "rtfilter", "serve", "--data", str(folder / "data"), "--port", "0"]
    command += ["--schema", str(folder / "schema.json")]
    env, log = uncompiled.environment(folder), folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            line = server.stdout.readline()
            assert line.startswith("serving"), log.read_text()
            yield line.split()[-1]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(20) == 0, log.read_text()
    assert "numba" not in log.read_text()


@pytest.mark.slow
def test_a_server_starts_and_delivers_without_a_compiler(tmp_path):
    event = {"symbol": "ACME and so on", "price": 9.5}
    with serving(tmp_path) as url, connect_plain(url, user="ann") as client:
        one = client.subscribe("price < 10")
        client.subscribe("symbol = 'ACME'")
        many = [client.subscribe("symbol LIKE 'ACME and so%'") for _ in range(20)]  # exact checks
        client.publish([event, event])
        assert next(client.deliveries(timeout=20)).subscriptions == (one, *many)
    with serving(tmp_path) as url, connect_plain(url, user="ann") as client:  # opens what was saved
        client.unsubscribe(one)
        client.publish(event)
        deliveries = client.deliveries(timeout=20)
        assert any(delivery.subscriptions == tuple(many) for delivery in deliveries)
