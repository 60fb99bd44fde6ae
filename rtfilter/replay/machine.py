"""What a measurement was made on: the machine and the versions, to be kept beside every result."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, process_time, sleep

from rtfilter import __version__

PACKAGES = ("rtfilter", "numpy", "numba", "rtree")
PEERS = ("boostree", "duckdb", "mokaccino", "perq", "polars", "shapely")


def describe() -> dict[str, object]:
    """The machine and the versions, JSON-able.

    Returns
    -------
    dict
        ``cpu`` (model), ``cores`` (usable by this process), ``memory_gb`` (GiB; None where the system does
        not tell), ``system``, ``python``, ``revision`` (of the checkout; None elsewhere), and ``versions`` by
        package, None for one not installed.
    """
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "revision": _revision(),
        "versions": {package: _version(package) for package in PACKAGES + PEERS},
    }


def one_line(machine: dict[str, object] | None = None) -> str:
    """The same in one line of text."""
    facts = describe() if machine is None else machine
    versions = facts["versions"]
    assert isinstance(versions, dict)
    known = _listed(versions, PACKAGES)
    memory = "" if facts["memory_gb"] is None else f", {facts['memory_gb']} GiB"
    hardware = f"{facts['cpu']}, {facts['cores']} cores{memory}, {facts['system']}"
    return f"{hardware}, Python {facts['python']}, {known}"


def peers_line() -> str:
    """The peers that are installed, with their versions, in one line of text."""
    return _listed({package: _version(package) for package in PEERS}, PEERS)


def free_port() -> int:
    """A port of the loopback that nobody has open now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class Others:
    """How busy other processes keep the machine, from the making of this object on."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = perf_counter(), _busy(), process_time()

    def cores(self, ours: Sequence[float] = ()) -> float:
        """Cores that others used on average since then; NaN where the system does not tell.

        `ours`: CPU seconds of our processes that are not to be counted, this one included; by default, those
        of this one.
        """
        now = perf_counter()
        spent = sum(ours) if ours else process_time() - self._own
        return max(_busy() - self._busy - spent, 0) / (now - self._begun)


def wait_for_quiet(most: float, patience: float) -> None:
    """Wait until other processes use at most so many cores, but no longer than `patience` seconds."""
    limit = perf_counter() + patience
    while perf_counter() < limit:
        others = Others()
        sleep(0.1)
        if not others.cores() > most:
            return


def _busy() -> float:
    """CPU seconds that all processes have used since the machine started."""
    listing = Path("/proc/stat")
    if not listing.exists():
        return float("nan")
    ticks = [int(field) for field in listing.read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


def _listed(versions: Mapping[str, str | None], packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {versions[package]}" for package in packages if versions.get(package))


def _revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        run = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def _cpu() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str | None:
    if package == "rtfilter":  # results name the import package: the distribution's name has changed
        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None
