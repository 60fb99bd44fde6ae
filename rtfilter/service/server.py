"""The server: a folder with its data, and a socket."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import uvicorn

from rtfilter.events.schema import Schema
from rtfilter.service.conversation import DEFAULT
from rtfilter.service.doors.http import MOST_BYTES, application
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import ALL, Identity
from rtfilter.store.database import engine
from rtfilter.store.log import Log


class DataError(ValueError):
    """A folder of data that cannot be served."""


def settled_schema(folder: Path, schema: Schema | None) -> Schema:
    """The schema of a folder: the one that was given first, and is kept there.

    Raises
    ------
    DataError
        There is none, or another.
    """
    path = folder / "schema.json"
    if path.exists():
        kept = Schema.from_json(json.loads(path.read_text()))
        if schema is not None and schema != kept:
            raise DataError(f"{path} is another schema; leave out --schema, or use another folder")
        return kept
    if schema is None:
        raise DataError(f"{folder} has no schema yet: give one with --schema, such as {{'price': 'float'}}")
    folder.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(schema.to_json()))
    aside.replace(path)
    return schema


def locked(folder: Path) -> AbstractContextManager[object]:
    """Keep other servers out of a folder, until this process ends. Raises `DataError`."""
    try:
        import fcntl
    except ImportError:
        return nullcontext()
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DataError(f"another server uses {folder}") from None
    return file


def serve(folder: Path, schema: Schema | None, port: int) -> None:
    """Serve a folder on the loopback until interrupted.

    Raises
    ------
    DataError, OSError
    """
    schema = settled_schema(folder, schema)
    with locked(folder), socket.create_server(("127.0.0.1", port)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"

        async def make() -> Pipeline:
            pipeline = Pipeline(Log(engine(f"sqlite:///{folder / 'log.sqlite'}")), folder)
            await pipeline.start()
            await pipeline.add_filter(Identity("", ALL), DEFAULT, schema)
            return pipeline

        app = application(make, lambda: print(f"serving {folder} at {address}", flush=True))
        config = uvicorn.Config(app, log_level="warning", ws="websockets-sansio", ws_max_size=MOST_BYTES)
        uvicorn.Server(config).run(sockets=[listening])
