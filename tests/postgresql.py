"""A PostgreSQL server of a test's own, in a folder, which nobody else reaches."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path


def program(name):
    """Where a program of PostgreSQL is: on Debian servers lie beside the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(path / name) for path in places if (path / name).exists()), None)


HERE = all(program(name) for name in ("initdb", "pg_ctl", "postgres"))


def smoke(test):
    """Let the short form of a test run on PostgreSQL, too; together such tests use each statement once."""
    test.on_postgresql = True
    return test


class Server:
    """A server that can be stopped and started again; as root it runs as postgres, or nobody.

    Attributes
    ----------
    dsn, url : str
        Of its database, for libpq and for SQLAlchemy.
    """

    def __init__(self, folder):
        self._data = folder / "data"
        own: dict = {}
        if os.getuid() == 0:
            users = {user.pw_name for user in pwd.getpwall()}
            name = "postgres" if "postgres" in users else "nobody"
            shutil.chown(folder, name)
            own = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
        self._quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **own}
        self._options = f"-k {folder} -c listen_addresses= -c fsync=off"
        self.dsn = f"host={folder} user=rtfilter dbname=postgres"
        self.url = f"postgresql+psycopg://rtfilter@/postgres?host={folder}"
        self._run("initdb", "-U", "rtfilter", "-A", "trust")

    def _run(self, name, *given):
        subprocess.run([program(name), "-D", self._data, *given], check=True, **self._quiet)

    def start(self):
        self._run("pg_ctl", "-w", "-o", self._options, "start")

    def stop(self):
        """End it as a crash would."""
        self._run("pg_ctl", "-m", "immediate", "stop")

    def signal(self, number):
        """Send a signal to the server and to all its processes."""
        first = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for one in (first, *map(int, children)):
            with suppress(ProcessLookupError):  # one of them may just have ended
                os.kill(one, number)


@contextmanager
def running():
    """A server that runs; it may be stopped in the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a short name: sockets lie there
    try:
        made = Server(folder)
        made.start()
        try:
            yield made
        finally:
            with suppress(subprocess.CalledProcessError):
                made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server():
    """Start a server; gives the DSN of its database."""
    with running() as made:
        yield made.dsn
