"""How the server starts and ends."""

import asyncio
import base64
import os
import shlex
import shutil
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from http.client import HTTPException

import pytest
from sqlalchemy.event import listen
from websockets.sync.client import connect

import forks
from lengths import long_but
from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.service import server as module
from rtfilter.service.access.passwords import Passwords
from rtfilter.service.doors import admission
from rtfilter.service.server import DataError
from rtfilter.service.settings import settings
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.user_store import Users
from service.certificates import certified
from service.running import SCHEMA, running

pytestmark = pytest.mark.slow


def test_another_schema_is_refused_and_none_is_the_same(tmp_path):
    with running(tmp_path) as server:
        first = server.ask("GET", "/filters").body
    with running(tmp_path, schema=None) as server:
        assert server.ask("GET", "/filters").body == first
    with (
        pytest.raises(DataError, match="another schema or key already"),
        running(tmp_path, Schema({"x": int})),
    ):
        pass


def test_without_users_it_listens_for_this_machine_only(tmp_path):
    with (
        pytest.raises(DataError, match=r"no users.*leave out --host.*\n  rtfilter users --data .* add admin"),
        running(tmp_path, host="0.0.0.0"),
    ):
        pass


def test_a_port_that_is_taken_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DataError, match=f"cannot listen on 127.0.0.1, port {port}: Address .* in use$"):
            module._bound("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_it_listens_on_the_loopback_of_ipv6(tmp_path):
    with running(tmp_path, host="::1") as server, socket.create_connection(("::1", server.port)) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 200")


def test_it_ends_by_itself_where_a_stage_has_died(tmp_path, caplog):
    with running(tmp_path, ended=1) as server:
        server.run(cancel(server.pipeline))
        while True:
            with suppress(OSError, HTTPException):
                assert server.ask("GET", "/healthz").status == 503
                continue
            break
    assert "a stage of the pipeline has failed" in caplog.text


async def cancel(pipeline):
    pipeline._tasks[0].cancel()


def test_a_database_that_cannot_be_used_is_told_without_its_password(tmp_path):
    url = "postgresql+psycopg://ann:secret@127.0.0.1:1/none"
    with (
        pytest.raises(DataError, match="the database cannot be used") as refused,
        running(tmp_path, database=url),
    ):
        pass
    assert "secret" not in str(refused.value)


def test_a_damaged_log_is_named_with_the_way_out(tmp_path):
    (tmp_path / "log.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(DataError) as refused, running(tmp_path):
        pass
    assert str(refused.value) == (
        f"the database {tmp_path}/log.sqlite cannot be used: file is not a database; it is damaged: "
        "rtfilter restore makes a new folder from a backup"
    )


def test_a_start_on_a_full_disk_says_where_room_is(tmp_path, monkeypatch):
    def full(*given):
        made = engine(*given)
        listen(made, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
        return made

    monkeypatch.setattr(module, "engine", full)
    with pytest.raises(DataError) as refused, running(tmp_path):
        pass
    assert str(refused.value) == (
        f"the database {tmp_path}/log.sqlite cannot be used: database or disk is full; make room, as much as "
        f"log.sqlite-wal has: {tmp_path}/indexes is a cache, which may be removed"
    )


@pytest.mark.parametrize("below", ["", "more/deep"])
def test_a_file_is_no_folder(tmp_path, monkeypatch, below):
    monkeypatch.setattr(module, "configure", lambda level: None)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"is a file; name a folder with --data: '.*notes'"):
        module.serve(settings(data=tmp_path / "notes" / below, port=0), Definition(SCHEMA))


def test_a_database_of_another_version_is_told(tmp_path):
    with running(tmp_path):
        pass
    with engine(f"sqlite:///{tmp_path}/log.sqlite").begin() as connection:
        connection.exec_driver_sql("UPDATE state SET value = 99 WHERE name = 'version'")
    with pytest.raises(DataError, match="of version 99"), running(tmp_path):
        pass


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_it_ends_where_its_database_has_gone(tmp_path, monkeypatch, caplog, how):
    monkeypatch.setattr(module, "LOOK", 0.01)
    data = tmp_path / "data"
    data.mkdir()
    with running(data, ended=1) as server:
        if how == "removed":
            while data.exists():  # the server may still add files
                shutil.rmtree(data, ignore_errors=True)
        else:
            data.rename(tmp_path / "elsewhere")
        if how == "replaced":
            data.mkdir()
            (data / "log.sqlite").touch()
        with suppress(OSError, HTTPException):
            while server.ask("GET", "/healthz").status == 200:
                pass
    assert "the server ends" in caplog.text


def test_it_ends_where_another_server_has_its_database_though_it_writes_nothing(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(module, "LOOK", 0.01)
    with running(tmp_path, ended=1) as server:
        made = engine(f"sqlite:///{tmp_path}/log.sqlite")
        Users(made).add("root", "hash", ["admin"])  # as `rtfilter users` does
        server.run(asyncio.sleep(0.05))
        assert server.ask("GET", "/healthz").status == 200
        Log(made).close()
        with suppress(OSError, HTTPException):
            for _ in range(1000):
                server.ask("GET", "/healthz")
    assert "another server has this database; the server ends" in caplog.text


def test_nobody_else_may_read_what_is_kept(tmp_path, monkeypatch):
    async def write(settings, schema):
        (settings.data / "file").touch()
        return 0

    monkeypatch.setattr(module, "_serve", write)
    monkeypatch.setattr(module, "configure", lambda level: None)
    tmp_path.chmod(0o755)  # it was there before
    before = os.umask(0o022)
    try:
        assert module.serve(settings(data=tmp_path)) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "0.0.0.0"}, "no users"),
        ({"port": "TAKEN"}, "cannot listen"),
        ({"tcp_port": "TAKEN"}, "cannot listen"),
        ({"certificate": "nowhere", "certificate_key": "nowhere"}, "nowhere"),
        ({"database": "postgresql://127.0.0.1:1/none"}, "database cannot be used"),
    ],
    ids=["users", "port", "tcp-port", "certificate", "database"],
)
def test_a_server_that_is_refused_leaves_nothing_behind(tmp_path, monkeypatch, given, said):
    monkeypatch.setattr(module, "configure", lambda level: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"port": 0} | {name: port if one == "TAKEN" else one for name, one in given.items()}
        with pytest.raises((DataError, OSError), match=said):
            module.serve(settings(data=tmp_path / "new" / "er", **flags), Definition(SCHEMA))
    assert [*tmp_path.iterdir()] == []


