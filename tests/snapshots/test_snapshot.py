"""Snapshots: what is saved is what is loaded, and damage is noticed."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import forks
from boxes import random_boxes, random_points
from oracle import as_sets, matches
from rtfilter.basics.errors import SnapshotError
from rtfilter.index.tree import KIND, RStarTree
from rtfilter.snapshots import arrays as snapshot


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    low, high = random_boxes(rng, 400, 3)
    tree = RStarTree.bulk_load(low, high, capacity=(10, 20))
    tree.save(tmp_path / "index")
    return tmp_path / "index", low, high, random_points(rng, 40, 3)


def test_a_loaded_tree_answers_and_changes_without_touching_the_file(saved):
    path, low, high, points = saved
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    tree = RStarTree.load(path)
    tree.check()
    assert as_sets(tree.search(points)) == matches(low, high, points)
    tree.delete_many(np.arange(200))
    tree.insert_many(np.arange(1000, 1300), low[:300], high[:300])
    tree.check()
    ids = np.concatenate([np.arange(200, 400), np.arange(1000, 1300)])
    rows = np.concatenate([np.arange(200, 400), np.arange(300)])
    assert as_sets(tree.search(points)) == matches(low[rows], high[rows], points, ids)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_an_empty_tree_survives(tmp_path):
    RStarTree(5).save(tmp_path / "index")
    tree = RStarTree.load(tmp_path / "index")
    tree.insert(1, np.zeros(5), np.ones(5))
    assert tree.search(np.ones((1, 5))).ids.tolist() == [1]


def test_saving_again_replaces_the_snapshot_and_leaves_no_rest(saved):
    path, _, _, points = saved
    old = RStarTree.load(path)
    expected = as_sets(old.search(points))
    files = len(list(path.iterdir()))
    RStarTree(2).save(path)
    assert RStarTree.load(path).dimensions == 2
    assert len(list(path.iterdir())) == files
    assert as_sets(old.search(points)) == expected  # its pages stay mapped


def largest(path):
    return max(path.glob("*.bin"), key=lambda file: file.stat().st_size)


def test_truncation_alteration_and_loss_are_noticed(saved):
    path, *_ = saved
    file = largest(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(SnapshotError, match="truncated"):
        RStarTree.load(path)
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(SnapshotError, match="checksum"):
        RStarTree.load(path)
    file.unlink()
    with pytest.raises(SnapshotError, match="missing"):
        RStarTree.load(path)


def test_an_altered_manifest_is_noticed(saved):
    path, *_ = saved
    manifest = path / snapshot.MANIFEST
    text = manifest.read_text()
    manifest.write_text(text[: len(text) // 2])
    with pytest.raises(SnapshotError, match="truncated or altered"):
        RStarTree.load(path)
    manifest.write_text(text.replace('"dimensions": 3', '"dimensions": 4'))
    with pytest.raises(SnapshotError, match="altered"):
        RStarTree.load(path)
    manifest.write_text("[]")
    with pytest.raises(SnapshotError, match="truncated or altered"):
        RStarTree.load(path)


def test_another_version_or_kind_says_so(saved):
    path, *_ = saved
    with pytest.raises(SnapshotError, match=r"is a snapshot of rtfilter\.tree, not of other"):
        snapshot.read(path, "other")
    manifest = json.loads((path / snapshot.MANIFEST).read_text())
    manifest["version"] = 99
    (path / snapshot.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(SnapshotError, match="format version 99"):
        RStarTree.load(path)


def test_what_is_no_snapshot_is_neither_read_nor_overwritten(tmp_path):
    with pytest.raises(SnapshotError, match="there is nothing at"):
        RStarTree.load(tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SnapshotError, match="choose another path"):
        RStarTree(2).save(tmp_path)
    with pytest.raises(SnapshotError, match="choose another path"):
        RStarTree(2).save(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_leaves_the_old_snapshot(saved, monkeypatch):
    path, low, high, points = saved
    calls = []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    files = sorted(file.name for file in path.iterdir())
    with pytest.raises(OSError, match="No space left") as caught:
        RStarTree(2).save(path)
    assert caught.value.filename == str(path)
    assert sorted(file.name for file in path.iterdir()) == files
    assert as_sets(RStarTree.load(path).search(points)) == matches(low, high, points)
    calls.clear()
    with pytest.raises(OSError, match="No space left"):
        RStarTree(2).save(path.parent / "new")
    assert not (path.parent / "new").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_all_is_on_the_disk_before_it_replaces_and_its_name_after(saved, monkeypatch):
    path, *_ = saved
    done, plain = [], os.replace

    def replace(source, target):
        done.append("replace")
        plain(source, target)

    monkeypatch.setattr(
        os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    monkeypatch.setattr(os, "replace", replace)
    RStarTree(2).save(path)
    written = {str(path / entry["file"]) for entry in snapshot.info(path)["arrays"].values()}
    at = done.index("replace")
    assert written < set(done[:at])
    assert len(done[:at]) == len(written) + 1  # and the manifest
    assert done[at + 1 :] == [str(path)]


def killed_while(script, path):
    """How a process ends that runs a script, to which it gives the path of a snapshot."""
    file = path.parent / "script.py"
    file.write_text(script)
    return forks.python(file, path).wait(60)


@pytest.mark.slow
def test_a_writer_killed_in_the_middle_leaves_the_old_snapshot(saved):
    path, low, high, points = saved
    script = (
        "import os, sys; from rtfilter.index.tree import RStarTree\n"
        "count = 0\n"
        "def die(descriptor):\n"
        "    global count; count += 1\n"
        "    if count == 6: os._exit(9)\n"
        "os.fsync = die\n"
        "RStarTree(2).save(sys.argv[1])\n"
    )
    assert killed_while(script, path) == 9
    assert as_sets(RStarTree.load(path).search(points)) == matches(low, high, points)
    RStarTree.load(path).save(path)  # clears away what the killed writer left
    assert len(list(path.glob("*.bin"))) == len(snapshot.info(path)["arrays"])


def test_reading_while_another_writes_gives_one_of_both(saved):
    path, *_ = saved
    stop = threading.Event()

    def write():
        d = 0
        while not stop.is_set():
            RStarTree(2 + d % 2).save(path)
            d += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            assert RStarTree.load(path).dimensions in (2, 3)
    finally:
        stop.set()
        writer.join()


def test_kind_is_kept():
    assert KIND == "rtfilter.tree"  # part of the format: changing it orphans every saved tree


def test_two_writers_of_one_path_leave_a_whole_snapshot(tmp_path):
    trees = [RStarTree(d) for d in (2, 3)]

    def write(tree):
        for _ in range(15):
            tree.save(tmp_path / "index")

    writers = [threading.Thread(target=write, args=(tree,)) for tree in trees]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert RStarTree.load(tmp_path / "index").dimensions in (2, 3)
    assert len(list((tmp_path / "index").glob("*.bin"))) == len(trees[0].to_arrays())


def test_an_interruption_just_after_the_replacement_keeps_the_new_snapshot(saved, monkeypatch):
    path, *_ = saved
    original = os.replace

    def replace_then_interrupt(source, target):
        original(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        RStarTree(2).save(path)
    monkeypatch.undo()
    assert RStarTree.load(path).dimensions == 2


@pytest.mark.slow
def test_a_writer_killed_at_its_first_save_does_not_block_the_next(tmp_path):
    script = (
        "import os, sys; from rtfilter.index.tree import RStarTree\n"
        "count = 0\n"
        "def die(descriptor):\n"
        "    global count; count += 1\n"
        "    if count == 3: os._exit(9)\n"
        "os.fsync = die\n"
        "RStarTree(2).save(sys.argv[1])\n"
    )
    path = tmp_path / "index"
    assert killed_while(script, path) == 9
    RStarTree(4).save(path)
    assert RStarTree.load(path).dimensions == 4
    assert len(list(path.glob("*.bin"))) == len(RStarTree(4).to_arrays())


def test_files_of_others_are_neither_joined_nor_removed(saved):
    path, *_ = saved
    (path / "mine.bin").write_text("mine")
    with pytest.raises(SnapshotError, match="choose another path"):
        RStarTree(2).save(path)
    assert (path / "mine.bin").read_text() == "mine"
