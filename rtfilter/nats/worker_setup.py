"""The connection, the streams, the bucket and the consumer: all that a worker needs before it starts."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.errors import Error
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, BucketNotFoundError, KeyNotFoundError, NotFoundError

from rtfilter.basics.errors import RTFilterError
from rtfilter.definition import Definition
from rtfilter.nats.bucket_filter import BucketFilter
from rtfilter.nats.subjects import DEFINITION, BucketShard, Subject
from rtfilter.watch.metrics import Metrics

_log = logging.getLogger(__name__)
PENDING: Final = 100_000
"""Unacknowledged messages of all workers of a consumer."""
EXISTS: Final = 10058
NO_PEERS: Final = 10005
"""Codes of errors of the engine."""
WAIT: Final = 20.0
"""Seconds until the engine must be ready, at the start."""


class SetupError(RTFilterError):
    """A worker cannot start; the message says what to do."""


@dataclass(frozen=True)
class WorkerOptions:
    """Options of a worker, as of ``rtfilter nats --help``.

    Attributes
    ----------
    urls : list of str
    filter : str
        The name of the bucket.
    events, out, refused : str
        Subjects. `refused` may be empty, for a default.
    definition : Definition, optional
        Stored in the bucket if that has none.
    create : int
        Copies of streams and buckets that are made if they are missing; 0: they are not made.
    data : Path, optional
        Folder for snapshots.
    shard : BucketShard
    consumer : str
        Name of the durable consumer; by default the filter's, with the shard.
    new : bool
        Whether a new consumer begins with the next event, not with the first one of the stream.
    ack_wait : float
        Seconds.
    credentials : str, optional
        A file of NATS.
    """

    urls: list[str]
    filter: str
    events: str
    out: str
    refused: str = ""
    definition: Definition | None = None
    create: int = 0
    data: Path | None = None
    shard: BucketShard = field(default_factory=BucketShard)
    consumer: str = ""
    new: bool = False
    ack_wait: float = 30.0
    credentials: str | None = None

    def __post_init__(self) -> None:
        try:
            Subject(self.out)
        except ValueError as error:
            raise SetupError(f"--out: {error}") from None
        if not re.fullmatch(r"[\w-]+", self.filter, re.ASCII):
            raise SetupError(f"--filter has letters, digits, - and _, not {self.filter!r}")
        if not 1 <= self.ack_wait <= 86_400:
            raise SetupError(f"--ack-wait is 1 to 86400 seconds, not {self.ack_wait:g}")

    @property
    def durable(self) -> str:
        """The name of the consumer."""
        return self.consumer or f"{self.filter}{self.shard.suffix}"


@dataclass(frozen=True)
class WorkerSetup:
    """The names and objects that a worker uses.

    Attributes
    ----------
    options : WorkerOptions
    stream : str
        The name of the stream of events.
    created : str
        When it was made.
    subject : Subject
        Of matches.
    refused : str
        The subject of refusals.
    subscriptions : BucketFilter
        Empty, or as of a snapshot.
    max_age : float
        The time to live of all keys of the bucket in seconds, or 0.
    data : Path or None
        Folder of the snapshots of this filter and shard.
    """

    options: WorkerOptions
    stream: str
    created: str
    subject: Subject
    refused: str
    subscriptions: BucketFilter
    max_age: float
    data: Path | None


async def connect(options: WorkerOptions, on_reconnect: Callable[[], object] = lambda: None) -> Client:
    """Connect to a server of the engine, for as long as this process lives. Raises `SetupError`."""

    async def failed(error: Exception) -> None:
        _log.warning("NATS: %s", error or type(error).__name__)

    async def again() -> None:
        _log.warning("connected again")
        on_reconnect()

    try:
        async with asyncio.timeout(WAIT):
            return await nats.connect(
                options.urls,
                name=f"rtfilter nats {options.filter}",
                error_cb=failed,
                reconnected_cb=again,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,
                ping_interval=5,
                user_credentials=options.credentials,
                skip_subject_validation=True,  # `Subject` and the engine have made them
                pending_size=2**26,
            )
    except (Error, OSError, TimeoutError, ValueError) as error:
        why = str(error) or "no answer"
        raise SetupError(
            f"cannot connect to {', '.join(options.urls)}: {why}; start nats-server -js, or name it by --url"
        ) from None


async def prepare(client: Client, options: WorkerOptions, metrics: Metrics | None = None) -> WorkerSetup:
    """Find or make what a worker needs, and load the snapshot. Raises `SetupError`."""
    engine, until = client.jetstream(timeout=WAIT / 4), monotonic() + WAIT
    while True:
        try:
            return await _prepared(engine, options, metrics)
        except (Error, TimeoutError) as error:  # servers that have just begun elect a leader first
            if monotonic() > until:
                why = getattr(error, "description", None) or str(error) or "no answer"
                raise SetupError(f"JetStream cannot be used: {why}; is it on (nats-server -js)?") from None
            await asyncio.sleep(WAIT / 20)


async def _prepared(engine: JetStreamContext, options: WorkerOptions, metrics: Metrics | None) -> WorkerSetup:
    subject = Subject(options.out)
    bucket = await bucket_of(engine, options)
    stream = await _stream(engine, options.events, "events", options)
    await _stream(engine, subject.wildcard, "matches", options)
    definition = await definition_of(engine, options)
    name = stream.config.name or ""
    await _require_consumer(engine, name, options)
    made = await created(engine, bucket.config.name or "")
    subscriptions = BucketFilter(definition, options.shard, subject.field == "user", made, metrics)
    folder = None if options.data is None else options.data / f"{options.filter}{options.shard.suffix}"
    if folder is not None:
        await asyncio.to_thread(subscriptions.load, folder, bucket.state.last_seq)
    return WorkerSetup(
        options=options,
        stream=name,
        created=await created(engine, name),
        subject=subject,
        refused=options.refused or f"rtfilter.{options.filter}.refused",
        subscriptions=subscriptions,
        max_age=bucket.config.max_age or 0.0,
        data=folder,
    )


async def created(engine: JetStreamContext, stream: str) -> str:
    """Return the moment when a stream was made, as the engine writes it."""
    answer = await engine._nc.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=WAIT / 4)
    return str(json.loads(answer.data)["created"])


async def bucket_of(engine: JetStreamContext, options: WorkerOptions) -> api.StreamInfo:
    """Return the stream of the bucket, or make it if that is wanted."""
    try:
        await engine.key_value(options.filter)
    except BucketNotFoundError:
        if not options.create:
            raise SetupError(
                f"there is no bucket {options.filter}: make it (nats kv add {options.filter} --replicas 3), "
                "or add --create 1, or --create 3 in a cluster"
            ) from None
        await _made(engine.create_key_value(bucket=options.filter, replicas=options.create))
    return await engine.stream_info(f"KV_{options.filter}")


async def _stream(
    engine: JetStreamContext, subject: str, what: str, options: WorkerOptions
) -> api.StreamInfo:
    """Return the stream that stores a subject, or make it if that is wanted."""
    answer = await engine._nc.request(
        "$JS.API.STREAM.NAMES", json.dumps({"subject": subject}).encode(), timeout=WAIT / 4
    )
    names: list[str] = json.loads(answer.data).get("streams") or []
    if not names and options.create:
        name = f"{options.filter}-{what}"
        config = api.StreamConfig(name=name, subjects=[subject], num_replicas=options.create)
        await _made(engine.add_stream(config))
        names = [name]
    if not names:
        raise SetupError(
            f"no stream stores {subject}: make one (nats stream add --subjects '{subject}'), or add "
            "--create 1, or --create 3 in a cluster"
        )
    if len(names) > 1 and what == "events":
        raise SetupError(
            f"several streams have subjects of {subject}: {', '.join(names)}; choose a narrower one"
        )
    return await engine.stream_info(names[0])


async def _made(making: Awaitable[Any]) -> None:
    try:
        await making
    except APIError as error:
        if error.err_code == EXISTS:  # another worker has made it meanwhile
            return
        if error.err_code == NO_PEERS:  # servers that have just begun do not know each other yet
            raise
        raise SetupError(f"the engine does not make it: {error.description}; see --create") from None


async def definition_of(engine: JetStreamContext, options: WorkerOptions) -> Definition:
    """Return the definition in the bucket, or store that of the options as the first one."""
    bucket = await engine.key_value(options.filter)
    given = options.definition
    try:
        held = (await bucket.get(DEFINITION)).value or b""
    except (KeyNotFoundError, NotFoundError):
        if given is None:
            raise SetupError(
                f"the bucket {options.filter} has no schema yet; add --schema, such as "
                """--schema '{"symbol": "str", "price": "float"}'"""
            ) from None
        held = json.dumps(given.to_json()).encode()
        try:
            await bucket.create(DEFINITION, held)
        except APIError:  # another worker was first
            held = (await bucket.get(DEFINITION)).value or b""
    try:
        found = Definition.from_json(json.loads(held))
        found.require_whole("a worker")
    except ValueError as error:
        raise SetupError(f"the key {DEFINITION} of the bucket {options.filter} is wrong: {error}") from None
    if given is not None and given.to_json() != found.to_json():
        raise SetupError(
            f"the bucket {options.filter} has another schema: leave --schema out, or choose another --filter"
        )
    return found


async def _require_consumer(engine: JetStreamContext, stream: str, options: WorkerOptions) -> None:
    """Make the durable consumer of the workers, or check the one that there is."""
    name = options.durable
    wanted = api.ConsumerConfig(
        durable_name=name,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=options.ack_wait,
        max_ack_pending=PENDING,
        deliver_policy=api.DeliverPolicy.NEW if options.new else api.DeliverPolicy.ALL,
        filter_subject=options.events,
    )
    try:
        found = (await engine.consumer_info(stream, name)).config
    except NotFoundError:
        try:
            await engine.add_consumer(stream, wanted)
        except APIError as error:
            raise SetupError(f"the consumer {name} cannot be made: {error.description}") from None
        return
    wrong = [
        told
        for told, is_wrong in (
            ("pushes", found.deliver_subject is not None),
            (f"is for {found.filter_subject}", found.filter_subject not in (None, "", options.events)),
            ("needs no acknowledgements of single messages", found.ack_policy != api.AckPolicy.EXPLICIT),
            ("gives events up", (found.max_deliver or -1) > 0),
        )
        if is_wrong
    ]
    if wrong:
        raise SetupError(
            f"the consumer {name} of the stream {stream} {' and '.join(wrong)}; name another by --consumer"
        )
