"""A backup is what was there at one moment, and a folder again; or it is refused."""

import io
import os
import stat
import tarfile
import threading
from functools import partial

import pytest
from argon2 import PasswordHasher

from rtfilter.cli import FAILED, main
from rtfilter.service.access import passwords
from rtfilter.service.access.passwords import Passwords
from rtfilter.store.backup_file import LIST
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users
from service.running import running

pytestmark = pytest.mark.slow
BASIC = "Basic YW5uOnRoZSBwYXNzd29yZA=="  # ann:the password
LINES = b'{"price": 1}\n' * 50


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in ("RTFILTER_DATA", "RTFILTER_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, 1, 8, 1))  # quick


@pytest.fixture
def data(tmp_path):
    """The folder of a server that has ended, with a user, a subscription and an event."""
    folder = tmp_path / "data"
    folder.mkdir()
    made = engine(f"sqlite:///{folder}/log.sqlite")
    Users(made).add("ann", Passwords().hash("the password"), ["admin"])
    made.dispose()
    (folder / "webhook.key").write_bytes(b"a key")
    with running(folder) as server:
        ask(server, "POST", "/filters/default/subscriptions", {"where": "price > 0"})
        ask(server, "POST", "/filters/default/events", {"price": 1})
    return folder


def ask(server, method, path, body=None, kind=None):
    answer = server.ask(method, path, body, kind=kind, user=None, Authorization=BASIC)
    assert answer.status < 300, answer.body
    return answer.body


def backed_up(folder, out):
    assert main(["backup", "--data", str(folder), "--out", str(out)]) == 0
    return out


def restored(file, folder):
    assert main(["restore", str(file), "--data", str(folder)]) == 0
    return folder


def deliveries(server):
    """Positions of all that waits for ann."""
    found, path = [], "/deliveries?limit=1000"
    while path is not None:
        page = ask(server, "GET", path)
        found += [one["position"] for one in page["deliveries"]]
        path = page["next"]
    return found


def test_all_that_was_answered_before_is_there_though_events_come_meanwhile(data, tmp_path, capsys):
    answered, enough, end = [], threading.Event(), threading.Event()
    with running(data) as server:

        def publish():
            while not end.is_set():
                kind = "application/x-ndjson"
                answered.extend(ask(server, "POST", "/filters/default/events", LINES, kind)["positions"])
                if len(answered) > 2000:
                    enough.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            enough.wait(100)
            before = list(answered)
            out = backed_up(data, tmp_path / "b.tar")
            during = len(answered)
        finally:
            end.set()
            publisher.join()
        assert len(deliveries(server)) == len(answered) + 1
    assert "events, 1 subscription, 1 user" in capsys.readouterr().err
    with running(restored(out, tmp_path / "again")) as server:
        server.settle()
        found = deliveries(server)
        assert set(before) <= set(found)
        assert len(before) > 2000
        assert len(found) <= during + len(LINES) + 1
        assert found == sorted(set(found))
        assert ask(server, "GET", "/statistics")["server"]["subscriptions"] == 1


def test_a_restored_folder_has_the_keys_and_indexes_of_another_are_not_trusted(data, tmp_path):
    with running(data) as server:
        epoch = server.pipeline._log.epoch
        out = backed_up(data, tmp_path / "b.tar")
    again = restored(out, tmp_path / "again")
    assert sorted(one.name for one in again.iterdir()) == ["log.sqlite", "webhook.key"]
    assert (again / "webhook.key").read_bytes() == b"a key"
    log = Log(engine(f"sqlite:///{again}/log.sqlite"))
    log.close()
    assert abs(log.epoch - epoch) > 1


def test_nobody_else_may_read_any_of_it(data, tmp_path):
    before = os.umask(0o022)
    try:
        out = backed_up(data, tmp_path / "b.tar")
        again = restored(out, tmp_path / "again")
    finally:
        os.umask(before)
    assert not [one for one in (out, again, *again.iterdir()) if stat.S_IMODE(one.stat().st_mode) & 0o077]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["again", "b.tar", "data"]


def refused(capsys, *words):
    assert main([str(word) for word in words]) == FAILED
    return capsys.readouterr().err


def test_nothing_is_overwritten(data, tmp_path, capsys):
    out = backed_up(data, tmp_path / "b.tar")
    assert "exists already" in refused(capsys, "backup", "--data", data, "--out", out)
    assert "is not empty" in refused(capsys, "restore", out, "--data", data)
    (tmp_path / "empty").mkdir()
    restored(out, tmp_path / "empty")


def test_what_is_no_folder_of_a_server_is_refused(tmp_path, capsys, monkeypatch):
    said = refused(capsys, "backup", "--data", tmp_path, "--out", tmp_path / "b.tar")
    assert "has no log.sqlite" in said
    (tmp_path / "log.sqlite").write_bytes(b"no database" * 1000)
    assert "cannot be read" in refused(capsys, "backup", "--data", tmp_path, "--out", tmp_path / "b.tar")
    assert [one.name for one in tmp_path.iterdir()] == ["log.sqlite"]
    monkeypatch.setenv("RTFILTER_DATABASE", "postgresql://ann:secret@host/name")
    said = refused(capsys, "backup", "--data", tmp_path, "--out", tmp_path / "b.tar")
    assert "pg_dump" in said
    assert "secret" not in said


def changed(file, how):
    """A backup that is damaged."""
    whole = file.read_bytes()
    if how == "cut":
        return whole[: len(whole) // 2]
    if how == "flipped":
        at = len(whole) // 2
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    if how == "no tar":
        return b"x" * 10_000
    out = io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=out, mode="w") as tar:
        for entry in old:
            if entry.name == LIST and how == "no list":
                continue
            tar.addfile(entry, old.extractfile(entry))
        if how == "outside":
            tar.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    return out.getvalue()


def test_a_damaged_backup_is_refused_and_leaves_nothing_behind(data, tmp_path, capsys):
    out = backed_up(data, tmp_path / "b.tar")
    whole = out.read_bytes()
    for how in ("cut", "flipped", "no tar", "no list", "outside"):
        out.write_bytes(changed(out, how))
        said = refused(capsys, "restore", out, "--data", tmp_path / "again")
        assert "b.tar" in said, how
        assert sorted(one.name for one in tmp_path.iterdir()) == ["b.tar", "data"], how
        out.write_bytes(whole)
