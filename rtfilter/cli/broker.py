"""``rtfilter broker``: brokers in a network, and their clients."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rtfilter.cli.arguments import port, positive, some_path
from rtfilter.cli.terminal import CommandError, say, show

if TYPE_CHECKING:
    from rtfilter.overlay.broker_names import EventId
    from rtfilter.overlay.running.broker_client import BrokerClient
    from rtfilter.overlay.running.broker_keys import Key
    from rtfilter.overlay.running.client_messages import ClientDeliver, Description

NO_SETTINGS = ("command", "action", "settings")
STRATEGIES = "profile_forwarding", "event_forwarding", "rendezvous", "hybrid", "hierarchical"
"""The names of `rtfilter.overlay.strategies`, repeated because the help must not import its packages."""
PATIENCE = 2.0
"""Seconds after which a command reports what it waits for."""
UNCONNECTED = "waiting for a broker: there is no connection, and it is tried again"
ALL = "waiting until all receivers have the events; the broker has stored them, and goes on trying"
REST = "; what follows it may not be published either"
T = TypeVar("T")
PICTURES = ".png", ".svg", ".pdf"
COMMON = (
    ("--settings", some_path, "FILE", "TOML with what no flag says, by the same names"),
    ("--key", str, "FILE", "of the network"),
    ("--data", str, "DIR", "folder with what is kept; RTFILTER_DATABASE may name a PostgreSQL"),
    ("--host", str, "NAME", "where to listen (default: 127.0.0.1)"),
    ("--port", port, None, "where to listen (default: any that is free)"),
    ("--heartbeat", float, "SECONDS", "between signs of life (default: 1)"),
    ("--missed", positive, "N", "heartbeats until one is taken for dead (default: 3)"),
    ("--message", positive, "BYTES", "most of a message, the same at all brokers (default: 16 MiB)"),
    ("--waiting", positive, "BYTES", "most that wait for a neighbour (default: 16 MiB)"),
    ("--metrics-port", port, "PORT", "of metrics for Prometheus (default: none)"),
    ("--log-level", str, "LEVEL", "debug, info, warning or error (default: info)"),
)
"""The flags of a broker and of the rendezvous point: name, type, placeholder and help."""
OF_A_BROKER = (
    ("--name", str, None, "of the broker, unique in the network"),
    ("--cluster", str, "NAME", "of brokers on one local network (default: its name)"),
    (
        "--schema",
        str,
        "SCHEMA",
        "attribute types of each event type, the same at all brokers; or for one of them an object with "
        'these as "schema" and a "matcher": JSON, or a file of it',
    ),
    ("--rendezvous", str, "HOST:PORT", "of the rendezvous point"),
    ("--address", str, "HOST:PORT", "where others reach it (default: where it listens)"),
    (
        "--strategy",
        str,
        "NAME",
        f"how to route, the same at all brokers: {', '.join(STRATEGIES)} (default: hybrid)",
    ),
    (
        "--choose-every",
        float,
        "SECONDS",
        "change to the strategy that costs least, as measured for so long (default: never)",
    ),
    (
        "--slack",
        float,
        "SHARE",
        "of a box that may be empty where one is told for many near ones (default: each is told)",
    ),
    ("--group", str, "ADDRESS:PORT", "multicast of the cluster (default: none)"),
    ("--interface", str, "ADDRESS", "own address on the network of the group (default: any)"),
    ("--children", positive, "N", "most clusters below this one (default: 8)"),
    ("--grace", float, "SECONDS", "that lost neighbours are waited for (default: 15)"),
    (
        "--again",
        float,
        "SECONDS",
        "until an event is sent again; later ever more seldom, down to a fifth as often (default: 2)",
    ),
    ("--linger", float, "SECONDS", "that absent clients are known (default: 30)"),
)
REPEATED = (
    (
        "--rendezvous-for",
        "rendezvous_for",
        "TYPE=CLUSTER",
        "where events of a type meet while the strategy is rendezvous, the same at all brokers; may be "
        "given several times (default: at the root)",
    ),
    (
        "--peer",
        "peers",
        "NAME=HOST:PORT",
        "another broker of the cluster, where there is no multicast; may be given several times",
    ),
)
"""The flags of a broker that may be given several times: name, name of the setting, placeholder and help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Brokers in a network: subscribe at one, publish at another. They form a tree that heals itself;\n"
        "a rendezvous point tells them where to begin. All share a key, and clients have a lesser one."
    )
    parser.epilog = (
        "examples, each process in a terminal of its own:\n"
        "  rtfilter broker key network.key\n"
        "  rtfilter broker key client.key --of network.key\n"
        "  rtfilter broker rendezvous --key network.key --data point --port 17470\n"
        "  rtfilter broker run --name paris --key network.key --data paris --port 17471 --schema types.json "
        "--rendezvous 127.0.0.1:17470\n"
        "  rtfilter broker run --name tokyo --key network.key --data tokyo --port 17472 --schema types.json "
        "--rendezvous 127.0.0.1:17470\n"
        '  rtfilter broker subscribe trades "price < 10" --at 127.0.0.1:17471 --name ann --key client.key\n'
        "  rtfilter broker publish trades trades.jsonl --at 127.0.0.1:17472 --name bob --key client.key\n"
        "  rtfilter broker map --at 127.0.0.1:17470 --key network.key --out tree.png\n"
        "  rtfilter broker cut paris --at 127.0.0.1:17472 --key network.key\n"
        "  rtfilter broker heal paris --at 127.0.0.1:17472 --key network.key\n"
        "  rtfilter broker switch event_forwarding --at 127.0.0.1:17470 --key network.key\n\n"
        "types.json holds the event types, the same at all brokers:\n"
        '  {"trades": {"symbol": "str", "price": "float"}}\n'
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )

    key = action("key", "make a key for a network, or that of its clients").add_argument
    key("file", metavar="FILE", type=some_path, help="to write to; it must not exist")
    key("--of", metavar="FILE", type=some_path, help="key of the network whose clients' it is")
    run = action("run", "run a broker")
    for flag, kind, metavar, summary in (*COMMON, *OF_A_BROKER):
        run.add_argument(flag, type=kind, metavar=metavar, help=summary)
    for flag, name, metavar, summary in REPEATED:
        run.add_argument(flag, dest=name, action="append", metavar=metavar, help=summary)
    point = action("rendezvous", "run the rendezvous point, which knows the root of the tree")
    for flag, kind, metavar, summary in COMMON:
        point.add_argument(flag, type=kind, metavar=metavar, help=summary)
    subscribe = action("subscribe", "subscribe, and show what is delivered as JSON lines").add_argument
    publish = action("publish", "publish events; ends when all receivers have them").add_argument
    for add in (subscribe, publish):
        add("type", metavar="TYPE", help="of the events")
    subscribe("condition", metavar="CONDITION", help="what its events must satisfy, in SQL")
    subscribe("--count", type=positive, metavar="N", help="end after so many (default: never)")
    publish("file", metavar="FILE", nargs="?", default="-", help="of events, as rtfilter match reads them")
    summary = "attribute types, JSON or a file of it; by default the broker's. They decide how CSV is read"
    publish("--schema", metavar="SCHEMA", help=summary)
    summary = "of a broker; may be given several times, to be tried in turn"
    for add in (subscribe, publish):
        add("--at", action="append", required=True, metavar="HOST:PORT", help=summary)
        add("--name", required=True, help="your name, which no other client has")
        add("--key", metavar="FILE", required=True, type=some_path, help="of clients")
    mapped = action("map", "show the tree, with its loads").add_argument
    mapped("--out", metavar="FILE", type=some_path, help="of a picture, .png, .svg or .pdf")
    cut = action("cut", "let a broker talk to another one no more, as if the network between them was cut")
    heal = action("heal", "let it talk to that one again").add_argument
    for add in (cut.add_argument, heal):
        add("broker", metavar="BROKER", help="name of the other one")
        add("--at", metavar="HOST:PORT", required=True, help="of the broker that is told")
    switch = action("switch", "have the network route by another strategy, while it runs").add_argument
    switch("strategy", metavar="STRATEGY", help=f"one of {', '.join(STRATEGIES)}")
    for add in (mapped, switch):
        add("--at", metavar="HOST:PORT", required=True, help="of any broker, or of the rendezvous")
    for add in (mapped, cut.add_argument, heal, switch):
        add("--key", metavar="FILE", required=True, type=some_path, help="of the network")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 if a broker ended with an error."""
    from rtfilter.basics.errors import RTFilterError

    try:
        found = _ACTIONS[arguments.action](arguments)
        return asyncio.run(_until_told(found)) if asyncio.iscoroutine(found) else found
    except RTFilterError as error:
        raise CommandError(str(error)) from None


async def _until_told(work: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine until it ends or SIGTERM arrives, which cancels it; return the exit code."""
    loop, task, told = asyncio.get_running_loop(), asyncio.ensure_future(work), []

    def end() -> None:
        told.append(signal.SIGTERM)
        task.cancel()

    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or no main thread
        loop.add_signal_handler(signal.SIGTERM, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        say("ended by a signal")
        return 128 + signal.SIGTERM


def _key(arguments: argparse.Namespace) -> int:
    from rtfilter.overlay.running.broker_keys import Key, KeyRole

    network = Key.new() if arguments.of is None else Key.read(arguments.of)
    if network.of(KeyRole.BROKER) is None:
        raise CommandError(f"{arguments.of} has the key of {network.role}s; give the key of the network")
    key = network if arguments.of is None else network.of(KeyRole.CLIENT)
    assert key is not None
    try:
        key.write(arguments.file)
    except FileExistsError:
        raise CommandError(
            f"{arguments.file} exists already; take another name, or remove it first"
        ) from None
    say(f"wrote {arguments.file}: the key of {key.role}s")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from sqlalchemy.exc import SQLAlchemyError

    from rtfilter.overlay.running.broker_settings import BrokerSettings, PointSettings, event_types, settings
    from rtfilter.overlay.running.starting import run as run_process

    flags = {name: value for name, value in vars(arguments).items() if name not in NO_SETTINGS}
    kind: type[BrokerSettings | PointSettings] = (
        BrokerSettings if arguments.action == "run" else PointSettings
    )
    told = settings(kind, arguments.settings, **flags)
    logging.basicConfig(
        level=told.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    types = event_types(told.schema) if isinstance(told, BrokerSettings) else {}
    who = told.name if isinstance(told, BrokerSettings) else "the rendezvous point"
    try:
        listens = run_process(told, types, lambda address: _show_now(f"{who} listens at {address}"))
        return asyncio.run(listens)
    except SQLAlchemyError as error:
        raise CommandError(f"the database cannot be used: {getattr(error, 'orig', None) or error}") from None


async def _subscribe(arguments: argparse.Namespace) -> int:
    from rtfilter.overlay.running.broker_client import BrokerClient

    async with BrokerClient(arguments.at, arguments.name, _read(arguments)) as client:

        async def waits() -> dict[str, str]:
            return {"waiting until all brokers that must know the subscription do": ""}

        async with _telling(client, waits):
            await client.subscribe(arguments.type, arguments.condition, arguments.condition)
        say("subscribed")
        count = 0
        async for delivery in client:
            _show_now(_line(delivery))
            count += 1
            if count == arguments.count:
                client.had(delivery)
                break
    return 0


def _show_now(text: str) -> None:
    """Print a result, and flush it, so that the reader of a pipe sees it at once."""
    show(text)
    sys.stdout.flush()


def _line(delivery: ClientDeliver) -> str:
    event = {"id": list(delivery.id), "type": delivery.type, "event": delivery.values}
    return json.dumps(event, ensure_ascii=False, default=str)


async def _publish(arguments: argparse.Namespace) -> int:
    from rtfilter.basics.errors import FileError
    from rtfilter.basics.text import numbered
    from rtfilter.cli.connecting import open_frames
    from rtfilter.cli.schemas import read_schema
    from rtfilter.overlay.running.broker_client import BrokerClient, BrokerRefusedError
    from rtfilter.reading import files

    count = had = 0
    loop = asyncio.get_running_loop()
    places: dict[asyncio.Future[None], _Sent] = {}  # events without acknowledgement
    refused: list[tuple[int, str]] = []  # the number of events before each, and the reason
    first_refused: asyncio.Future[None] = loop.create_future()
    form = files.check(arguments.file)
    live = form != "parquet"  # single rows of Parquet are slow
    given = None if arguments.schema is None else read_schema(arguments.schema)
    key = _read(arguments)

    async def waits() -> dict[str, str]:
        if refused:
            return {f"{refused[0][1]}; waiting for the events that were sent beside it": ""}
        if not places or loop.time() < next(iter(places.values())).since + PATIENCE:
            return {}
        if client.stored < len(places):
            return {"waiting for the broker to store events": ""}
        first, broker = next(iter(places.values())), client.broker
        whom = {
            f"{first.place}: {broker} waits for {hold.what}": f", for {hold.seconds:.0f} s"
            for hold in await client.holds(first.id)
        }
        return {ALL: "", **whom}

    async def all_of_them() -> None:
        nonlocal count
        async for frame in frames:
            for event, place in zip(frame.events, frame.places, strict=True):
                try:
                    id, arrived = await client.start(arguments.type, event)
                except BrokerRefusedError as error:
                    refused.append((count, f"{place}: {error}"))
                    return
                places[arrived] = _Sent(place, id, loop.time(), count)
                arrived.add_done_callback(done)
                count += 1

    def done(arrived: asyncio.Future[None]) -> None:
        nonlocal had
        sent = places.pop(arrived)
        error = None if arrived.cancelled() else arrived.exception()
        if error is None:
            had += 1
            return
        refused.append((sent.number, f"{sent.place}: {error}"))
        if not first_refused.done():
            first_refused.set_result(None)

    async with BrokerClient(arguments.at, arguments.name, key, say) as client:
        if given is None and form == "csv":  # other files have types
            given = await client.schema(arguments.type)
        try:
            frames = _read_beside(open_frames(arguments.file, given if form == "csv" else None, live))
        except FileError as error:  # in the header, or while types are inferred
            raise CommandError(f"{error}; {_published(0, 0)}") from None
        async with _telling(client, waits):
            publishing = asyncio.create_task(all_of_them())
            await asyncio.wait([publishing, first_refused], return_when=asyncio.FIRST_COMPLETED)
            publishing.cancel()
            await asyncio.wait([publishing])
            while places:  # so that each event has an answer before the command ends
                await asyncio.wait(places)
        if refused:
            before, why = min(refused)
            raise CommandError(f"{why}{REST}; {_published(before, had - before)}")
        try:
            await publishing
        except FileError as error:  # a line is no event
            raise CommandError(f"{error}; {_published(had, 0)}") from None
    say(f"published {numbered(count, 'event')}; all receivers have them")
    return 0


class _Sent(NamedTuple):
    """An unacknowledged event: its place in the file, id, start, and the number of events before it."""

    place: str
    id: EventId
    since: float
    number: int


def _published(before: int, after: int) -> str:
    """Return the number of acknowledged events before and after a refused one, as text."""
    if not before and not after:
        return "no event was published"
    return f"events published before it: {before:,}, after it: {after:,}; all receivers have them"


async def _read_beside(frames: Iterator[T]) -> AsyncIterator[T]:
    """Read in another thread, so that other tasks go on; a cancelled read may still wait for input."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[T | Exception | None] = asyncio.Queue()
    room = Semaphore(2)

    def give(what: T | Exception | None) -> None:
        with suppress(RuntimeError):  # the reader is cancelled
            loop.call_soon_threadsafe(queue.put_nowait, what)

    def read() -> None:
        end: Exception | None = None
        try:
            for frame in frames:
                room.acquire()
                give(frame)
        except Exception as error:
            end = error
        give(end)

    Thread(target=read, daemon=True).start()
    while (found := await queue.get()) is not None:
        if isinstance(found, Exception):
            raise found
        yield found
        room.release()


@asynccontextmanager
async def _telling(
    client: BrokerClient, waits: Callable[[], Awaitable[dict[str, str]]]
) -> AsyncIterator[None]:
    """Report every few seconds what the command waits for, if that has changed.

    `waits` returns what is missing, by name, each with the text that follows the name.
    """

    async def tell() -> None:
        said: dict[str, str] = {}
        while True:
            await asyncio.sleep(PATIENCE)
            now = await waits() if client.connected else {UNCONNECTED: ""}
            for what, more in now.items():
                if what not in said:
                    say(what + more)
            said = now

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()


async def _map(arguments: argparse.Namespace) -> int:
    from rtfilter.overlay.running.map import as_text, draw, survey

    if arguments.out is not None and arguments.out.suffix.lower() not in PICTURES:
        raise CommandError(f"{arguments.out}: a picture is a .png, .svg or .pdf")
    found = await survey(arguments.at, _read(arguments))
    if not found.brokers and not found.silent:
        say(f"there is no tree yet: {arguments.at} knows no designated broker; try again soon")
        return 0
    if arguments.out is None:
        show(as_text(found))
    else:
        draw(found, arguments.out)
        say(f"wrote {arguments.out}")
    if found.root is None:
        say("no designated broker of the root answers now; try again soon")
    return 0


async def _cut(arguments: argparse.Namespace) -> int:
    from rtfilter.overlay.running.broker_client import asked
    from rtfilter.overlay.running.client_messages import LinkCut

    key, name, heal = _read(arguments), arguments.broker, arguments.action == "heal"
    before = await asked(arguments.at, key)
    if heal and name not in before.refused:
        say(f"nothing to heal: {before.itself.name} was not cut off from {name!r}")
    elif not heal and not await _is_known(name, before, arguments.at, key):
        say(f"{before.itself.name} knows no broker {name!r}; it will refuse one of this name")
    found = await asked(arguments.at, key, LinkCut(name, heal))
    refused = ", ".join(found.refused)
    say(f"{found.itself.name} " + (f"does not talk to: {refused}" if refused else "talks to all"))
    return 0


async def _is_known(name: str, told: Description, at: str, key: Key) -> bool:
    """Return whether a broker knows a name, by its description, or by a search in its network."""
    from rtfilter.overlay.running.broker_settings import POINT
    from rtfilter.overlay.running.map import survey

    if name in (POINT, *told.refused) or name in {one.name for one in (*told.members, *told.links)}:
        return True
    found = await survey(at, key)
    return name in found.brokers or name in found.silent


async def _switch(arguments: argparse.Namespace) -> int:
    from rtfilter.overlay.running.broker_client import asked
    from rtfilter.overlay.running.client_messages import Switch
    from rtfilter.overlay.running.map import survey

    key, name = _read(arguments), arguments.strategy
    found = await survey(arguments.at, key)
    if found.root is None:
        raise CommandError(f"{arguments.at} knows no designated broker of the root; try again soon")
    await asked(found.root.itself.address, key, Switch(name))
    told = ""
    while others := sorted(one for one, by in found.strategies.items() if by != name):
        waits = f"waiting until all brokers route by {name}: {', '.join(others)} not yet"
        if waits != told:
            say(waits)
        told = waits
        await asyncio.sleep(0.2)
        found = await survey(arguments.at, key)
    say(f"all {len(found.brokers)} brokers that answer route by {name}")
    return 0


def _read(arguments: argparse.Namespace) -> Key:
    from rtfilter.overlay.running.broker_keys import Key

    return Key.read(Path(arguments.key))


_ACTIONS: dict[str, Callable[[argparse.Namespace], int | Coroutine[Any, Any, int]]] = {
    "key": _key,
    "run": _run,
    "rendezvous": _run,
    "subscribe": _subscribe,
    "publish": _publish,
    "map": _map,
    "cut": _cut,
    "heal": _cut,
    "switch": _switch,
}