def test_with_another_database_the_first_user_goes_there(tmp_path):
    made = settings(data=tmp_path, database="postgresql://ann:secret@host/name")
    first, *commands = module._first_user(made)
    assert first.startswith("  export RTFILTER_DATABASE=...  # ")
    assert commands == module._first_user(settings(data=tmp_path))
    assert "secret" not in first


def test_what_was_there_stays_when_a_server_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "configure", lambda level: None)
    (tmp_path / "data" / "mine").mkdir(parents=True)
    with pytest.raises(DataError):
        module.serve(settings(data=tmp_path / "data", port=0, database="postgresql://127.0.0.1:1/none"))
    assert [*(tmp_path / "data").iterdir()] != []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    file, key = certified(tmp_path_factory.mktemp("certificate"), "localhost")
    return {"certificate": file, "certificate_key": key}


def test_it_speaks_tls(tmp_path, certificate):
    import ssl

    with running(tmp_path, **certificate) as server:
        assert server.ask("GET", "/healthz").status == 200
        context = ssl.create_default_context(cafile=certificate["certificate"])
        with connect(f"wss://localhost:{server.port}/session", ssl=context, close_timeout=0.1) as socket:
            socket.send('{"directive": "CONNECT", "user": "ann"}')
            assert '"CONNECTED"' in socket.recv(timeout=60)


def silent(server, links, count):
    """Connections to each door that say nothing; the last one of each."""
    for port in (server.port, server.opened.tcp_port):
        for _ in range(count):
            link = links.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        yield link


