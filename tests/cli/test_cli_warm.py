"""``rtfilter warm`` compiles everything, and says where it is kept."""

import subprocess
import sys
import warnings

import pytest
from numba.core import caching

from rtfilter.cli import FAILED, main, warm
from rtfilter.index.kernels import cache
from rtfilter.index.kernels.jit import Kernel


def test_what_was_compiled_and_where_is_told(monkeypatch, capsys):
    monkeypatch.setattr(warm, "compile_matchers", lambda: None)  # takes a minute where nothing was compiled
    assert main(["warm"]) == 0
    said = capsys.readouterr().err
    assert "kernels compiled in" in said
    assert "__pycache__" in said or "rtfilter" in said
    for name in ("insert", "delete", "search_all", "search_part", "frontier", "gather"):
        assert any(kernel.py_func.__name__ == name and kernel.overloads for kernel in Kernel.known), name


def test_where_nothing_can_be_kept_it_fails(monkeypatch, capsys):
    def compile_in_vain():
        warnings.warn("no folder can be written; set NUMBA_CACHE_DIR", RuntimeWarning, stacklevel=2)

    monkeypatch.setattr(warm, "compile_tree", compile_in_vain)
    monkeypatch.setattr(warm, "compile_matchers", lambda: None)
    assert main(["warm"]) == FAILED
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


PROGRAM = """
import pickle
import numpy as np
from rtfilter import EventFilter, RStarTree, Schema
from rtfilter.cli import warm
from rtfilter.index.kernels.jit import Kernel
from rtfilter.matchers import MATCHERS, make_matcher

warm.compile_tree()
warm.compile_matchers()
compile = Kernel.compile

def told(kernel, signature):
    print(kernel.py_func.__module__, kernel.py_func.__name__)
    return compile(kernel, signature)

Kernel.compile = told
events = [{"x": 2.0, "n": 5, "s": "abcdefghij"}] * 20
low = np.random.default_rng(0).random((9000, 3))
schema = Schema({"x": float, "n": int, "s": str})
for matcher in MATCHERS:
    if not make_matcher(matcher, schema).takes.everything:
        continue  # those that take little compile nothing
    filter = EventFilter(schema, matcher=matcher)
    filter.subscribe_many(["x > 1", "s = 'abcdefghij' OR n IN (1, 2, 3)", *(f"n > {k}" for k in range(200))])
    filter.update(0, "x > 3")
    filter.update(1, "s LIKE 'a%'")
    filter.unsubscribe(2)
    filter.unsubscribe_many(np.arange(3, 150))
    filter.match(events[0])
    filter.match_batch(events)
    list(filter.stream(events))
    filter.any_match(events)
    filter.workload(events)
    filter.part([0, 1])
    pickle.loads(pickle.dumps(filter)).subscribe("x > 5")
filter = EventFilter(Schema({"x": float, "y": float, "z": float}))
ids = filter.subscribe_many(low, low + 0.1)
filter.subscribe_many(low[:1], low[:1] + 1)
filter.subscribe_many(low[:99], low[:99] + 1)
filter.subscribe_many({"x": [2**60 + 1]}, {"x": [2**61]})
filter.unsubscribe_many(ids[:100])
filter.unsubscribe_many(ids[100:8000])
filter.repack()
filter.match_batch(low)
list(filter.stream(low))
filter.tree.check()
tree = RStarTree(3)
for id in range(50):
    tree.insert(id % 40, low[id], low[id] + 0.1)
tree.search_boxes(low[:3], low[:3] + 0.1, "intersect")
tree.search_boxes(low[:1], low[:1] + 0.1, "contain")
tree.count(low[:3])
tree.boxes_of(4)
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_it():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


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


@pytest.mark.slow
def test_matchers_are_compiled_too(capsys):
    assert main(["warm"]) == 0
    assert any(kernel.py_func.__module__.endswith("counting") and kernel.overloads for kernel in Kernel.known)
