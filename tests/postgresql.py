"""A PostgreSQL server of a test's own, in a folder, which nobody else reaches."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path


def program(name):
    """Where a program of PostgreSQL is: on Debian servers lie beside the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(path / name) for path in places if (path / name).exists()), None)


HERE = all(program(name) for name in ("initdb", "pg_ctl", "postgres"))


@contextmanager
def server():
    """Start a server; gives the DSN of its database. As root it runs as postgres, or nobody."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a short name: sockets lie there
    own: dict = {}
    if os.getuid() == 0:
        users = {user.pw_name for user in pwd.getpwall()}
        name = "postgres" if "postgres" in users else "nobody"
        shutil.chown(folder, name)
        own = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **own}
    data, options = folder / "data", f"-k {folder} -c listen_addresses= -c fsync=off"
    try:
        subprocess.run([program("initdb"), "-D", data, "-U", "rtfilter", "-A", "trust"], **quiet)
        subprocess.run([program("pg_ctl"), "-D", data, "-w", "-o", options, "start"], **quiet)
        try:
            yield f"host={folder} user=rtfilter dbname=postgres"
        finally:
            subprocess.run([program("pg_ctl"), "-D", data, "-m", "immediate", "stop"], **quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
