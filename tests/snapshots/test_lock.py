"""Writers of one folder, with and without a system that can lock it."""

import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from rtfilter.index.tree import RStarTree
from rtfilter.snapshots import arrays


@pytest.fixture
def without_locks(monkeypatch):
    """The module as it is on Windows, where there is no fcntl."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = spec_from_file_location("arrays_without_fcntl", arrays.__file__)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_folder_cannot_be_locked_without_fcntl(without_locks):
    assert arrays.FOLDERS
    assert not without_locks.FOLDERS


def test_snapshots_are_saved_without_fcntl(without_locks, monkeypatch, tmp_path):
    monkeypatch.setattr(arrays, "FOLDERS", without_locks.FOLDERS)
    monkeypatch.setattr(arrays, "locked", without_locks.locked)
    for dimensions in (2, 3):
        RStarTree(dimensions).save(tmp_path / "index")
        assert RStarTree.load(tmp_path / "index").dimensions == dimensions


@pytest.mark.parametrize("windows", [False, True])
def test_writers_wait_for_each_other(tmp_path, without_locks, windows):
    module = without_locks if windows else arrays
    inside = []

    def write():
        with module.locked(tmp_path):
            inside.append(threading.current_thread())

    other = threading.Thread(target=write)
    with module.locked(tmp_path) as sync:
        other.start()
        other.join(0.05)
        sync()
        assert inside == []
    other.join()
    assert inside == [other]
