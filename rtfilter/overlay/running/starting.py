"""Start of a process, which runs until a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, closing

from sqlalchemy import Engine

from rtfilter.basics import sockets
from rtfilter.definition import Definition
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_process import BrokerProcess
from rtfilter.overlay.running.broker_settings import POINT, BrokerSettings, BrokerSettingsError, PointSettings
from rtfilter.overlay.running.links import BROKERS, STRANGERS
from rtfilter.overlay.running.point_process import PointProcess
from rtfilter.overlay.running.process import Process
from rtfilter.store.broker_store import BrokerStore, OwnedError
from rtfilter.store.database import engine
from rtfilter.store.folder import locked, make

_log = logging.getLogger(__name__)


async def run(
    settings: BrokerSettings | PointSettings, types: Mapping[str, Definition], started: Callable[[str], None]
) -> int:
    """Run a process until a signal; return the exit code.

    `types` are the event types of a broker; `started` is called with the address when others can connect.
    Raises `RTFilterError`, `OSError` and `SQLAlchemyError`.
    """
    key = Key.read(settings.key)
    if key.of(KeyRole.BROKER) is None:
        raise BrokerSettingsError(f"{settings.key} has the key of {key.role}s; give the key of the network")
    connections = BROKERS + STRANGERS
    if isinstance(settings, BrokerSettings):
        settings.require(types)
        connections += settings.client_limits.clients
    if most := sockets.make_room(connections):
        _log.warning(
            "this process may have %d files open, and %d connections need more; others are not taken then. "
            "Raise the limit: ulimit -n, or LimitNOFILE of systemd",
            most,
            connections,
        )
    async with AsyncExitStack() as stack:
        make(settings.data)
        stack.enter_context(locked(settings.data))
        bound = stack.enter_context(closing(sockets.bound(settings.host, settings.port)))
        address = f"{sockets.shown(settings.host)}:{bound.getsockname()[1]}"
        database = engine(settings.url)
        stack.callback(database.dispose)
        process: Process
        if isinstance(settings, BrokerSettings):
            address = settings.address or address
            store = _store(settings, database, settings.name)
            schemas = {name: one.schema for name, one in types.items()}
            matchers = {name: one.matcher for name, one in types.items() if one.matcher is not None}
            process = BrokerProcess(settings, schemas, key, store, address, matchers)
        else:
            process = PointProcess(settings, key, _store(settings, database, POINT), address)
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, process.end)
        return await process.run(bound, lambda: started(address))


def _store(settings: BrokerSettings | PointSettings, database: Engine, name: str) -> BrokerStore:
    """Return the store of a process. Raises `BrokerSettingsError` if another process has its folder."""

    def named(one: str) -> str:
        return "the rendezvous point" if one == POINT else f"broker {one}"

    try:
        return BrokerStore(database, name, settings.shared)
    except OwnedError as error:
        owners = " and of ".join(map(named, error.owners))
        raise BrokerSettingsError(
            f"--data {settings.data} is the folder of {owners}; give {named(name)} one of its own"
        ) from None
