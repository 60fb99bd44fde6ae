"""Brokers in processes on the loopback."""

import asyncio
import json
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import forks
from rtfilter.overlay.running.broker_client import BrokerClient, asked
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.map import survey

HEARTBEAT = 0.3
TYPES = {"trade": {"x": "float"}}


class Processes:
    """A rendezvous point and brokers, which may be killed and started again at the same address.

    Parameters
    ----------
    folder : Path
    more : list of str
        Further flags of brokers.
    """

    def __init__(self, folder, *more):
        self.folder, self._more = folder, more
        self.key = Key.new()
        self.key.write(folder / "network.key")
        self.key.of(KeyRole.CLIENT).write(folder / "client.key")
        (folder / "types.json").write_text(json.dumps(TYPES))
        self.running, self.addresses = {}, {}

    def start(self, name, *given, prefix=(), host="127.0.0.1", last=()):
        """Start a broker, or the point; returns when others can connect. Flags in `last` stand after all."""
        action = "rendezvous" if name == "point" else "run"
        port = self.addresses.get(name, ":0").rpartition(":")[2]
        program = [Path(__file__).with_name("full_disk.py"), self.full(name)]
        command = [*program, "broker", action, *given]
        command += ["--key", self.folder / "network.key", "--data", self.folder / name, "--port", port]
        command += ["--heartbeat", HEARTBEAT, "--log-level", "warning", "--host", host]
        if name != "point":
            command += ["--name", name, "--schema", self.folder / "types.json", "--again", 0.4, "--grace", 5]
            command += ["--rendezvous", self.addresses["point"], *self._more, *last]
        with (self.folder / f"{name}.log").open("ab") as log:
            streams = {"stdout": subprocess.PIPE, "stderr": log}
            process = (
                forks.new(*command, prefix=prefix, **streams) if prefix else forks.python(*command, **streams)
            )
        self.running[name] = process
        line = process.stdout.readline()
        if not line:
            raise AssertionError((self.folder / f"{name}.log").read_text())
        self.addresses[name] = line.split()[-1]

    def full(self, name):
        """The file that, while it is there, has a process find that its database cannot be written."""
        return self.folder / f"{name}.full"

    def log(self, name):
        """What a process has logged."""
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name):
        """End a process without a word."""
        process = self.running.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()

    def end(self, name):
        """End a process in order; returns its exit status."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGTERM)
        status = process.wait(120)
        process.stdout.close()
        return status

    def client(self, name, *brokers):
        """A client of some brokers, to be tried in this order."""
        return BrokerClient([self.addresses[one] for one in brokers], name, self.key.of(KeyRole.CLIENT))

    async def whole(self, *brokers, seconds=180):
        """Wait until these brokers, and no others, are in one tree; returns it."""
        end = time.monotonic() + seconds
        while True:
            found = await survey(self.addresses["point"], self.key)
            tops = found.tree()[""]
            if set(found.brokers) == set(brokers) and len(tops) == 1 and found.designated(tops[0]):
                return found
            if time.monotonic() > end:
                found = [await self.describe(name) for name in self.running if name != "point"]
                raise AssertionError("\n".join(map(str, found)))
            await asyncio.sleep(HEARTBEAT)

    async def describe(self, name):
        """What a broker says of itself."""
        return await asked(self.addresses[name], self.key)


@contextmanager
def processes(folder, *more):
    """Processes, which are killed in the end."""
    made = Processes(folder, *more)
    made.start("point")
    try:
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)


class Subscriber:
    """Collects what is delivered to a client; acknowledges unless told to wait."""

    def __init__(self, client):
        self.client, self.values, self._task = client, [], None

    async def __aenter__(self):
        await self.client.__aenter__()
        self._task = asyncio.create_task(self._collect())
        return self

    async def __aexit__(self, *error):
        self._task.cancel()
        await self.client.__aexit__(*error)

    async def _collect(self):
        async for delivery in self.client:
            self.values.append(delivery.values["x"])
