"""A client of a network of brokers, and the functions for administrators."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import BrokerMessage, EventId
from rtfilter.overlay.forwarding import WaitReason
from rtfilter.overlay.running.broker_frames import MOST_BYTES, NAME, SPARE, Codec, Hello, LinkError, call
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_settings import POINT, BrokerSettingsError, host_and_port
from rtfilter.overlay.running.client_messages import (
    Ask,
    AskSchema,
    ClientDeliver,
    ClientPublish,
    Describe,
    Description,
    Drop,
    EventArrived,
    Goodbye,
    HasSchema,
    Have,
    Hint,
    Leave,
    LinkCut,
    Refused,
    Stored,
    Switch,
    Waits,
    Want,
    Wanted,
    Welcome,
)
from rtfilter.overlay.running.links import BrokerLink, LinkLimits
from rtfilter.overlay.running.publications import require_short

WITHIN: Final = 5.0
"""Seconds within which a broker must answer a call."""
IN_FLIGHT: Final = 1000
"""Most unacknowledged publications of a client; the next one waits."""
AGAIN: Final = 1.0
"""Seconds after which a client repeats a message that its broker could not store."""
KEYS: Final = 64 * 2**20
"""Most bytes of the keys of subscriptions in a delivery."""
REMEMBERED: Final = 100_000
"""Least number of events that a client remembers to have received."""
_log = logging.getLogger(__name__)


class BrokerRefusedError(RTFilterError):
    """A broker refuses a request."""


class BrokerClient:
    """Subscribes and publishes at a broker; iterate over it for the deliveries.

    It reconnects by itself, to the first of the addresses that answers, and repeats unconfirmed messages. An
    event is delivered once to the same object, and acknowledged when you ask for the next one. At the end of
    the context, the subscriptions end, too; those of a killed program stay for a while.

    Parameters
    ----------
    addresses : sequence of str
        ``host:port`` of brokers, tried one after the other.
    name : str
        Name of the client. Brokers identify its subscriptions by it, so each client needs its own.
    key : Key
        The key of clients, or of brokers.
    hint : callable, optional
        Called with each hint about a probable mistake in an event, once: an attribute that the event type
        does not have, or a value of another type. By default it is logged as a warning.

    Examples
    --------
    ::

        async with BrokerClient(["127.0.0.1:17470"], "ann", Key.read(Path("client.key"))) as client:
            await client.subscribe("flights", "origin = 'JFK'")
            async for delivery in client:
                print(delivery.values)
    """

    def __init__(
        self, addresses: Sequence[str], name: str, key: Key, hint: Callable[[str], None] = _log.warning
    ) -> None:
        if not 0 < len(name) <= NAME or "\0" in name:
            why = f"the name of a client has from 1 to {NAME} characters, and not the character 0"
            raise BrokerSettingsError(why)
        self._addresses, self._key, self._hint = list(addresses), key, hint
        self._incarnation, self._numbers = int(1000 * time.time()), itertools.count(1)
        self._hello = Hello(KeyRole.CLIENT, name, incarnation=self._incarnation)
        self._codec = Codec(
            Welcome, Wanted, Refused, Stored, EventArrived, Waits, HasSchema, Hint, ClientDeliver, Goodbye
        )
        self._wants: dict[str, Want] = {}
        self._confirmed: dict[str, asyncio.Future[None]] = {}
        self._publishing: dict[EventId, tuple[ClientPublish, asyncio.Future[None]]] = {}
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._deliveries: asyncio.Queue[ClientDeliver | BrokerRefusedError] = asyncio.Queue()
        self._known: dict[EventId, bool] = {}  # True if acknowledged
        self._stored: set[EventId] = set()
        self._questions: dict[Ask | AskSchema, asyncio.Future[Waits | HasSchema]] = {}
        self._ended, self._error = False, ""
        self._most = MOST_BYTES  # of a message, at the last connected broker
        self._link: BrokerLink | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises `OSError`, `LinkError` and `BrokerRefusedError` if no broker accepts the client."""
        first = await self._connect()
        self._hello = msgspec.structs.replace(self._hello, again=True)
        self._task = asyncio.create_task(self._run(first))
        await asyncio.sleep(0)  # the task has the connection now, so an early close ends it
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._ended = True
        if self._link is None:
            self._task.cancel()
        else:
            self._link.send(Leave())
            self._link.end("the client ends")
        with suppress(asyncio.CancelledError):
            await self._task

    @property
    def connected(self) -> bool:
        """True if the client is connected to a broker now."""
        return self._link is not None

    @property
    def stored(self) -> int:
        """The number of this client's events that its broker stores and still sends."""
        return len(self._stored)

    @property
    def broker(self) -> str:
        """The name of the connected broker; empty if there is none."""
        return "" if self._link is None else self._link.peer.name

    async def holds(self, id: EventId) -> tuple[WaitReason, ...]:
        """Return the reasons why an unacknowledged event waits, as far as the broker of this client knows.

        Empty also without a broker, or if it does not answer soon.
        """
        answer: Waits | None = await self._ask(Ask(id))
        return () if answer is None else answer.holds

    async def schema(self, type: str) -> Schema:
        """Return the schema of an event type, from the broker.

        Raises `BrokerRefusedError` if there is no such type, or no broker answers soon.
        """
        found: HasSchema | None = await self._ask(AskSchema(type))
        if found is None:
            raise BrokerRefusedError(f"no broker sends the schema of {type!r:.60} within {WITHIN:g} s")
        if not found.schema:
            raise BrokerRefusedError(found.reason)
        return Schema.from_json(found.schema)

    async def _ask(self, question: Ask | AskSchema) -> Any:
        """Return the answer of a broker to a question; None if there is none soon."""
        answer = self._questions.get(question)
        if answer is None:
            answer = self._questions[question] = asyncio.get_running_loop().create_future()
            self._say(question)
        try:
            async with asyncio.timeout(WITHIN):
                return await asyncio.shield(answer)
        except TimeoutError:
            return None
        finally:
            self._questions.pop(question, None)

    async def subscribe(self, type: str, condition: str, key: str = "") -> str:
        """Subscribe; return the key of the subscription once the network knows it.

        Raises `BrokerRefusedError`.
        """
        self._require_going_on()
        self._require_short("the condition", len(condition.encode()))
        want = Want(key or f"{self._incarnation}.{next(self._numbers)}", type, condition)
        self._wants[want.key] = want
        done = self._confirmed[want.key] = asyncio.get_running_loop().create_future()
        self._say(want)
        await done
        return want.key

    def unsubscribe(self, key: str) -> None:
        """Remove a subscription."""
        self._wants.pop(key, None)
        self._say(Drop(key))

    async def publish(self, type: str, event: Mapping[str, Any]) -> EventId:
        """Publish an event; return its id once all receivers have it. Raises `BrokerRefusedError`."""
        id, arrived = await self.start(type, event)
        await arrived
        return id

    async def start(self, type: str, event: Mapping[str, Any]) -> tuple[EventId, asyncio.Future[None]]:
        """Publish an event; return its id at once, with a future that is done when all receivers have it.

        Raises `BrokerRefusedError` for an event that cannot be sent.
        """
        try:
            size = len(msgspec.msgpack.encode(dict(event)))
        except Exception as error:
            raise BrokerRefusedError(f"the event cannot be sent: {error}") from None
        self._require_short("the event", size)
        await self._room.acquire()
        self._require_going_on()
        id = EventId(f"client {self._hello.name}", self._incarnation, next(self._numbers))
        publish = ClientPublish(id, type, dict(event))
        arrived = asyncio.get_running_loop().create_future()
        self._publishing[id] = publish, arrived
        self._say(publish)
        return id, arrived

    async def __aiter__(self) -> AsyncIterator[ClientDeliver]:
        """Yield the deliveries. Raises `BrokerRefusedError` when the client must not reconnect."""
        while True:
            delivery = await self._deliveries.get()
            if isinstance(delivery, BrokerRefusedError):
                raise delivery
            yield delivery
            self.had(delivery)

    def had(self, delivery: ClientDeliver) -> None:
        """Acknowledge a delivery, as the iteration does when you ask for the next one."""
        self._known[delivery.id] = True
        self._say(Have(delivery.id))
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def _require_short(self, what: str, size: int) -> None:
        """Refuse a message that brokers do not accept: they would end the connection at each attempt."""
        try:
            require_short(what, size, self._most - SPARE)
        except ValueError as error:
            raise BrokerRefusedError(str(error)) from None

    def _say_all(self, link: BrokerLink) -> None:
        """Send all unconfirmed messages and unanswered questions on a new connection."""
        for question in self._questions:
            link.send(question)
        for want in self._wants.values():
            link.send(want)
        for publish, _ in list(self._publishing.values()):
            try:
                self._require_short("the event", len(msgspec.msgpack.encode(publish.values)))
            except BrokerRefusedError as error:  # an earlier broker accepted longer ones
                self._arrived(publish.id, error)
            else:
                link.send(publish)

    def _say(self, message: BrokerMessage) -> None:
        if self._link is not None:
            self._link.send(message)

    async def _connect(self) -> BrokerLink:
        """Return a link to the first broker that answers. Raises the error of the last one."""
        for address in self._addresses:
            try:
                link = await joined(address, self._hello, self._key, self._codec)
                self._most = link.peer.message
                return link
            except (OSError, LinkError) as error:
                why = error
        raise why

    async def _run(self, link: BrokerLink | None) -> None:
        tries = 0
        while not self._ended:
            if link is None:
                tries += 1
                await asyncio.sleep(random.uniform(0.5, 1) * min(0.1 * 2**tries, 3.0))
                try:
                    link = await self._connect()
                except BrokerRefusedError as error:
                    self._fail(str(error))
                except (OSError, LinkError):
                    pass
                continue
            self._link, tries = link, 0
            self._say_all(link)
            await link.run(self._hear)
            if link.final:
                self._fail(link.why)
            self._link = link = None

    def _fail(self, why: str) -> None:
        """End for good, and pass the error to all waiting callers."""
        self._ended, self._error = True, why
        self._deliveries.put_nowait(BrokerRefusedError(why))
        for done in self._confirmed.values():
            self._settle(done, BrokerRefusedError(why))
        for id in list(self._publishing):
            self._arrived(id, BrokerRefusedError(why))

    def _require_going_on(self) -> None:
        if self._error:
            raise BrokerRefusedError(self._error)

    def _hear(self, link: BrokerLink, message: BrokerMessage) -> None:
        match message:
            case ClientDeliver(id=id):
                if self._known.get(id):
                    link.send(Have(id))
                elif id not in self._known:
                    self._known[id] = False
                    self._deliveries.put_nowait(message)
            case Wanted(key=key):
                self._settle(self._confirmed.pop(key, None))
            case EventArrived(id=id):
                self._arrived(id)
            case Waits(id=id):
                self._settle(self._questions.get(Ask(id)), message)
            case HasSchema(type=asked):
                self._settle(self._questions.get(AskSchema(asked)), message)
            case Hint(text=text):
                self._hint(text)
            case Stored(id=id):
                self._stored.add(id)
            case Refused(id=None, key=key, later=True) if key in self._wants and key not in self._confirmed:
                self._say_later(self._wants[key])
            case Refused(id=EventId() as id, later=True) if id in self._stored and id in self._publishing:
                self._say_later(self._publishing[id][0])
            case Refused(id=None, key=key, reason=reason):
                self._wants.pop(key, None)
                self._settle(self._confirmed.pop(key, None), BrokerRefusedError(reason))
            case Refused(id=id, reason=reason) if id is not None:
                self._arrived(id, BrokerRefusedError(reason))

    def _say_later(self, message: Want | ClientPublish) -> None:
        """Send a message again after a while, if it is still necessary."""

        def say() -> None:
            wanted = isinstance(message, Want) and self._wants.get(message.key) is message
            if wanted or (isinstance(message, ClientPublish) and message.id in self._publishing):
                self._say(message)

        asyncio.get_running_loop().call_later(AGAIN, say)

    def _arrived(self, id: EventId, error: Exception | None = None) -> None:
        self._stored.discard(id)
        _, arrived = self._publishing.pop(id, (None, None))
        if arrived is not None:
            self._room.release()
            self._settle(arrived, error)

    @staticmethod
    def _settle(waiting: asyncio.Future[Any] | None, result: Any = None) -> None:
        if waiting is not None and not waiting.done():
            fails = isinstance(result, Exception)
            waiting.set_exception(result) if fails else waiting.set_result(result)


