"""A disk that is full: of pages, as the database sees it, or a small one of its own."""

import random
import subprocess
import time
from collections import Counter
from contextlib import contextmanager, suppress

from service.faults.load import Fault, Load, until
from service.faults.world import serving
from service.kills.knowledge import FaultError

SIZE = 24
"""Mebibytes of a disk."""
BALLAST = 2**16
"""Bytes that are put on it at once."""
LARGE = 100_000
"""Bytes of an event that needs pages of its own."""


class Pages:
    """The database may have no more pages than it has."""

    name = "pages"

    def __init__(self, folder):
        self._file = folder / "full"
        self.variables = {"PAGES": str(self._file)}

    def fill(self):
        self._file.touch()

    def empty(self):
        self._file.unlink(missing_ok=True)


class Disk:
    """The folder of the data is a disk of its own, on which indexes are as well."""

    name = "disk"

    def __init__(self, folder):
        self._ballast = folder / "data" / "ballast"
        self.variables = {}

    def fill(self):
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(b"x" * BALLAST) == BALLAST:
                pass

    def empty(self):
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted(folder):
    """A disk in memory at a folder, for who may mount one; says whether that is so."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m,mode=700", "tmpfs", folder]
    try:
        done = subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        done = False
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", folder], check=True)


class Filled(Fault):
    """The disk is full for a while. What is only read is there."""

    works = (*Fault.works, "/deliveries", "/statistics", "/subscriptions", "/filters/default/events")

    def __init__(self, disk, *given):
        super().__init__(*given)
        self.begin, self.end = disk.fill, disk.empty

    def meanwhile(self):
        until(lambda: self.publish(LARGE) == 503, "events are refused")
        self.require_works()
        time.sleep(self.random.uniform(0.0, 0.5))


def run(folder, seed, seconds=2.0):
    """Fill the disk again and again, kill the server while it is full, and compare everything.

    Returns
    -------
    Counter
        What was done.
    """
    chance = random.Random(seed)
    with mounted(folder / "data") as done:
        disk = (Disk if done and seed % 2 else Pages)(folder)
        load = Load(seed)
        filled = Filled(disk, load.known, chance)
        with serving(folder, **disk.variables) as server:
            load.run(server, filled, seconds)
            disk.fill()
            if filled.publish(LARGE) == 503 and chance.random() < 0.5:
                filled.require_works()
        _start_on_full_disk(folder, disk)
        disk.empty()
        with serving(folder, **disk.variables) as server:
            load.finish(server)
    return Counter({f"full {disk.name}": filled.times, "told to try again": load.refused})


def _start_on_full_disk(folder, disk):
    """It starts, or says why not."""
    try:
        with serving(folder, **disk.variables) as server:
            server.ask("GET", "/healthz", "ann")
    except FaultError:
        said = (folder / "errors.txt").read_text().splitlines()[-1]
        if "disk" not in said and "space" not in said:
            raise FaultError(f"a server that finds no room says: {said}") from None
