"""The machine and the versions of a measurement. They are stored with every result."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rtfilter import __version__

PACKAGES = ("rtfilter", "numpy", "numba", "rtree")
"""Packages whose versions `one_line` names."""
PEERS = ("boostree", "duckdb", "mokaccino", "perq", "polars", "shapely")
"""Packages that benchmarks compare with; `peers_line` names their versions."""


def describe() -> dict[str, object]:
    """Return the machine and the versions as JSON-able data.

    Returns
    -------
    dict
        ``cpu`` (its model), ``cores`` (that this process may use), ``memory_gb`` (GiB; None if the system
        does not report it), ``system``, ``python`` (version), ``revision`` (of the git checkout; None without
        one; with ``-dirty`` if changes other than those of stored results are not committed), and
        ``versions``, the version of each package, None for one that is not installed.
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
    """Return machine and main versions in one line of text: those of `describe()`, or of a stored result."""
    facts = describe() if machine is None else machine
    versions = facts["versions"]
    assert isinstance(versions, dict)
    known = _listed(versions, PACKAGES)
    memory = "" if facts["memory_gb"] is None else f", {facts['memory_gb']} GiB"
    hardware = f"{facts['cpu']}, {facts['cores']} cores{memory}, {facts['system']}"
    return f"{hardware}, Python {facts['python']}, {known}"


def peers_line() -> str:
    """Return the versions of the installed peers in one line of text."""
    return _listed({package: _version(package) for package in PEERS}, PEERS)


def _listed(versions: Mapping[str, str | None], packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {versions[package]}" for package in packages if versions.get(package))


@cache  # a process continues with its code, whatever is committed later
def _revision() -> str | None:
    try:
        revision = _git("describe", "--always")
        # Results that are stored one after the other do not make each other dirty.
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)*/report/*"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{revision}-dirty" if changed else revision


def _git(*command: str) -> str:
    run = subprocess.run(
        ["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
    )
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