def test_a_peer_counts_as_a_stranger_before_its_handshake(tmp_path, certificate, monkeypatch):
    with running(tmp_path, tcp_port=0, **certificate) as server, ExitStack() as links:
        monkeypatch.setattr(admission, "MOST_STRANGERS", 2)
        for last in silent(server, links, 3):
            with suppress(ConnectionResetError):
                assert last.recv(100) == b""
            monkeypatch.setattr(admission, "MOST_STRANGERS", 4)


def test_a_handshake_has_its_time(tmp_path, certificate, monkeypatch):
    monkeypatch.setattr(admission, "HANDSHAKE", 0.1)
    with running(tmp_path, tcp_port=0, **certificate) as server, ExitStack() as links:
        for last in silent(server, links, 1):
            with suppress(ConnectionResetError):
                assert last.recv(100) == b""
        monkeypatch.setattr(admission, "HANDSHAKE", 60.0)
        assert server.ask("GET", "/healthz").status == 200


def test_connections_are_taken_again_where_there_were_too_many_files(monkeypatch):
    monkeypatch.setattr(admission, "NO_ROOM", 0.0)
    tried = []

    async def fail(bound):
        tried.append(bound)
        raise OSError("too many open files")

    async def run():
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", fail)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            made = admission.Handshakes(bound, *[None] * 4)
            while len(tried) < 2:
                await asyncio.sleep(0)
            made.close()
            await made.wait_closed()

    asyncio.run(run())


def test_a_certificate_that_cannot_be_used_is_told(tmp_path, certificate):
    wrong = {"certificate": certificate["certificate_key"], "certificate_key": certificate["certificate_key"]}
    with pytest.raises(DataError, match="--certificate"), running(tmp_path, **wrong):
        pass


def start(folder, *more):
    schema = folder / "schema of ticks.json"
    schema.write_text('{"price": "float"}')
    command = ["serve", "--data", str(folder / "the data"), "--schema", str(schema), "--port", "0", *more]
    return forks.python("-m", "rtfilter", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", long_but([signal.SIGTERM, signal.SIGINT], (signal.SIGTERM,)))
def test_a_signal_ends_it_in_good_order(tmp_path, number):
    server = start(tmp_path)
    line = server.stdout.readline()
    port = line.strip().rpartition(":")[2]
    with connect(f"ws://127.0.0.1:{port}/session", close_timeout=0.5) as socket:
        socket.send('{"directive": "CONNECT", "user": "ann"}')
        assert "CONNECTED" in socket.recv(timeout=60)
        second = start(tmp_path)
        said, error = second.communicate(timeout=60)
        assert (second.returncode, said) == (2, "")
        assert "another server uses" in error
        os.kill(server.pid, number)
        with suppress(Exception):
            socket.recv(timeout=60)
    out, err = server.stdout.read(), server.stderr.read()
    server.wait(60)
    server.stdout.close()
    server.stderr.close()
    assert server.returncode == 0, err
    assert "Traceback" not in err
    made = [shlex.split(line)[1:] for line in out.splitlines() if line.startswith("  rtfilter users")]
    told = []
    for words in made:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        done = forks.python("-m", "rtfilter", *words, cwd="/", **pipes)
        done.stdin.write("correct horse\n")
        told.append(done.communicate(timeout=60)[0])
        assert done.returncode == 0
    assert len(told) == 2
    assert told[1].startswith("rtf_")


def test_with_users_it_listens_where_it_is_told(tmp_path):
    database = engine(f"sqlite:///{tmp_path}/log.sqlite")
    Users(database).add("ann", Passwords().hash("the password"), ["admin"])
    database.dispose()
    with running(tmp_path, host="0.0.0.0", rate=1, connections=1) as server:
        assert server.ask("GET", "/filters", Host="example.org").status == 401
        header = "Basic " + base64.b64encode(b"ann:the password").decode()
        assert server.ask("GET", "/filters", user=None, Authorization=header).status == 200
        lines = b'{"price": 1}\n' * 11
        statuses = []
        for _ in "12":
            answer = server.ask(
                "POST", "/filters/default/events", lines, kind="application/x-ndjson", Authorization=header
            )
            statuses.append(answer.status)
        assert statuses == [202, 429]
        assert int(answer.headers["retry-after"]) > 0
