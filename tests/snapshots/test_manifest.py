"""Manifests and arrays that cannot be those of a snapshot, although their checksums may fit."""

import json
import zlib

import numpy as np
import pytest

from rtfilter import EventFilter, Schema, SnapshotError, __version__
from rtfilter.index.tree import RStarTree
from rtfilter.snapshots import arrays as snapshot
from rtfilter.snapshots import manifest as manifests

SCHEMA = Schema({"price": float, "symbol": str})


@pytest.fixture(params=["rtree", "masks"])
def saved(request, tmp_path):
    filter = EventFilter(SCHEMA, matcher=request.param)
    filter.subscribe_many(["price < 10", "symbol LIKE 'a%' AND price > 1", "FALSE"])
    filter.save(tmp_path / "index")
    return tmp_path / "index"


def refused(path):
    with pytest.raises(SnapshotError) as caught:
        EventFilter.load(path)
    return str(caught.value)


def rewrite(path, change):
    """Change the manifest, and give it the checksum that fits."""
    file = path / manifests.MANIFEST
    content = json.loads(file.read_text())
    del content["crc32"]
    change(content)
    file.write_text(json.dumps({**content, "crc32": manifests.checksum(content)}))


def refused_after(saved, changes):
    """The message for each change of the manifest, which is undone again."""
    file = saved / manifests.MANIFEST
    whole = file.read_bytes()
    for change in changes:
        rewrite(saved, change)
        yield refused(saved)
        file.write_bytes(whole)


def test_what_is_no_manifest_is_refused(saved):
    for content in (
        b"",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b"{}",
        b'{"crc32": 0}',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a": ' * 100_000,
        b'{"version": ' + b"9" * 5000 + b"}",
        b'{"version": 1e999, "crc32": NaN}',
    ):
        (saved / manifests.MANIFEST).write_bytes(content)
        message = refused(saved)
        assert manifests.MANIFEST in message, content[:40]
        assert message.endswith("; save it again"), content[:40]
        with pytest.raises(SnapshotError):
            snapshot.info(saved)


def test_a_manifest_that_has_lost_its_checksum_is_refused(saved):
    file = saved / manifests.MANIFEST
    content = json.loads(file.read_text())
    del content["crc32"]
    file.write_text(json.dumps(content))
    assert "is altered: its checksum does not fit" in refused(saved)


def test_a_folder_in_the_place_of_the_manifest_or_of_an_array(saved):
    (array := next(saved.glob("*.bin"))).unlink()
    array.mkdir()
    assert "is no file; save it again" in refused(saved)
    (saved / manifests.MANIFEST).unlink()
    (saved / manifests.MANIFEST).mkdir()
    assert "manifest.json is a folder, not a file" in refused(saved)


def test_a_newer_version_is_told_before_its_checksum(saved):
    rewrite(saved, lambda content: content.update(version=3, arrays=5))
    assert "format version 3, this rtfilter reads version 2" in refused(saved)


def test_a_newer_version_asks_for_an_upgrade_and_an_older_one_for_a_new_snapshot(saved):
    assert json.loads((saved / manifests.MANIFEST).read_text())["saved_by"] == __version__
    newer = [
        lambda content: content.update(version=3, saved_by="9.1.0"),
        lambda content: content.update(version=3, saved_by="9\n" * 100),
        lambda content: content.update(version=1),
    ]
    upgrade, unknown, older = refused_after(saved, newer)
    assert upgrade.endswith("; upgrade rtree-filter to 9.1.0 or newer, as the snapshot was saved by 9.1.0")
    assert unknown.endswith(
        f"; upgrade rtree-filter, as the snapshot was saved by a version after {__version__}"
    )
    assert older.endswith(f"; make it again with rtree-filter {__version__}")


def test_a_path_without_a_snapshot_says_what_is_there(tmp_path):
    assert refused(tmp_path / "nope.index").startswith(f"there is nothing at {tmp_path / 'nope.index'};")
    (tmp_path / "notes.txt").write_text("mine")
    assert refused(tmp_path / "notes.txt").endswith(
        "is no snapshot, which is a folder: it is a file, or in one"
    )
    (tmp_path / "folder").mkdir()
    assert refused(tmp_path / "folder").endswith(
        "is no snapshot: it has no manifest.json; give another folder"
    )


