"""Plants a fault in a copy of the checkout, and finds the test that fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from proofs.planted.fault import FAULTS, HOME, Fault, FaultError

PATIENCE = 600
"""Seconds for the tests of one fault."""
SHOWN = 2000
"""Characters of pytest's output that an error shows."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
"""A test in pytest's summary. An error of collection has no `::`, and names no test."""


class Caught(NamedTuple):
    """The test that notices a fault, and the seconds until it fails."""

    test: str
    seconds: float


class _Run(NamedTuple):
    status: int | None
    """None: out of time."""
    failed: list[str]
    output: str


def caught(fault: Fault) -> Caught:
    """Plant a fault and run its tests.

    Raises
    ------
    AssertionError
        No test notices.
    FaultError
        The fault cannot be planted.
    """
    text = fault.plant()
    with _copy() as home:
        file = home / fault.file
        file.write_text(text)
        # Python compares times in whole seconds, and might take the old bytecode for the new text.
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()
        begun = perf_counter()
        found = _pytest(home, fault.tests, "-x")
    if found.status is None:
        raise AssertionError(f"{fault.name}: its tests do not end in {PATIENCE} seconds")
    if not found.failed:
        why = "no test notices" if found.status == 0 else "no test fails by its name"
        raise AssertionError(f"{fault.name}: {why}\n{found.output[-SHOWN:]}")
    return Caught(found.failed[0], round(perf_counter() - begun, 1))


def unsound(tests: Collection[str]) -> list[str]:
    """Return the tests that do not pass without a fault: these would notice anything."""
    if not tests:
        return []
    distinct = sorted(set(tests))
    with _copy() as home:
        found = _pytest(home, distinct)
    if found.status not in (0, 1):
        raise FaultError(f"the tests cannot be run without a fault\n{found.output[-SHOWN:]}")
    return found.failed


def run(seed: int) -> Counter[str]:
    """Try the fault of a number."""
    fault = FAULTS[seed]
    _rows.append(row(fault, caught(fault)))
    return Counter({fault.room: 1})


def rows() -> list[dict[str, Any]]:
    """Return a row for each fault that `run` has tried. `AssertionError` where a test always fails."""
    wrong = unsound([one["test"] for one in _rows])
    assert not wrong, f"these fail without a fault: {', '.join(wrong)}"
    return _rows


def row(fault: Fault, found: Caught) -> dict[str, Any]:
    """Return the row of a fault in the table."""
    return {
        "room": fault.room,
        "fault": fault.name,
        "kind": fault.kind,
        "file": fault.file,
        "test": found.test,
        "seconds": found.seconds,
    }


_rows: list[dict[str, Any]] = []
_running: set[subprocess.Popen[str]] = set()
_stopped = threading.Event()


def stop() -> None:
    """End all tests that run, and let no others begin."""
    _stopped.set()
    for process in list(_running):
        _kill(process)


@contextmanager
def _copy() -> Iterator[Path]:
    """Copy what git knows, with compiled kernels and bytecode, to a folder that goes at the end."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=HOME, check=True, capture_output=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory(prefix="rtfilter-planted-") as folder:
        home = Path(folder, "checkout")
        caches = set()
        for name in filter(None, names):
            source, target = HOME / name, home / name
            if not os.path.lexists(source):  # removed, and not yet committed
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            caches.add(source.parent / "__pycache__")
        for cache in caches:
            if cache.is_dir():
                shutil.copytree(cache, home / cache.relative_to(HOME), dirs_exist_ok=True)
        yield home


def _pytest(home: Path, tests: Collection[str], *options: str) -> _Run:
    """Run tests in a copy."""
    if _stopped.is_set():
        raise FaultError("stopped")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if _is_elsewhere(path)]
    paths = os.pathsep.join([str(home), *others])
    process = subprocess.Popen(
        [*command, *options, *tests],
        cwd=home,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "1000"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    _running.add(process)
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return _Run(None, [], "")
    finally:
        _kill(process)  # with servers that a failed test has left
        process.wait()
        _running.discard(process)
    return _Run(process.returncode, _FAILED.findall(output), output)


def _is_elsewhere(path: str) -> bool:
    """Whether a folder of the search path is outside of the checkout, which has no fault."""
    return bool(path) and not Path(path).resolve().is_relative_to(HOME)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
