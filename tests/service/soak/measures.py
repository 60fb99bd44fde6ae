"""What a process takes, read from /proc."""

import os
import statistics
import threading
from pathlib import Path
from typing import NamedTuple

from service.kills.knowledge import FaultError
from service.kills.process import GoneError

PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    """The state of a server at a moment.

    Attributes
    ----------
    work : int
        Entries of the log so far.
    memory : int
        Bytes.
    files, threads, tasks : int
        Descriptors that are open, threads, and tasks of the event loop.
    database : int
        Bytes of the file.
    """

    work: int
    memory: int
    files: int
    threads: int
    tasks: int
    database: int


def sample(server, data, tasks):
    """The state of a server; `data` is its folder, `tasks` the file that tells of its tasks."""
    process = Path(f"/proc/{server.process.pid}")
    _, found = server.ask("GET", "/statistics", "admin")
    return Sample(
        found["server"]["head"],
        int((process / "statm").read_text().split()[1]) * PAGE,
        len(list((process / "fd").iterdir())),
        len(list((process / "task").iterdir())),
        int(tasks.read_text()),
        (data / "log.sqlite").stat().st_size,
    )


class Watch:
    """Takes samples of a server until it is told to end; a context manager."""

    def __init__(self, take, every=0.2):
        self.samples, self._take, self._every = [], take, every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        try:
            while not self._end.wait(self._every):
                self.samples.append(self._take())
        except GoneError:
            pass


def slope(points):
    """By how much y grows with x, not thrown off by a few: the median of all slopes (Theil and Sen)."""
    few = points[:: max(1, len(points) // 300)]
    slopes = [
        (after[1] - before[1]) / (after[0] - before[0])
        for place, before in enumerate(few)
        for after in few[place + 1 :]
        if after[0] > before[0]
    ]
    return statistics.median(slopes)


def second_half(samples):
    """The samples of the second half of the work."""
    middle = (samples[0].work + samples[-1].work) / 2
    return [one for one in samples if one.work >= middle]


def require_flat(samples, most):
    """What is measured of the second half of the work.

    Parameters
    ----------
    samples : list of Sample
    most : float
        Bytes of memory that an entry of the log may leave behind.

    Raises
    ------
    FaultError
    """
    half = second_half(samples)
    if len(half) < 4:
        raise FaultError(f"only {len(half)} samples: the server hardly works")
    first, last = half[: len(half) // 2], half[len(half) // 2 :]
    memory = slope([(one.work, one.memory) for one in half])
    if memory > most:
        raise FaultError(f"an entry leaves {memory:.0f} bytes of memory behind: {half}")
    for name in ("files", "threads", "tasks"):  # which rise and fall with connections: so the lowest count
        before, after = (min(getattr(one, name) for one in part) for part in (first, last))
        if after > before + 8:
            raise FaultError(f"{name}: {before} before, {after} after: {half}")
    before, after = max(one.database for one in first), half[-1].database
    if after > 1.25 * before + 2**20:
        raise FaultError(f"the database grows: {before} bytes before, {after} after: {half}")
    return {
        "bytes an entry": round(memory),
        "entries": half[-1].work - half[0].work,
        "most memory": max(one.memory for one in half),
        "most database": max(one.database for one in half),
        "most files": max(one.files for one in half),
        "most tasks": max(one.tasks for one in half),
    }
