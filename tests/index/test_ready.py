"""The search code is loaded once, by one thread, and compiled beside other work by a process that ends."""

import gc
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lengths import long_but
from rtfilter.index import ready
from rtfilter.index.kernels import cache, counts

ROOT = Path(__file__).parents[2]
MODULE = """
import threading
from rtfilter.index.kernels.jit import kernel

calls = []

@kernel
def more(value):
    return value + {more}

@kernel
def twice(value):
    return value * 2

def exercise():
    calls.append(threading.current_thread())
    assert more(1) == 1 + {more}
    assert twice(2.0) == 4.0
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A module of kernels that takes the place of the search code, new to every cache."""
    for thread in threading.enumerate():
        if thread.name == "rtfilter grows":  # it loads the search code for a filter of another test
            thread.join()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(cache, "_said", set())
    monkeypatch.setattr(ready, "_modules", {"ready_kernels": 2})
    monkeypatch.setattr(ready, "_ready", False)
    ready._wanted.clear()
    (tmp_path / "ready_kernels.py").write_text(MODULE.format(more=1))

    def load():
        monkeypatch.delitem(sys.modules, "ready_kernels", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("ready_kernels")

    return load


def test_importing_it_imports_no_compiler():
    script = "import sys, rtfilter.index.ready; print('numba' in sys.modules, rtfilter.index.ready.ready())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "False"]


def test_one_of_many_threads_loads_and_all_wait(code, caplog):
    module, seen = code(), []
    compiled = counts.compiled

    def use():
        ready.load()
        seen.append(ready.ready())

    threads = [threading.Thread(target=use) for _ in range(4)]
    with caplog.at_level(logging.WARNING, "rtfilter"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert seen == [True] * 4
    assert len(module.calls) == 1
    assert counts.compiled == compiled + 2
    assert "compiling the search code: 1 of 2 kernels" in caplog.text
    assert not counts.watchers


def test_what_is_cached_is_loaded_in_silence(code, caplog, monkeypatch):
    code().exercise()
    code()  # as another process would
    compiled = counts.compiled
    monkeypatch.setattr(ready, "_compile_in_child", lambda: pytest.fail("a process was started"))
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "rtfilter"):
        ready.load_in_background()
    assert ready.ready()
    assert counts.compiled == compiled
    assert not [record for record in caplog.records if record.name == "rtfilter"]


@pytest.mark.slow
def test_another_process_compiles_what_no_cache_has(code, caplog):
    module, compiled = code(), counts.compiled
    with caplog.at_level(logging.WARNING, "rtfilter"):
        thread = threading.Thread(target=ready.load_in_background)
        thread.start()
        thread.join(120)
    assert ready.ready()
    assert counts.compiled == compiled  # by the other one
    assert sum(module.more.stats.cache_hits.values()) == 1
    assert "beside other work, in process" in caplog.text


def test_no_full_collection_stops_other_threads_while_cached_code_is_loaded(code, monkeypatch):
    module = code()
    module.exercise()
    module, done = code(), []
    exercise = module.exercise
    monkeypatch.setattr(module, "exercise", lambda: (done.append(gc.isenabled()), exercise()))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)  # as the tests may freeze what they share
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    ready.load_in_background()
    assert done == [False, "freeze", "unfreeze"]
    assert gc.isenabled()


@pytest.mark.slow
@pytest.mark.parametrize("python", ["", "/usr/bin/uwsgi", "/nowhere/python3"])
def test_without_another_process_this_one_compiles(code, monkeypatch, python):
    code()
    compiled = counts.compiled
    monkeypatch.setattr(sys, "executable", python)
    thread = threading.Thread(target=ready.load_in_background)
    thread.start()
    thread.join(60)
    assert ready.ready()
    assert counts.compiled == compiled + 2


@pytest.mark.slow
def test_a_thread_that_waits_ends_the_other_process(code, monkeypatch, tmp_path):
    module, compiled = code(), counts.compiled
    slow = tmp_path / "python3"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    aside = threading.Thread(target=ready.load_in_background)
    aside.start()
    pid = tmp_path / "pid"
    limit = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < limit:
        time.sleep(0.01)
    ready.load()
    aside.join(60)
    assert not aside.is_alive()
    assert counts.compiled == compiled + 2
    assert len(module.calls) >= 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


PROGRAM = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from rtfilter.index import ready
ready._modules = {"ready_kernels": 2}
threading.Thread(target=ready.load_in_background, daemon=True).start()
if sys.argv[2] == "wait":
    time.sleep(600)
while not __import__("pathlib").Path(sys.argv[1], "pid").exists():
    time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", long_but(["exit", "wait"], ["exit"]))
def test_no_process_is_left_by_one_that_ended(tmp_path, end):
    """It ends with its parent, however the parent ends."""
    (tmp_path / "ready_kernels.py").write_text(
        MODULE.format(more=3)
        + "import os, pathlib, sys, time\n"
        + "if len(sys.argv) > 1 and sys.argv[0] == '-c':\n"
        + f"    pathlib.Path({str(tmp_path)!r}, 'new').write_text(str(os.getpid()))\n"
        + f"    os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r})\n"
        + "    time.sleep(600)\n"
    )
    (tmp_path / "run.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, tmp_path / "run.py", str(tmp_path), end], env=environment)
    try:
        limit = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        child = int((tmp_path / "pid").read_text())
    finally:
        if end == "wait":
            running.kill()
        assert running.wait(60) == (-9 if end == "wait" else 0)
    while Path(f"/proc/{child}").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


FORK = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from rtfilter.index import ready
from numba.core.compiler_lock import global_compiler_lock

ready._modules = {"ready_kernels": 2}
ready.load()
held = threading.Event()

def compile():
    with global_compiler_lock:
        held.set()
        time.sleep(0.5)

threading.Thread(target=compile).start()
held.wait()
pid = os.fork()
if not pid:
    ready._ready = False
    ready.load()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_process_that_forks_while_a_thread_compiles_can_load(tmp_path):
    (tmp_path / "ready_kernels.py").write_text(MODULE.format(more=4))
    (tmp_path / "run.py").write_text(FORK)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "run.py", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "7\n", done.stderr
