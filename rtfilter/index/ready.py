"""Load the search code, or compile it, before a search needs it. Importing this imports no compiler.

numba loads a kernel at its first call, and compiles it if no cache has it. `load` does this for all kernels
of a filter at once. `load_in_background` does it while other threads, which must not wait, go on.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from math import inf
from pathlib import Path
from typing import IO

from rtfilter.index.kernels import counts

LOG_EVERY = 5.0
"""Seconds between two lines of progress in the log."""
NICE = 10
"""Addition to the niceness of a process that compiles for another one."""

_log = logging.getLogger("rtfilter")
_modules = {"rtfilter.index.exercise": 21}
_lock = threading.RLock()
_wanted = threading.Event()  # set while a thread waits in `load`
_ready = False


def ready() -> bool:
    """Return whether this process has loaded the search code."""
    return _ready


def also(module: str, kernels: int) -> None:
    """Register a module, so that `load` calls its ``exercise()``, which loads a number of kernels."""
    _modules[module] = kernels


def load() -> None:
    """Load the search code, or compile it. If several threads call this, one does so and the others wait."""
    _wanted.set()
    with _lock:
        _load()


def _load() -> None:
    global _ready
    if _ready:
        return
    _fork_between_kernels()
    total, done, compiled, logged = sum(_modules.values()), 0, counts.compiled, -inf

    def watch() -> None:
        nonlocal done, logged
        done = min(done + 1, total)
        if counts.compiled > compiled and time.monotonic() >= logged + LOG_EVERY:
            logged = time.monotonic()
            _log.warning("compiling the search code: %d of %d kernels", done, total)

    counts.watchers.append(watch)
    try:
        for module in tuple(_modules):
            import_module(module).exercise()
    finally:
        counts.watchers.remove(watch)
    _ready = True
    if counts.compiled > compiled:
        _log.warning("compiled the search code: %d kernels", counts.compiled - compiled)


@cache
def _fork_between_kernels() -> None:
    """Make a fork wait while a kernel is loaded: in the child, no thread would release numba's lock."""
    from numba.core.compiler_lock import global_compiler_lock as lock

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def load_in_background() -> None:
    """Load the search code in a background thread while other threads work.

    Another process of low priority compiles the kernels that no cache has. If there can be no such process,
    or if a thread waits in `load`, this process compiles.
    """
    folder = _load_cached()
    if folder is None:
        return
    with _alone(folder):
        if not _wanted.is_set() and _load_cached() is not None:  # another process may have compiled
            _compile_in_child()
    if _load_cached() is not None:
        with _lock:
            _load()


def _load_cached() -> Path | None:
    """Load the kernels of the cache. Return the folder of the cache if it lacks a kernel, else None."""
    from rtfilter.index.kernels.cache import NotCachedError, only_cached

    with _lock, only_cached(), _without_full_collections():
        try:
            _load()
        except NotCachedError as missing:
            return missing.folder
    return None


@contextmanager
def _without_full_collections() -> Iterator[None]:
    """Delay full garbage collections, of some 0.1 s each, because all threads wait for them."""
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # and back: loaded objects then count as old, so that no full collection is due
        gc.unfreeze()
        gc.enable()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles into a folder, or until a thread waits in `load`."""
    try:
        import fcntl

        file: IO[bytes] = (folder / "compiling.lock").open("ab")
    except (ImportError, OSError):
        yield
        return
    with file:
        while not _wanted.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _wanted.wait(0.2)
            except OSError:
                break
        yield


def _compile_in_child() -> None:
    """Compile in another process; return when it has ended, or when a thread waits in `load`."""
    import numba

    if not Path(sys.executable or "").name.lower().startswith("python"):
        return
    path = [place or os.getcwd() for place in sys.path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    folder = getattr(numba.config, "CACHE_DIR", "")
    if folder:
        environment["NUMBA_CACHE_DIR"] = str(folder)
    modules = [f"{module}:{kernels}" for module, kernels in _modules.items()]
    code = "from rtfilter.index.ready import compile_for; compile_for()"
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(os.getpid()), *modules],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return
    atexit.register(child.kill)
    try:
        _log.warning("compiling the search code beside other work, in process %d", child.pid)
        while child.poll() is None and not _wanted.wait(0.1):
            pass
    finally:
        child.kill()
        child.wait()
        atexit.unregister(child.kill)


def compile_for() -> None:
    """Compile with low priority, until the process with the id in the first argument ends."""
    parent = int(sys.argv[1])
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    if os.name == "posix":
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _modules.clear()
    for given in sys.argv[2:]:
        module, _, kernels = given.partition(":")
        also(module, int(kernels))
    load()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _renew() -> None:
    """Reset the state in a forked process, which does not have the thread that was loading."""
    global _lock
    _lock = threading.RLock()
    counts.watchers.clear()
    _wanted.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
