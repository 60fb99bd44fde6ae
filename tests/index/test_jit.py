"""Compiled kernels are kept where they can be, and those of another version are not taken for one's own."""

import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock

from rtfilter.index.kernels import cache, counts, jit

MODULE = """
from typing import NamedTuple
from rtfilter.index.kernels.jit import kernel

class {name}(NamedTuple):
    value: int

@kernel
def total(pair):
    return pair.value + {more}

@kernel
def last(array):
    return array[-1]
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Imports a module of kernels as another process would, from the same file and cache."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(cache, "_said", set())
    monkeypatch.setattr(cache, "_warned", set())

    def load(name="Pair", more=1):
        (tmp_path / "some_kernels.py").write_text(MODULE.format(name=name, more=more))
        monkeypatch.delitem(sys.modules, "some_kernels", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("some_kernels")

    return load


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Neither the source's folder nor the home can be written; root can, so numba is told that it cannot."""

    def refuse(locator):
        raise PermissionError("read-only")

    monkeypatch.setattr(caching.InTreeCacheLocator, "ensure_cache_path", refuse)
    monkeypatch.setattr(caching.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no")  # not even root can make a folder there
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return cache.private_folder()


def test_kernels_are_compiled_once(load):
    first = load()
    assert first.total(first.Pair(1)) == 2
    again = load()
    assert again.total(again.Pair(1)) == 2
    assert sum(again.total.stats.cache_hits.values()) == 1


@pytest.mark.parametrize(("name", "more"), [("Couple", 2), ("Pair", 1)], ids=["other classes", "the same"])
def test_what_another_version_compiled_is_left_alone(load, monkeypatch, name, more):
    earlier = load("Pair", 1)
    assert earlier.total(earlier.Pair(1)) == 2
    monkeypatch.setattr(cache, "_DIGEST", "of other sources")
    later = load(name, more)
    assert later.total(getattr(later, name)(1)) == 1 + more
    assert not later.total.stats.cache_hits


def test_compiling_is_announced_once_and_loading_is_not(load, caplog, monkeypatch):
    with caplog.at_level(logging.WARNING, "rtfilter"):
        first = load()
        first.total(first.Pair(1))
        first.total(first.Pair(1.5))
    assert [record.name for record in caplog.records] == ["rtfilter"]
    assert "compiling kernels" in caplog.text
    caplog.clear()
    monkeypatch.setattr(cache, "_said", set())
    again = load()
    again.total(again.Pair(1))
    assert not caplog.records


def test_a_damaged_cache_is_compiled_again(load, tmp_path):
    first = load()
    first.total(first.Pair(1))
    for kept in Path(first.total.stats.cache_path).glob("some_kernels*.nb?"):
        kept.write_bytes(kept.read_bytes()[:40])
    again = load()
    assert again.total(again.Pair(1)) == 2
    assert not again.total.stats.cache_hits


def test_without_a_place_to_write_kernels_are_kept_in_a_private_folder(load, nowhere):
    first = load()
    with pytest.warns(RuntimeWarning, match=r"NUMBA_CACHE_DIR .* `rtfilter warm`") as warned:
        first.total(first.Pair(1))
    assert len(warned) == 1
    assert str(nowhere) in str(warned[0].message)
    assert nowhere.stat().st_mode & 0o777 == 0o700
    again = load()
    assert again.total(again.Pair(1)) == 2  # and warns no second time
    assert sum(again.total.stats.cache_hits.values()) == 1


def open_to_all(folder):
    folder.mkdir()
    folder.chmod(0o777)


def somebody_elses(folder):
    folder.mkdir(mode=0o700)
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, 12345)


def linked(folder):
    (folder.parent / "other").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "other")


def a_file(folder):
    folder.touch(mode=0o600)


@pytest.mark.parametrize("make", [open_to_all, somebody_elses, linked, a_file])
def test_a_folder_that_others_may_fill_is_not_used(load, nowhere, make):
    make(nowhere)
    kernels = load()
    with pytest.warns(RuntimeWarning, match=r"compiled again in each process.*NUMBA_CACHE_DIR"):
        assert kernels.total(kernels.Pair(1)) == 2
    assert nowhere.is_file() or not list(nowhere.iterdir())
    assert kernels.total(kernels.Pair(1.5)) == 2.5  # and warns no second time


def test_no_folder_called_tilde_is_made_for_a_user_without_a_home(load, nowhere, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~/.cache")  # what an unknown home expands to
    kernels = load()
    with pytest.warns(RuntimeWarning):
        kernels.total(kernels.Pair(1))
    assert not (tmp_path / "~").exists()


def test_a_full_disk_is_warned_of(load, monkeypatch):
    def full(index, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    kernels = load()
    with pytest.warns(RuntimeWarning, match=r"No space left.*NUMBA_CACHE_DIR"):
        assert kernels.total(kernels.Pair(1)) == 2
    assert kernels.total(kernels.Pair(1.5)) == 2.5


def test_threads_that_meet_a_new_kernel_compile_it_once_and_keep_it(load, monkeypatch):
    """The second thread waits until the cache is set: else it would compile without one."""
    first, cache_of, compiled = load(), jit.cache_of, counts.compiled

    def slow(function):
        time.sleep(0.2)
        return cache_of(function)

    monkeypatch.setattr(jit, "cache_of", slow)
    threads = [threading.Thread(target=first.total, args=(first.Pair(1),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts.compiled == compiled + 1
    again = load()
    again.total(again.Pair(1))
    assert counts.compiled == compiled + 1


def test_an_array_that_cannot_be_written_needs_no_kernel_of_its_own(load):
    module, compiled = load(), counts.compiled
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    assert module.last(fixed) == 2.0
    assert module.last(np.arange(4.0)) == 3.0
    assert module.last(fixed) == 2.0
    assert counts.compiled == compiled + 1
    assert len(module.last.overloads) == 1


def test_importing_needs_no_cache(tmp_path):
    (tmp_path / "refusing.py").write_text(
        "from numba.core.caching import InTreeCacheLocator\n"
        "class Refusing(InTreeCacheLocator):\n"
        "    def ensure_cache_path(self):\n        raise PermissionError('read-only')\n"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")
    } | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]),
        "NUMBA_CACHE_LOCATOR_CLASSES": "refusing.Refusing",  # numba asks no other
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import rtfilter"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_new_kind_of_argument_waits_while_a_kernel_is_loaded(load):
    """Loading registers types, and numba fails where it looks for that of the argument meanwhile."""
    module, done = load(), threading.Event()

    def call():
        module.total.typeof_pyval(module.Pair(1))
        done.set()

    with global_compiler_lock:
        caller = threading.Thread(target=call)
        caller.start()
        assert not done.wait(0.2)
    caller.join(60)
    assert done.is_set()
