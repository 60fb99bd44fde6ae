"""``rtfilter nats check``: the subscriptions that cannot be used, and how far the workers are."""

from __future__ import annotations

import asyncio
import json

from nats.aio.client import Client
from nats.errors import Error
from nats.js import JetStreamContext

from rtfilter.nats.bucket import SubscriptionBucket
from rtfilter.nats.bucket_entries import BucketRefusal
from rtfilter.nats.bucket_filter import BucketFilter
from rtfilter.nats.worker_setup import SetupError, WorkerOptions, bucket_of, definition_of


async def check(client: Client, options: WorkerOptions) -> tuple[list[str], int]:
    """Return lines of JSON, and the number of refused subscriptions. Raises `SetupError`.

    The first line has counts, also those of the consumer. A line for each refused subscription follows.
    """
    engine = client.jetstream(timeout=5)
    try:
        info = await bucket_of(engine, options)
        definition = await definition_of(engine, options)
        subscriptions = BucketFilter(definition, options.shard, needs_user=False)

        async def ignore(_: BucketRefusal) -> None:
            pass

        max_age = info.config.max_age or 0.0
        bucket = SubscriptionBucket(client, options.filter, subscriptions, ignore, max_age)
        following = asyncio.create_task(bucket.run())
        try:
            await bucket.reach()
        finally:
            following.cancel()
        refused = subscriptions.refused.values()
        told = {
            "subscriptions": len(subscriptions.filter),
            "without a user": sum(not user for user in subscriptions.users.values()),
            "refused": len(refused),
            "revision": subscriptions.revision,
            **await _consumers(engine, options),
        }
    except (Error, TimeoutError) as error:
        raise SetupError(f"JetStream does not answer: {error or 'timeout'}; is a leader elected?") from None
    lines = [{"subscription": one.key, "revision": one.revision, "reason": one.reason} for one in refused]
    return [json.dumps(one, ensure_ascii=False) for one in (told, *lines)], len(refused)


async def _consumers(engine: JetStreamContext, options: WorkerOptions) -> dict[str, dict[str, object]]:
    """Return how far the consumer of the filter is, by its stream."""
    found: dict[str, dict[str, object]] = {}
    for stream in await engine.streams_info():
        for one in await engine.consumers_info(stream.config.name or ""):
            if one.name == options.durable:
                found[f"consumer of {stream.config.name}"] = {
                    "pending": one.num_pending,
                    "unacknowledged": one.num_ack_pending,
                    "redelivered": one.num_redelivered,
                }
    return found
