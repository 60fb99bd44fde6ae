"""The server: a folder with its data, a database, and sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sqlite3
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import Any, Final, NamedTuple

import uvicorn
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.basics import sockets
from rtfilter.basics.errors import RTFilterError
from rtfilter.definition import Definition
from rtfilter.service.access import Access, UserLimits
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors import tcp
from rtfilter.service.doors.admission import Handshakes, Strangers
from rtfilter.service.doors.bodies import RequestLimits
from rtfilter.service.doors.http import application
from rtfilter.service.doors.server_metrics import FilterMetrics, PipelineCollector
from rtfilter.service.doors.timeouts import Http, Sessions
from rtfilter.service.logs import configure
from rtfilter.service.messages import DEFAULT
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import ALL, Identity
from rtfilter.service.service_errors import ConflictError
from rtfilter.service.settings import LOG, Settings
from rtfilter.service.sites.peers import Credentials
from rtfilter.service.sites.site import SiteSettings
from rtfilter.service.webhooks import Sender, Webhooks
from rtfilter.service.webhooks.signing import FILE as KEY_FILE
from rtfilter.service.webhooks.signing import ServerKey, mark
from rtfilter.store.database import DatabaseLock, VersionError, engine
from rtfilter.store.folder import InUseError, locked, make
from rtfilter.store.log import Log, TakenError
from rtfilter.store.site_table import SiteTable
from rtfilter.store.user_store import Users
from rtfilter.store.webhook_table import WebhookTable

CONNECTIONS: Final = 10_000
"""Connections for which the server raises the limit of open files."""
END_WITHIN: Final = 2.0
"""Seconds that connections have to close when the server ends, after `Settings.drain`."""
GARBAGE: Final = 20_000
"""New objects between two garbage collections: one request may create thousands."""
SWITCH: Final = 0.0005
"""Seconds after which a running thread lets a waiting one run: a tenth of Python's default."""
RELEASED: Final = 5.0
"""Seconds that PostgreSQL needs at most to notice a killed server, and to release its lock."""
LOOK: Final = 1.0
"""Seconds between two checks that the database is there, and belongs to this server."""
TAKEN: Final = "another server has this database; the server ends"
_log = logging.getLogger(__name__)


class DataError(ValueError):
    """The folder, database, files or addresses of the server cannot be used."""


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    """Make and lock the folder. After an error, a folder that is new and empty is removed."""
    new = [one for one in (path, *path.parents) if not one.exists()]
    make(path)
    try:
        lock = locked(path)
    except InUseError:
        raise DataError(f"another server uses {path}; use that one, or another folder") from None
    with lock:
        try:
            yield
        except BaseException:
            with suppress(OSError):
                for one in new:
                    (one / "lock").unlink(missing_ok=True)
                    one.rmdir()
            raise


def serve(settings: Settings, definition: Definition | None = None) -> int:
    """Serve until SIGTERM or SIGINT; `definition` is of the filter for requests that name none.

    Return the exit code: 0 after a signal; 1 if the server failed, which the log explains. Raises `DataError`
    and `OSError`.
    """
    configure(settings.log_level)
    sys.setswitchinterval(SWITCH)
    sockets.make_room(CONNECTIONS)
    os.umask(0o077)  # stored files are private, also in a folder that others may read
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, definition))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # on Windows
        return asyncio.new_event_loop
    return new_event_loop


class RunningServer(NamedTuple):
    """A server that listens."""

    settings: Settings
    pipeline: Pipeline
    port: int
    tcp_port: int | None
    end: Callable[[], None]
    """Ends the server; to be called on the event loop."""

    @property
    def address(self) -> str:
        """The URL of the server."""
        scheme = "http" if self.settings.certificate is None else "https"
        return f"{scheme}://{sockets.shown(self.settings.host)}:{self.port}"