async def joined(address: str, hello: Hello, key: Key, codec: Codec) -> BrokerLink:
    """Return a link to the process at an address. Raises `OSError`, `LinkError` and `BrokerRefusedError`."""
    host, port = host_and_port(address)
    late = f"{address} does not answer within {WITHIN:g} seconds"
    try:
        async with asyncio.timeout(WITHIN):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        raise LinkError(late) from None
    except OSError as error:
        raise LinkError(f"{address} cannot be reached: {error.strerror or error}") from None
    own = key.of(hello.role)
    try:
        if own is None:
            raise LinkError(f"the key of a {key.role} is not enough; give the key of brokers")
        try:
            greeted = await call(reader, writer, hello, own)
        except LinkError as error:
            raise LinkError(f"{address}: {error}") from None
        if hello.role is KeyRole.CLIENT and greeted.peer.name == POINT:
            raise LinkError(f"at {address} is the rendezvous point, which serves no clients; name a broker")
        limits = LinkLimits(message=greeted.peer.message + KEYS)
        link = BrokerLink(reader, writer, greeted, codec, limits, dialled=True)
        if hello.role is KeyRole.CLIENT:
            async with asyncio.timeout(WITHIN):
                first = await link.next()
            if isinstance(first, Goodbye):
                raise (BrokerRefusedError if first.final else LinkError)(f"{address}: {first.reason}")
        return link
    except BaseException as error:
        writer.close()
        if isinstance(error, TimeoutError):
            raise LinkError(late) from None
        raise


async def asked(address: str, key: Key, question: Describe | LinkCut | Switch | None = None) -> Description:
    """Send a question to the broker at an address; return its description. Raises `LinkError`."""
    link = await joined(address, Hello(KeyRole.BROKER, "administrator"), key, Codec(Description, Goodbye))
    try:
        link.send(question or Describe())
        async with asyncio.timeout(WITHIN):
            answer = await link.next()
    except TimeoutError:
        raise LinkError(f"{address} does not answer within {WITHIN:g} seconds") from None
    except LinkError as error:
        raise LinkError(f"{address}: {error}") from None
    finally:
        await link.close("that was all")
    if isinstance(answer, Goodbye):
        raise LinkError(f"{address}: the other side says: {answer.reason[:500]}")
    assert isinstance(answer, Description)
    return answer
