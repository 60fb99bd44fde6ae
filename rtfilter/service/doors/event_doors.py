"""The doors on the path of events: publish, query, match, explain; deliveries."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rtfilter.service.doors import models
from rtfilter.service.doors.bodies import ARROW, JSON, LINES, Call, document
from rtfilter.service.doors.door import After, Door, IdempotencyKey, Limit, Name, link
from rtfilter.service.doors.streamed import (
    PartsResponse,
    answered,
    deliveries_as_json,
    matches_as_arrow,
    matches_as_json,
)
from rtfilter.service.parse import report, with_hints
from rtfilter.service.records import StoredEvent
from rtfilter.service.roles import Role

Moment = Annotated[float, Meta(ge=-1e308, le=1e308, description="Seconds since 1970.")]  # but no NaN
_encode: Final = msgspec.json.Encoder().encode
_EVENTS: Final[dict[str, Any]] = {
    JSON: {
        "schema": {"type": "object", "description": "One event."},
        "examples": {"one": {"value": {"price": 120.5, "symbol": "ACME"}}},
    },
    LINES[0]: {
        "schema": {"type": "string", "description": "An event on each line."},
        "examples": {
            "lines": {"value": '{"price": 120.5, "symbol": "ACME"}\n{"price": 7, "symbol": "INITECH"}\n'}
        },
    },
    ARROW: {"schema": {"type": "string", "format": "binary", "description": "Arrow's IPC stream."}},
}
_MATCHES: Final[dict[str, Any]] = {
    JSON: models.MatchedIds,
    ARROW: {"schema": {"type": "string", "format": "binary", "description": "A list of ids an event."}},
}


async def publish(call: Call, filter: Name, idempotency_key: IdempotencyKey = None) -> Response:
    """Publish events. The answer comes once they are durable, with the position of each."""
    events = await call.events(call.pipeline.filters.parse(filter))
    measures = call.pipeline.measures
    measures.read.add(call.read - call.arrived, len(events.bodies))
    measures.parse.add(perf_counter() - call.read, len(events.bodies))
    stored, hints = events.bodies, events.hints
    del events  # its table is much larger, and the answer may take seconds
    publish = call.pipeline.publishing.publish
    positions = await publish(call.who, filter, stored, idempotency_key, call.arrived)
    return Response(_encode(with_hints({"positions": positions}, hints)), 202, media_type=JSON)


async def query(
    call: Call,
    filter: Name,
    where: Annotated[str | None, Meta(description="SQL or a pattern.", examples=["price > 100"])] = None,
    since: Moment | None = None,
    until: Moment | None = None,
    after: After = 0,
    limit: Limit = 100,
) -> Any:
    """List stored events by predicate and time of arrival; without the role subscriber, the user's own."""
    wanted: Any = where
    if where and where.lstrip().startswith("{"):
        wanted = document(where.encode(), dict[str, Any], call.site.limits.nesting)
    asking = call.pipeline.asking
    found, following = await asking.query(call.who, filter, wanted, since, until, after, limit)
    next = None if following is None else link(call, following)
    return {"events": list(map(_stored, found)), "next": next}


def _stored(one: StoredEvent) -> dict[str, Any]:
    return {"position": one.position, "at": one.at, "user": one.user, "event": msgspec.Raw(one.body)}


async def match(call: Call, filter: Name) -> Response:
    """List the user's own subscriptions that match each event; nothing is stored or delivered.

    With `Accept: application/vnd.apache.arrow.stream` the answer is a stream with the column `matches`.
    """
    await call.enter_answers()
    events = await call.events(call.pipeline.filters.parse(filter), stored=False)
    found = await call.pipeline.asking.match(call.who, filter, events.table)
    if call.wants_arrow:
        return PartsResponse(call, matches_as_arrow(found, "matches"), ARROW)
    return await answered(call, matches_as_json(found, with_hints({}, events.hints)))


async def explain(call: Call, filter: Name, wanted: models.ExplainRequest) -> models.ExplainAnswer:
    """Explain why a subscription matches an event or not."""
    await call.enter_answers()
    parse = call.pipeline.filters.parse(filter)
    event = await call.beside(parse.one, _encode(wanted.event))  # it may have lists
    found = await call.pipeline.asking.explain(call.who, filter, event.bodies[0], wanted.subscription)
    return models.ExplainAnswer(found.matched, report(found, event))


async def pull(call: Call, after: After = 0, limit: Limit = 100) -> Response:
    """List the user's unacknowledged deliveries, by position."""
    found, following = call.pipeline.deliveries.pull(call.who, limit, after)
    next = None if following is None else link(call, following)
    return await answered(call, deliveries_as_json(found, next))


async def acknowledge(call: Call, wanted: models.Acknowledgement) -> None:
    """Acknowledge deliveries by position, so that they are not sent again. Other positions are ignored."""
    await call.pipeline.deliveries.acknowledge(call.who, wanted.positions)


DOORS: Final = (
    Door(
        "POST",
        "/filters/{filter}/events",
        publish,
        Role.PUBLISHER,
        takes=_EVENTS,
        answers={202: models.Published},
    ),
    Door(
        "POST",
        "/filters/{filter}/match",
        match,
        Role.SUBSCRIBER,
        takes=_EVENTS,
        answers={200: _MATCHES},
        standby=True,
    ),
    Door("GET", "/filters/{filter}/events", query, answers={200: models.EventsShown}),
    Door("POST", "/filters/{filter}/explain", explain, Role.SUBSCRIBER, standby=True),
    Door("GET", "/deliveries", pull, answers={200: models.DeliveriesShown}, standby=False),
    Door("POST", "/acknowledgements", acknowledge, Role.SUBSCRIBER, status=204, long=True),
)