async def _serve(
    settings: Settings, definition: Definition | None, told: Callable[[RunningServer], None] | None = None
) -> int:
    """Open the doors when the pipeline runs, and report it; return as `serve` does.

    Wrong settings are refused before anything is made.
    """
    tls = _tls(settings)
    if definition is not None:
        try:
            definition.require_whole("a server")
        except ValueError as error:
            raise DataError(f"--schema: {error}") from None
    async with AsyncExitStack() as stack:
        if settings.database is None and not (settings.data / LOG).exists():
            _require_users(settings, there=False)
        stack.enter_context(_folder(settings.data))
        http = stack.enter_context(_bound(settings.host, settings.port))
        framed = None
        if settings.tcp_port is not None:
            framed = stack.enter_context(_bound(settings.host, settings.tcp_port))
        metrics = FilterMetrics()
        pipeline, webhooks, ownership = await stack.enter_async_context(_running(settings, metrics))
        _require_users(settings, there=not pipeline.users.open)
        if pipeline.standby is None:
            _require_site(settings, ownership.database)
            await _add_default(pipeline, definition)
        strangers = Strangers(settings.proxies)
        tcp_port, sessions = None, await stack.enter_async_context(AsyncExitStack())
        if framed is not None:
            tcp_port = framed.getsockname()[1]
            make = partial(Conversation, pipeline, settings.nesting, "tcp")
            await sessions.enter_async_context(
                tcp.listen(make, framed, strangers, ssl=tls, most_bytes=settings.frame)
            )
        limits = RequestLimits(settings.body, settings.nesting)
        counts = PipelineCollector(pipeline, metrics.registry)
        app = application(pipeline, counts, limits, settings.loopback, webhooks)
        handshakes = None
        if tls is not None:
            refused = partial(pipeline.measures.refuse, "http", "limit")
            handshakes = partial(Handshakes, context=tls, come=strangers.come_over_http, refused=refused)
        config = _config(app, settings, pipeline, strangers)
        drain = partial(_drain, pipeline, settings.drain)
        server = _Server(config, drain, sessions.aclose, handshakes)
        http.listen()
        there = _identity(settings.file)  # before anyone knows of the server, and could remove it
        opened = RunningServer(settings, pipeline, http.getsockname()[1], tcp_port, server.end)

        async def watch() -> None:
            if pipeline.standby is not None:
                _greet_standby(opened)
                if not await _took_over(pipeline, webhooks, ownership, definition, server):
                    return
            if settings.site is not None:
                pipeline.join(_site(settings, opened.address), SiteTable(ownership.database))
            (told or _greet)(opened)
            checks = [_watch(pipeline, server), _watch_others(ownership, server)]
            if settings.database is None:
                checks.append(_watch_file(settings.file, there, server))
            await asyncio.gather(*checks)

        watching = asyncio.create_task(_or_fail(watch(), server))
        await asyncio.sleep(0)  # it greets
        try:
            await server.serve(sockets=[http])
        finally:
            watching.cancel()
    if pipeline.stuck:
        _log.critical("the database does not answer, and is not waited for")
        logging.shutdown()
        os._exit(1)  # its threads, which cannot be stopped, would be waited for
    return 1 if server.failed else 0


class Ownership:
    """The ownership of the database, which has one server at a time: its lock, and the mark in its log."""

    def __init__(self, database: Engine) -> None:
        self.database = database
        self.lock, self.log = DatabaseLock(database), Log(database, owner=False)

    async def begin(self, standby: bool) -> bool:
        """Take the lock, and the log with it; a standby returns False where another server has them.

        Raises `DataError` if another server has them, and this one is no standby.
        """
        end = time.monotonic() + RELEASED
        while not self.lock.take():
            if standby and self.log.follow() is not None:
                return False
            if not standby and time.monotonic() >= end:
                raise DataError(
                    "another server uses the database; use that one, another database, or --standby"
                )
            await asyncio.sleep(0.1)
        self.log.take()
        return True

    def alone(self) -> bool:
        """Return whether no other server seems to have the database; take the lock again if it was lost."""
        try:
            self.lock.take()  # fails while the lost connection still has the lock: so the log decides
            return self.log.is_owner()
        except SQLAlchemyError:
            return True


@asynccontextmanager
async def _running(
    settings: Settings, metrics: FilterMetrics
) -> AsyncIterator[tuple[Pipeline, Webhooks, Ownership]]:
    """Yield the running pipeline, or one that follows another server; the webhooks; and the ownership."""
    try:
        made = engine(settings.url, settings.durability == "power")
        ownership = Ownership(made)
        with closing(ownership.lock):
            owner, log = await ownership.begin(settings.standby), ownership.log
            table, key = WebhookTable(made), ServerKey(settings.data)
            if settings.standby:
                _share_key(table, key, owner)
            limits = UserLimits(settings.subscriptions, settings.connections, settings.rate)
            users = Access(Users(made), limits)
            kept = settings.bounds, settings.keeping
            given = log, settings.data, users, *kept, metrics.of
            pipeline = Pipeline(*given, message=settings.frame, site=settings.site or "")
            gc.disable()  # or it would look again and again at a million subscriptions,
            try:
                await (pipeline.start() if owner else pipeline.follow())
            finally:
                gc.freeze()  # as it would later, while events wait
                gc.set_threshold(GARBAGE, *gc.get_threshold()[1:])
                gc.enable()
            sender = Sender(settings.webhook_private)
            webhooks = Webhooks(table, key, pipeline, sender, settings.webhook_tries)
            try:
                if owner:
                    await webhooks.start()
                yield pipeline, webhooks, ownership
            finally:
                await webhooks.stop()
                await pipeline.stop()
                users.close()
    except VersionError as error:
        raise DataError(str(error)) from None
    except SQLAlchemyError as error:
        raise _unusable(settings, error) from error


