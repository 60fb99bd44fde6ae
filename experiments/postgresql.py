"""A private PostgreSQL server in a folder, for experiments and tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def program(name: str) -> str | None:
    """Return the path of a PostgreSQL program, or None. Debian's servers lie outside the PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next((str(path / name) for path in places if (path / name).exists()), None)


def here() -> bool:
    """Return whether PostgreSQL is installed."""
    return all(program(name) for name in ("initdb", "pg_ctl", "postgres"))


@contextmanager
def server(*settings: str) -> Iterator[str]:
    """Start a server, with settings such as ``jit=off``; gives its DSN. Root runs it as another user."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a short name: sockets lie there
    own: dict[str, Any] = {}
    if os.getuid() == 0:
        users = {user.pw_name for user in pwd.getpwall()}
        name = "postgres" if "postgres" in users else "nobody"
        shutil.chown(folder, name)
        own = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    own |= {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    initdb, control = str(program("initdb")), [str(program("pg_ctl")), "-D", str(folder / "data")]
    given = " ".join(f"-c {one}" for one in ("listen_addresses=", "fsync=off", *settings))
    try:
        subprocess.run([initdb, "-D", folder / "data", "-U", "rtfilter", "-A", "trust"], **own)
        subprocess.run([*control, "-w", "-o", f"-k {folder} {given}", "start"], **own)
        try:
            yield f"host={folder} user=rtfilter dbname=postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **own)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
