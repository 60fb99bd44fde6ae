"""Compiled kernels are kept on disk, and those of another version are not taken for one's own."""

import importlib
import sys

import pytest

from rtfilter.index.kernels import jit

MODULE = """
from typing import NamedTuple
from rtfilter.index.kernels.jit import kernel

class {name}(NamedTuple):
    value: int

@kernel
def total(pair):
    return pair.value + {more}
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Imports a module of kernels as another process would, from the same file and cache."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(name, more):
        (tmp_path / "some_kernels.py").write_text(MODULE.format(name=name, more=more))
        monkeypatch.delitem(sys.modules, "some_kernels", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("some_kernels")

    return load


def test_kernels_are_compiled_once(load):
    first = load("Pair", 1)
    assert first.total(first.Pair(1)) == 2
    again = load("Pair", 1)
    assert again.total(again.Pair(1)) == 2
    assert sum(again.total.stats.cache_hits.values()) == 1


@pytest.mark.parametrize(("name", "more"), [("Couple", 2), ("Pair", 1)], ids=["other classes", "the same"])
def test_what_another_version_compiled_is_left_alone(load, monkeypatch, name, more):
    earlier = load("Pair", 1)
    assert earlier.total(earlier.Pair(1)) == 2
    monkeypatch.setattr(jit, "_DIGEST", "of other sources")
    later = load(name, more)
    assert later.total(getattr(later, name)(1)) == 1 + more
    assert not later.total.stats.cache_hits
