"""``rtfilter nats``: match the events of a JetStream stream with the subscriptions of a bucket."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rtfilter.cli.arguments import port, positive, some_path
from rtfilter.cli.schemas import MATCHING, read_definition
from rtfilter.cli.terminal import CommandError, say, show

if TYPE_CHECKING:
    from rtfilter.nats.worker_setup import WorkerOptions

URL = "NATS_URL"
DRAIN = 20.0
"""Seconds for the present batch, after SIGTERM."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Match the events of a stream of NATS JetStream with the subscriptions of a key-value bucket, and\n"
        "publish the matches to a stream. Several workers share the events. With check, list subscriptions\n"
        "that cannot be used, and how far the workers are. Needs the extra nats and NATS 2.9 or newer."
    )
    parser.epilog = (
        "subscriptions are keys of the bucket, with values such as\n"
        '  {"where": "price < 10", "user": "ann", "ttl": 3600}\n\n'
        f"{MATCHING}\n"
        "examples:\n"
        "  rtfilter nats --filter trades --events 'trades.>' --out 'matches.{user}' \\\n"
        """      --schema '{"symbol": "str", "price": "float"}' --create 1\n"""
        "  rtfilter nats --url nats://one:4222,nats://two:4222 --filter trades --events 'trades.>' \\\n"
        "      --out 'matches.{user}' --data snapshots --shard 2/5\n"
        "  rtfilter nats check --filter trades\n"
    )
    add = parser.add_argument
    add(
        "action",
        nargs="?",
        choices=["check"],
        metavar="check",
        help="look only, and exit with 1 if there are refusals",
    )
    add("--url", metavar="URLS", help=f"of servers, with commas (default: {URL}, or nats://127.0.0.1:4222)")
    add("--filter", metavar="NAME", required=True, help="bucket of the subscriptions")
    add("--events", metavar="SUBJECT", help="subject of the events, which a stream stores")
    add("--out", metavar="SUBJECT", help="subject of the matches, with {user} or {subscription}, or neither")
    add(
        "--schema",
        metavar="SCHEMA",
        help="at the first start: attributes and types, or a definition as above",
    )
    add(
        "--create",
        metavar="N",
        type=positive,
        default=0,
        help="make the bucket and the streams if they are missing, with N copies",
    )
    add(
        "--data",
        metavar="DIR",
        type=some_path,
        help="folder for snapshots of the subscriptions (default: none)",
    )
    add("--shard", metavar="K/N", help="hold only part K of N of the subscriptions; each part needs a worker")
    add("--consumer", metavar="NAME", help="durable consumer of the workers (default: NAME of --filter)")
    add("--new", action="store_true", help="begin with the next event, if there is no consumer yet")
    add(
        "--ack-wait",
        metavar="SECONDS",
        type=float,
        help="until the events of a dead worker come again (default: 30)",
    )
    add("--refused", metavar="SUBJECT", help="of what cannot be used (default: rtfilter.NAME.refused)")
    add("--credentials", metavar="FILE", help="of a user of NATS")
    add("--metrics-port", metavar="PORT", type=port, help="of metrics for Prometheus (default: none)")
    add("--log-level", metavar="LEVEL", default="info", help="debug, info, warning or error (default: info)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 if `check` finds a refused subscription."""
    if arguments.action is None:
        for name in ("events", "out"):
            if getattr(arguments, name) is None:
                raise CommandError(f"a worker needs --{name}; see rtfilter nats --help")
    level = arguments.log_level.upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise CommandError(f"--log-level is debug, info, warning or error, not {arguments.log_level}")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    definition = None if arguments.schema is None else read_definition(arguments.schema)
    from rtfilter.nats.subjects import BucketShard
    from rtfilter.nats.worker_setup import SetupError, WorkerOptions

    try:
        shard = BucketShard() if arguments.shard is None else BucketShard.of(arguments.shard)
    except ValueError as error:
        raise CommandError(f"--shard: {error}") from None
    urls = (arguments.url or os.environ.get(URL) or "nats://127.0.0.1:4222").split(",")
    given = {"refused": arguments.refused, "consumer": arguments.consumer, "ack_wait": arguments.ack_wait}
    try:
        options = WorkerOptions(
            urls=urls,
            filter=arguments.filter,
            events=arguments.events or ">",
            out=arguments.out or "unused.{user}",
            definition=definition,
            create=arguments.create,
            data=arguments.data,
            shard=shard,
            new=arguments.new,
            credentials=arguments.credentials,
            **{name: value for name, value in given.items() if value is not None},
        )
        if arguments.action == "check":
            return asyncio.run(_check(options))
        return asyncio.run(_work(options, arguments.metrics_port))
    except SetupError as error:
        raise CommandError(str(error)) from None


async def _work(options: WorkerOptions, metrics_port: int | None) -> int:
    from rtfilter.nats.nats_worker import NatsWorker
    from rtfilter.nats.worker_metrics import WorkerMetrics
    from rtfilter.nats.worker_setup import connect, prepare
    from rtfilter.watch.metrics import Metrics

    measures = WorkerMetrics(options.filter)
    metrics = None if metrics_port is None else Metrics(measures.registry, options.filter)
    reconnected: list[Any] = []
    client = await connect(options, lambda: [act() for act in reconnected])
    try:
        worker = NatsWorker(client, await prepare(client, options, metrics), measures)
        reconnected.append(worker.reconnected)
        if metrics_port is not None:
            from rtfilter.watch.metrics import serve

            serve(measures.registry, metrics_port)
        working = asyncio.ensure_future(worker.run(lambda: _ready(options, worker)))
        loop = asyncio.get_running_loop()

        def end() -> None:
            worker.stop()
            loop.call_later(DRAIN, working.cancel)

        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or no main thread
                loop.add_signal_handler(number, end)
        try:
            await working
        except asyncio.CancelledError:
            say(f"the engine did not store all matches within {DRAIN:g} s; their events come again")
            return 1
        say("ended")
        return 0
    finally:
        await client.close()


def _ready(options: WorkerOptions, worker: Any) -> None:
    count = len(worker.bucket.subscriptions.users)
    say(f"matching {options.events} with {count} subscriptions of {options.filter}{options.shard.suffix}")


async def _check(options: WorkerOptions) -> int:
    from rtfilter.nats.bucket_check import check
    from rtfilter.nats.worker_setup import connect

    client = await connect(options)
    try:
        lines, refused = await check(client, options)
    finally:
        await client.close()
    for line in lines:
        show(line)
    return 1 if refused else 0
