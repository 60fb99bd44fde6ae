"""What a measurement was made on: the machine and the versions, to be kept beside every result."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("rtfilter", "numpy", "numba", "rtree")


def describe() -> dict[str, object]:
    """The machine and the versions, JSON-able.

    Returns
    -------
    dict
        ``cpu`` (model), ``cores`` (usable by this process), ``memory_gb`` (GiB; None where the system does
        not tell), ``system``, ``python``, and ``versions`` by package, None for one not installed.
    """
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
    }


def one_line(machine: dict[str, object] | None = None) -> str:
    """The same in one line of text."""
    facts = describe() if machine is None else machine
    versions = facts["versions"]
    assert isinstance(versions, dict)
    known = ", ".join(f"{package} {number}" for package, number in versions.items() if number)
    memory = "" if facts["memory_gb"] is None else f", {facts['memory_gb']} GiB"
    hardware = f"{facts['cpu']}, {facts['cores']} cores{memory}, {facts['system']}"
    return f"{hardware}, Python {facts['python']}, {known}"


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
    try:
        return version(package)
    except PackageNotFoundError:
        return None