def first(content):
    return next(iter(content["arrays"].values()))


ENTRIES = [
    ("file", "../secret.0123456789ab.bin"),
    ("file", "/etc/passwd"),
    ("file", "manifest.json"),
    ("file", 5),
    ("file", None),
    ("dtype", "O"),
    ("dtype", "|O8"),
    ("dtype", "nonsense"),
    ("dtype", "f8,("),
    ("dtype", 8),
    ("shape", 5),
    ("shape", [-1]),
    ("shape", [1.5]),
    ("shape", [True]),
    ("shape", [10**400]),
    ("shape", [2**62, 2**62]),
    ("bytes", "8"),
    ("bytes", -8),
    ("bytes", 1),
    ("crc32", None),
]


def test_an_entry_that_cannot_be_used_is_refused(saved):
    changes = (lambda content, one=one: first(content).update([one]) for one in ENTRIES)
    for message, entry in zip(refused_after(saved, changes), ENTRIES, strict=True):
        assert "cannot be used" in message, entry
        assert message.endswith("; save it again"), entry


MANIFESTS = [
    lambda content: content.update(arrays=[]),
    lambda content: content.update(meta=None),
    lambda content: content.update(format=5),
    lambda content: content.update(version="2"),
    lambda content: content["arrays"].update(extra=5),
    lambda content: content["arrays"].update({"../x": first(content)}),
]


def test_a_manifest_of_another_form_is_refused(saved):
    for number, message in enumerate(refused_after(saved, MANIFESTS)):
        assert message.endswith("; save it again"), number


FACTS = [
    lambda meta: meta.clear(),
    lambda meta: meta.update(schema=None),
    lambda meta: meta.update(schema=[{"name": "price", "type": "float"}]),
    lambda meta: meta.update(schema=[{"name": "price", "type": "money"}]),
    lambda meta: meta.update(next_id="7"),
    lambda meta: meta.update(next_id=10**30),
    lambda meta: meta.update(options=5),
    lambda meta: meta.update(options={"colour": 1}),
    lambda meta: meta.update(content="nothing"),
    lambda meta: meta.update(matcher=["rtree"]),
]


def test_facts_that_cannot_be_are_refused(saved):
    changes = (lambda content, one=one: one(content["meta"]) for one in FACTS)
    for number, message in enumerate(refused_after(saved, changes)):
        assert str(saved) in message, number


def replace(path, name, array):
    """Put another array into a snapshot, with the entry that fits."""

    def change(content):
        if array is None:
            del content["arrays"][name]
            return
        entry = content["arrays"][name]
        (path / entry["file"]).write_bytes(array.tobytes())
        entry.update(
            dtype=array.dtype.str, shape=array.shape, bytes=array.nbytes, crc32=zlib.crc32(array.tobytes())
        )

    rewrite(path, change)


def names_of(path):
    return sorted(json.loads((path / manifests.MANIFEST).read_text())["arrays"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda old: None,
        lambda old: np.zeros(3, "f4"),
        lambda old: old.reshape(-1)[: old.size // 2].copy(),
    ],
)
def test_no_array_of_another_form_is_read(saved, make):
    whole = {file.name: file.read_bytes() for file in saved.iterdir()}
    for name in names_of(saved):
        old = snapshot.read(saved, "rtfilter.filter").arrays[name]
        new = make(old)
        if name.endswith("_table") and new is not None and new.dtype == old.dtype:
            continue  # any power of two may be its length
        if new is not None and (old.size == 0 or (new.dtype == old.dtype and new.shape == old.shape)):
            continue
        replace(saved, name, new)
        assert str(saved) in refused(saved), name
        for file, content in whole.items():
            (saved / file).write_bytes(content)


def test_a_tree_alone_is_checked_too(tmp_path):
    tree = RStarTree(2)
    tree.insert(1, [0, 0], [1, 1])
    tree.save(tmp_path / "tree")
    replace(tmp_path / "tree", "state", np.full(24, 2**40))
    with pytest.raises(SnapshotError, match="save it again"):
        RStarTree.load(tmp_path / "tree")


def test_a_wrong_name_of_a_matcher_is_no_fault_of_the_snapshot(saved):
    with pytest.raises(ValueError, match="unknown matcher 'rtreee'"):
        EventFilter.load(saved, matcher="rtreee")
