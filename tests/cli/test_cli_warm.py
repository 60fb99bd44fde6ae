"""``rtfilter warm`` compiles everything, and says where it is kept."""

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