def _unusable(settings: Settings, error: SQLAlchemyError) -> DataError:
    """Name the file of a database that cannot be used; the address of another one may have a password."""
    reason = getattr(error, "orig", None) or error
    if settings.database is not None:
        return DataError(f"the database cannot be used: {reason}")
    remedy = ""
    if type(reason) is sqlite3.DatabaseError:  # others derive from it
        remedy = "; it is damaged: rtfilter restore makes a new folder from a backup"
    elif getattr(reason, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        remedy = (
            f"; make room, as much as {settings.file.name}-wal has: {settings.data / 'indexes'} is a cache, "
            "which may be removed"
        )
    return DataError(f"the database {settings.file} cannot be used: {reason}{remedy}")


def _share_key(table: WebhookTable, key: ServerKey, owner: bool) -> None:
    """Make the key of webhooks, so that it can be copied to the other server; there it must be the same."""
    if owner:
        key.made()
        return
    mine = key.read()
    if any(mine is None or mark(mine) != webhook.key for webhook in table.read()):
        raise DataError(f"webhooks have another key: copy {KEY_FILE} from the folder of the other server")


async def _took_over(
    pipeline: Pipeline,
    webhooks: Webhooks,
    ownership: Ownership,
    definition: Definition | None,
    server: _Server,
) -> bool:
    """Return whether this server, a standby, has become the owner of the database."""
    try:
        await pipeline.take_over(ownership.lock.take)
        await _add_default(pipeline, definition)
        await webhooks.start()
    except (DataError, RTFilterError, SQLAlchemyError) as error:
        server.fail(f"the standby ends: {getattr(error, 'orig', None) or error}")
        return False
    except Exception as error:
        server.fail("the standby has failed; it ends", error)
        return False
    _log.warning("this server has taken over: the other one has ended, or has lost the database")
    return True


def _require_users(settings: Settings, there: bool) -> None:
    """Raise `DataError` if the server listens for other machines and has no users."""
    if not there and not settings.loopback:
        raise DataError(
            f"there are no users, so the server does not listen on {settings.host}; leave out --host, or "
            "first:\n" + "\n".join(_first_user(settings))
        )


def _require_site(settings: Settings, database: Engine) -> None:
    """Raise `DataError` if the folder or database is of another site; note the name of this one.

    Raises `OSError` if the file of its password cannot be read.
    """
    if settings.site is None:
        return
    table = SiteTable(database)
    found = (table.get("name") or settings.site.encode()).decode()
    if found != settings.site:
        raise DataError(
            f"this is the data of the site {found}, whose events other sites know by that name; "
            f"start it with --site {found}, or {settings.site} with other --data"
        )
    _ = settings.password
    table.put("name", found.encode())


def _first_user(settings: Settings) -> list[str]:
    lines = []
    if settings.database is not None:
        lines.append("  export RTFILTER_DATABASE=...  # the address of the server's database")
    users = f"  rtfilter users --data {quote(str(settings.data.absolute()))}"
    return [*lines, f"{users} add admin --role admin", f"{users} token admin"]


async def _add_default(pipeline: Pipeline, definition: Definition | None) -> None:
    everyone = Identity("", ALL)
    if definition is None:
        return
    key = None
    there = next((one.info for one in pipeline.filters.all() if one.info.name == DEFAULT), None)
    if there is not None and definition == Definition(definition.schema):  # it says nothing of the matching
        if there.schema.added_to(definition.schema) is not None:
            return  # attributes may have been added since the schema was written
        definition, key = replace(there.definition, schema=definition.schema), there.key
    try:
        await pipeline.filters.add(everyone, DEFAULT, definition, key)
    except ConflictError as error:
        raise DataError(f"{error}; leave out --schema, or use another folder") from None


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the context of TLS, or None without files. Raises `DataError` if they cannot be used."""
    if settings.certificate is None or settings.certificate_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (settings.certificate, settings.certificate_key):
        path.open("rb").close()  # an error names the file, which that of `load_cert_chain` does not
    try:
        context.load_cert_chain(settings.certificate, settings.certificate_key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise DataError(f"--certificate and --certificate-key cannot be used: {error}") from None
    return context


def _bound(host: str, port: int) -> socket.socket:
    try:
        return sockets.bound(host, port)
    except OSError as error:
        raise DataError(str(error)) from None


def _config(app: Any, settings: Settings, pipeline: Pipeline, strangers: Strangers) -> uvicorn.Config:
    given = pipeline.measures, pipeline.rounds, strangers
    return uvicorn.Config(
        app,
        http=partial(Http, *given),  # type: ignore[arg-type]  # it is only called
        ws=partial(Sessions, *given),  # type: ignore[arg-type]
        ws_max_size=settings.frame,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_graceful_shutdown=int(END_WITHIN),
    )


async def _drain(pipeline: Pipeline, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await pipeline.drain()
    except TimeoutError:
        _log.warning("not all was sent within %g seconds; the rest is sent after the next start", seconds)


class _Server(uvicorn.Server):
    """A server that ends in good order at a signal; `failed` is set if it had to end.

    It calls `drain` first when it ends in good order, and `close` while it closes its connections. With TLS,
    `handshakes` makes the `Handshakes` of a socket and a factory of protocols.
    """

    failed = False

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
        handshakes: Callable[..., Handshakes] | None = None,
    ) -> None:
        super().__init__(config)
        self._drain, self._close, self._handshakes, self._told = drain, close, handshakes, False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections from these sockets."""
        if self._handshakes is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for bound in sockets or []:
            self.servers.append(self._handshakes(bound=bound, make=self._made))  # type: ignore[arg-type]

    def _made(self) -> asyncio.BaseProtocol:
        """Return the protocol of a connection, as uvicorn makes it."""
        config, state = self.config, self.server_state
        made: asyncio.BaseProtocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=state, app_state=self.lifespan.state
        )
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was begun, then close all connections."""
        if not self.failed:
            await self._drain()
        taken = None if self._handshakes else sockets  # others are closed once nothing waits at them
        await asyncio.gather(self._close(), super().shutdown(taken))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the server; at a second signal at once, which loses no more than a crash: nothing answered."""
        if self._told:
            signal.signal(sig, signal.SIG_DFL)
            os.kill(os.getpid(), sig)
        self._told = True
        self.end()

    def end(self) -> None:
        """End the server soon."""
        self.should_exit = True

    def fail(self, why: str, error: BaseException | None = None) -> None:
        """Log a failure, and end the server soon."""
        _log.critical(why, exc_info=error)
        self.failed = True
        self.end()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that end a server."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _site(settings: Settings, here: str) -> SiteSettings:
    assert settings.site is not None
    address = settings.address or here
    return SiteSettings(
        settings.site,
        settings.cluster or settings.site,
        address,
        settings.rendezvous or address,
        Credentials(settings.site, settings.password),
        settings.strategy,
        settings.assigned,
        settings.heartbeat,
        settings.slack,
    )


