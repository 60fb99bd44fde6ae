"""``rtfilter warm`` compiles everything, and says where it is kept."""

import subprocess
import sys
import warnings

import pytest
from numba.core import caching

from rtfilter.cli import FAILED, main, warm
from rtfilter.index.kernels import cache, counts
from rtfilter.index.kernels.jit import Kernel


def test_what_was_compiled_and_where_is_told(monkeypatch, capsys):
    monkeypatch.setattr(warm, "compile_matchers", lambda: None)  # takes a minute where nothing was compiled
    assert main(["warm"]) == 0
    said = capsys.readouterr().err
    assert "kernels compiled in" in said
    assert "__pycache__" in said or "rtfilter" in said
    for name in ("change", "search", "search_one", "frontier", "gather"):
        assert any(kernel.py_func.__name__ == name and kernel.overloads for kernel in Kernel.known), name


def test_where_nothing_can_be_kept_it_fails(monkeypatch, capsys):
    def compile_in_vain():
        warnings.warn("no folder can be written; set NUMBA_CACHE_DIR", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(warm, "compile_tree", compile_in_vain)
    monkeypatch.setattr(warm, "compile_matchers", lambda: None)
    assert main(["warm"]) == FAILED
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


USE = """
import inspect
import pickle
import sys
import threading
import numpy as np
from rtfilter import EventFilter, RStarTree, Schema
from rtfilter.filter import inside, part_of
from rtfilter.index.kernels import counts, pack
from rtfilter.index.kernels.jit import Kernel
from rtfilter.matchers import MATCHERS, make_matcher

loaded = []
counts.watchers.append(lambda: loaded.append(1))
events = [{"x": 2.0, "n": 5, "s": "abcdefghij"}] * 20
low = np.random.default_rng(0).random((9000, 3))
schema = Schema({"x": float, "n": int, "s": str})

def use_matcher(matcher):
    filter = EventFilter(schema, matcher=matcher)
    filter.subscribe_many(["x > 1", "s = 'abcdefghij' OR n IN (1, 2, 3)", *(f"n > {k}" for k in range(200))])
    filter.subscribe_many(["s LIKE 'a-long-prefix-%'"] * 300)
    filter.update(0, "x > 3")
    filter.update(1, "s LIKE 'a%'")
    filter.unsubscribe(2)
    filter.unsubscribe_many(np.arange(3, 150))
    filter.match(events[0])
    filter.match({"s": "a-long-prefix-1"})
    filter.match_batch(events)
    list(filter.stream(events))
    filter.match_batch(events).any
    inside(filter).matcher.workload(schema.read(events))
    part_of(filter, [0, 1])
    pickle.loads(pickle.dumps(filter)).subscribe("x > 5")

def use_tree():
    filter = EventFilter(Schema({"x": float, "y": float, "z": float}), matcher="rtree")
    ids = filter.subscribe_boxes(low, low + 0.1)
    filter.subscribe_boxes(low[:1], low[:1] + 1)
    filter.subscribe_boxes(low[:99], low[:99] + 1)
    filter.subscribe_boxes({"x": [2**60 + 1]}, {"x": [2**61]})
    filter.unsubscribe_many(ids[:100])
    filter.unsubscribe_many(ids[100:8000])
    filter.repack()
    filter.match_batch(low)
    list(filter.stream(low))
    inside(filter).matcher.tree.check()
    tree = RStarTree(3)
    for id in range(50):
        tree.insert(id % 40, low[id], low[id] + 0.1)
    tree.search_boxes(low[:3], low[:3] + 0.1, "intersect")
    tree.search_boxes(low[:1], low[:1] + 0.1, "contain")
    tree.count(low[:3])
    tree.boxes_of(4)

def use_many_boxes():
    many = np.random.default_rng(1).random((50_000, 3))
    many.flags.writeable = False
    tree = RStarTree.bulk_load(many, many)
    tree.insert(50_000, many[0], many[0])
    tree.delete(0)
    tree.search(many[:200])
    tree.search(many[:1])

def use_cuts():
    boxes = np.stack([low, low + 0.1], axis=1)
    pack.choose_cut(boxes, np.arange(len(boxes)), 4, 512)  # as shards on Spark

uses = [use_tree, use_many_boxes, use_cuts]
for name in MATCHERS:
    source = inspect.getsource(sys.modules[type(make_matcher(name, schema)).__module__])
    if name == "rtree" or "import kernel" in source or "LayeredMatcher" in source:  # others compile nothing
        uses.append(lambda name=name: use_matcher(name))

def run(use):
    try:
        use()
    except BaseException as error:
        print(repr(error))

def use_all():
    threads = [threading.Thread(target=run, args=(use,)) for use in [use_tree, use_many_boxes, *uses]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
PROGRAM = """
from rtfilter.cli import warm
from rtfilter.index import ready

before = len(loaded)
warm.compile_tree()
print(len(loaded) - before, sum(ready._modules.values()))
warm.compile_matchers()
print(len(loaded), warm.KERNELS)
known = {kernel: len(kernel.overloads) for kernel in Kernel.known}
use_all()
for kernel in Kernel.known:
    if len(kernel.overloads) > known.get(kernel, 0):
        print(kernel.py_func.__module__, kernel.py_func.__name__)
"""
ANOTHER = """
use_all()
print(counts.compiled)
"""


def printed(program):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_it_loads_all_kernels_as_many_as_progress_tells_and_no_later_process_compiles_any():
    tree, every, *compiled = printed(USE + PROGRAM).splitlines()
    assert tree.split()[0] == tree.split()[1]
    assert every.split()[0] == every.split()[1]
    assert compiled == []
    assert printed(USE + ANOTHER) == "0\n"


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_compiled(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path / "file"))
    for name in ("compile_tree", "compile_matchers"):
        monkeypatch.setattr(warm, name, lambda: pytest.fail("compiled"))
    assert main(["warm"]) == FAILED
    said = capsys.readouterr().err
    assert f"the folder {tmp_path / 'file'}, which NUMBA_CACHE_DIR names, cannot be written" in said
    assert "set NUMBA_CACHE_DIR" not in said


def test_progress_is_told_while_something_is_compiled(monkeypatch, capsys):
    def compile_some():
        counts.compiled += 1
        for watch in counts.watchers:
            watch()

    monkeypatch.setattr(counts, "compiled", counts.compiled)
    monkeypatch.setattr(warm, "SAY_EVERY", 0.0)
    monkeypatch.setattr(warm, "compile_tree", compile_some)
    monkeypatch.setattr(warm, "compile_matchers", lambda: None)
    assert main(["warm"]) == 0
    assert f"rtfilter: 1 of {warm.KERNELS} kernels\n" in capsys.readouterr().err
