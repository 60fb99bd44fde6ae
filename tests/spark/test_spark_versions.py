"""Of several writers of a version, one makes it, on any file system."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from object_store import served
from rtfilter.spark import places, versions

WRITER = Path(__file__).with_name("version_writer.py")


@pytest.fixture(scope="module", params=["local", "s3"])
def place(request, tmp_path_factory):
    """A function that makes the place of a new folder."""
    if request.param == "local":
        home = tmp_path_factory.mktemp("versions")
        yield lambda name: str(home / name)
    else:
        with served() as uri:
            yield uri


def test_a_version_is_made_once(place):
    folder = place("once")
    for number in (1, 2, 4):
        versions.publish(folder, number, b"%d" % number)
    for number in (1, 3, 4):
        with pytest.raises(versions.VersionTakenError):
            versions.publish(folder, number, b"other")
    places.remove(versions.file_of(folder, 2))
    with pytest.raises(versions.VersionTakenError):
        versions.publish(folder, 2, b"other")
    assert versions.numbers(folder) == [1, 4]
    assert places.read_bytes(versions.file_of(folder, 4)) == b"4"
    left = {name for name in places.names(folder) if name != ".lock"}
    assert left == {"00000001.json", "00000004.json"}


def test_programs_that_write_at_once_lose_nothing(place):
    folder, count = place("at-once"), 5
    calls = [[sys.executable, str(WRITER), folder, name, str(count)] for name in "abc"]
    writers = [subprocess.Popen(call, stdout=subprocess.PIPE, text=True) for call in calls]
    made = {}
    for name, writer in zip("abc", writers, strict=True):
        numbers = writer.communicate(timeout=300)[0].split()
        assert writer.returncode == 0
        made |= {int(number): f"{name} {turn}" for turn, number in enumerate(numbers)}
    assert sorted(made) == list(range(1, 3 * count + 1)) == versions.numbers(folder)
    assert made == {number: places.read_bytes(versions.file_of(folder, number)).decode() for number in made}


# Claims, on file systems without links


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A file system of Arrow that the operating system does not reach; the folder where it lies."""
    from pyarrow import fs

    system, reach = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), places.reach
    monkeypatch.setattr(
        places,
        "reach",
        lambda place: (system, place[6:]) if place.startswith("far://") else reach(place),
    )
    (tmp_path / "versions").mkdir()
    return tmp_path / "versions"


def test_of_two_that_claim_a_version_the_one_of_the_lesser_name_waits(far, monkeypatch):
    """Until the other one has withdrawn."""
    other = far / "00000001.json.~"
    other.write_bytes(b"other")
    looks = []

    def sleep(seconds):
        looks.append(versions.numbers("far://versions"))
        if len(looks) == 3:
            other.unlink()

    monkeypatch.setattr(versions, "sleep", sleep)
    versions.publish("far://versions", 1, b"own")
    assert looks == [[]] * 3
    assert os.listdir(far) == ["00000001.json"]


def test_the_one_of_the_greater_name_withdraws(far, monkeypatch):
    other = far / "00000001.json.!"
    other.write_bytes(b"other")

    def sleep(seconds):
        assert os.listdir(far) == [other.name]
        other.rename(far / "00000001.json")

    monkeypatch.setattr(versions, "sleep", sleep)
    with pytest.raises(versions.VersionTakenError):
        versions.publish("far://versions", 1, b"own")
    assert os.listdir(far) == ["00000001.json"]


def test_a_claim_that_is_moved_during_a_listing_counts(far, monkeypatch):
    real = versions._numbers

    def numbers(names):
        (far / "00000001.json").write_bytes(b"other")
        return real(names)

    monkeypatch.setattr(versions, "_numbers", numbers)
    with pytest.raises(versions.VersionTakenError):
        versions.publish("far://versions", 1, b"own")
    assert (far / "00000001.json").read_bytes() == b"other"


def test_the_claim_of_a_killed_writer_counts_for_a_while(far, monkeypatch):
    claim = far / "00000001.json.killed"
    claim.write_bytes(b"half")
    monkeypatch.setattr(versions, "PATIENCE", 0.2)
    with pytest.raises(OSError, match=r"another program has begun to write version 1 .* in 10 minutes"):
        versions.publish("far://versions", 1, b"own")
    assert os.listdir(far) == [claim.name]
    old = claim.stat().st_mtime - versions.STALE - 1
    os.utime(claim, (old, old))
    versions.publish("far://versions", 1, b"own")
    assert (far / "00000001.json").read_bytes() == b"own"


def test_the_lock_of_a_killed_writer_is_free(tmp_path):
    import fcntl

    folder = tmp_path / "versions"
    folder.mkdir()
    writer = threading.Thread(target=versions.publish, args=(str(folder), 1, b"1"))
    with open(folder / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer.start()
        writer.join(0.05)
        assert versions.numbers(str(folder)) == []
    writer.join()  # closed, as by the end of a process
    assert versions.numbers(str(folder)) == [1]
