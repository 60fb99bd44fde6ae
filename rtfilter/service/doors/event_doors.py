"""The doors on the path of events: publish, query, match, explain; deliveries. JSON is msgspec's alone."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response

from rtfilter.service.doors import bodies, models, shared
from rtfilter.service.doors.bodies import ARROW, JSON, LINES
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.doors.shared import After, IdempotencyKey, Limit, Name, Served, Who, needs
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

Moment = Annotated[float | None, Query(allow_inf_nan=False, description="Seconds since 1970.")]
_encode: Final = msgspec.json.Encoder().encode
_EVENT: Final = {"price": 120.5, "symbol": "ACME"}
_TWO: Final = '{"price": 120.5, "symbol": "ACME"}\n{"price": 7, "symbol": "INITECH"}\n'
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"type": "object", "description": "One event."},
                "examples": {"one": {"value": _EVENT}},
            },
            LINES[0]: {
                "schema": {"type": "string", "description": "An event on each line."},
                "examples": {"lines": {"value": _TWO}},
            },
            ARROW: {"schema": {"type": "string", "format": "binary", "description": "Arrow's IPC stream."}},
        },
    }
}
_ARROW_TOO: Final[dict[str, Any]] = {
    JSON: {},
    ARROW: {"schema": {"type": "string", "format": "binary", "description": "A list of ids an event."}},
}
_ACKNOWLEDGED: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "positions": {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
                            "maxItems": bodies.MOST_EVENTS,
                        }
                    },
                    "required": ["positions"],
                    "additionalProperties": False,
                },
                "examples": {"two": {"value": {"positions": [3, 4]}}},
            }
        },
    }
}


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """Positions of deliveries that have arrived."""

    positions: Annotated[
        list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]], msgspec.Meta(max_length=bodies.MOST_EVENTS)
    ]


def _answer(content: object, status: int = 200) -> Response:
    return Response(_encode(content), status, media_type=JSON)


@needs(Role.PUBLISHER)
async def publish(
    request: Request, name: Name, who: Who, pipeline: Served, idempotency_key: IdempotencyKey = None
) -> Response:
    """Publish events. The answer comes once they are durable, with the position of each."""
    events = await bodies.events(request, pipeline.filters.parse(name))
    arrived, read = request.state.arrived, request.state.read
    pipeline.measures.read.add(read - arrived, len(events.bodies))
    pipeline.measures.parse.add(perf_counter() - read, len(events.bodies))
    stored, hints = events.bodies, events.hints
    del events  # its table is much larger, and the answer may take seconds
    positions = await pipeline.publishing.publish(who, name, stored, idempotency_key, arrived)
    return _answer(with_hints({"positions": positions}, hints), 202)


async def query(
    request: Request,
    name: Name,
    who: Who,
    pipeline: Served,
    where: Annotated[str | None, Query(description="SQL or a pattern.", examples=["price > 100"])] = None,
    since: Moment = None,
    until: Moment = None,
    after: After = 0,
    limit: Limit = 100,
) -> Response:
    """List stored events by predicate and time of arrival; without the role subscriber, the user's own."""
    wanted = bodies.decoded(where.encode(), dict) if where and where.lstrip().startswith("{") else where
    found, following = await pipeline.asking.query(who, name, wanted, since, until, after, limit)
    link = None if following is None else shared.link(request, following)
    return _answer({"events": [_stored(one) for one in found], "next": link})


def _stored(one: StoredEvent) -> dict[str, Any]:
    return {"position": one.position, "at": one.at, "user": one.user, "event": msgspec.Raw(one.body)}


@needs(Role.SUBSCRIBER)
async def match(request: Request, name: Name, who: Who, pipeline: Served) -> Response:
    """List the user's own subscriptions that match each event; nothing is stored or delivered.

    With `Accept: application/vnd.apache.arrow.stream` the answer is a stream with the column `matches`.
    """
    await shared.enter_answers(request)
    events = await bodies.events(request, pipeline.filters.parse(name), stored=False)
    found = await pipeline.asking.match(who, name, events.table)
    if bodies.wants_arrow(request):
        return PartsResponse(request, matches_as_arrow(found, "matches"), ARROW)
    return await answered(request, matches_as_json(found, with_hints({}, events.hints)))


@needs(Role.SUBSCRIBER)
async def explain(
    request: Request, name: Name, question: models.ExplainRequest, who: Who, pipeline: Served
) -> models.ExplainAnswer:
    """Explain why a subscription matches an event or not."""
    await shared.enter_answers(request)
    event = await pipeline.asides.reads.run_for(
        who.user, pipeline.filters.parse(name).one, _encode(question.event)
    )  # it may have lists
    found = await pipeline.asking.explain(who, name, event.bodies[0], question.subscription)
    return models.ExplainAnswer(matched=found.matched, report=report(found, event))


async def pull(
    request: Request, who: Who, pipeline: Served, after: After = 0, limit: Limit = 100
) -> Response:
    """List the user's unacknowledged deliveries, by position."""
    found, following = pipeline.deliveries.pull(who, limit, after)
    link = None if following is None else shared.link(request, following)
    return await answered(request, deliveries_as_json(found, link))


@needs(Role.SUBSCRIBER)
async def acknowledge(request: Request, who: Who, pipeline: Served) -> Response:
    """Acknowledge deliveries by position, so that they are not sent again. Other positions are ignored."""
    if bodies.media_type(request) != JSON:
        raise MediaTypeError(f"the header Content-Type is needed: {JSON}")
    body = request.state.body
    asked = await bodies.worked(request, bodies.decoded, body, Acknowledgement)
    await pipeline.deliveries.acknowledge(who, asked.positions)
    return Response(status_code=204)


def doors() -> APIRouter:
    """Return the routes of these doors."""
    router = shared.router()
    add = router.add_api_route
    of = "/filters/{filter}"
    add(
        f"{of}/events",
        publish,
        methods=["POST"],
        status_code=202,
        route_class_override=shared.QuickDoor,
        responses={202: {"model": models.Published, "description": "They are durable"}},
        openapi_extra=_BODY,
    )
    add(f"{of}/events", query, methods=["GET"], responses={200: {"model": models.EventsShown}})
    add(
        f"{of}/match",
        match,
        methods=["POST"],
        route_class_override=shared.QuickDoor,
        responses={200: {"model": models.MatchedIds, "content": _ARROW_TOO}},
        openapi_extra=_BODY,
    )
    add(f"{of}/explain", explain, methods=["POST"])
    add("/deliveries", pull, methods=["GET"], responses={200: {"model": models.DeliveriesShown}})
    add(
        "/acknowledgements",
        acknowledge,
        methods=["POST"],
        status_code=204,
        openapi_extra=_ACKNOWLEDGED,
    )
    return router