async def _or_fail(work: Awaitable[None], server: _Server) -> None:
    """End the server where work of its own fails."""
    try:
        await work
    except Exception as error:
        server.fail("the server has failed; it ends", error)


async def _watch(pipeline: Pipeline, server: _Server) -> None:
    """End the server when a stage ends: it would answer, and deliver nothing."""
    error = await pipeline.died()
    if isinstance(error, TakenError):
        server.fail(TAKEN)
    else:
        server.fail("a stage of the pipeline has failed; the server ends", error)


async def _watch_file(file: Path, before: tuple[int, int] | None, server: _Server) -> None:
    """End the server when its database file is removed: SQLite would continue with a file without a name."""
    while _identity(file) == before:
        await asyncio.sleep(LOOK)
    server.fail(f"{file} was removed, moved or replaced while it was in use; the server ends")


async def _watch_others(ownership: Ownership, server: _Server) -> None:
    """End the server when another one has its database, as it may after PostgreSQL was started again."""
    while await asyncio.to_thread(ownership.alone):
        await asyncio.sleep(LOOK)
    server.fail(TAKEN)


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _greet_standby(opened: RunningServer) -> None:
    print(f"standing by at {opened.address}: another server has the database", flush=True)


def _greet(opened: RunningServer) -> None:
    settings = opened.settings
    host = sockets.shown(settings.host)
    lines = [f"serving {settings.data} at {opened.address}"]
    if opened.tcp_port is not None:
        lines.append(f"sessions over TCP at {host}:{opened.tcp_port}")
    if not opened.pipeline.filters.all():
        lines.append("there is no filter yet: give --schema, or PUT /filters/NAME")
    if opened.pipeline.users.open:
        lines.append(
            "there are no users: everyone is who they say they are, and admin may do all; to change that:"
        )
        lines += _first_user(settings)
    print("\n".join(lines), flush=True)
    if not settings.loopback and settings.certificate is None:
        _log.warning("passwords and tokens are not encrypted: give --certificate, or use a proxy with TLS")
