"""The doors that control the server: filters, subscriptions, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from rtfilter.definition import Definition
from rtfilter.errors import RTFilterError
from rtfilter.events.schema import Schema
from rtfilter.service.doors import bodies, models, problems, shared
from rtfilter.service.doors.bodies import JSON, LINES
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.doors.shared import (
    After,
    Id,
    IdempotencyKey,
    Limit,
    Name,
    RequestLimits,
    Served,
    Who,
    needs,
)
from rtfilter.service.json_depth import require_shallow
from rtfilter.service.measures import Measures
from rtfilter.service.records import StoredSubscription, Wish, shown
from rtfilter.service.roles import Role
from rtfilter.service.service_errors import RequestError, TooLargeError

_LINES: Final = '{"where": "price > 100"}\n{"where": "price < 10", "digest": 60}\n'
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/SubscriptionWanted"}},
            LINES[0]: {
                "schema": {"type": "string", "description": "A subscription on each line."},
                "examples": {"lines": {"value": _LINES}},
            },
        },
    },
}


async def list_filters(who: Who, pipeline: Served) -> models.FiltersShown:
    """List all filters, by name."""
    return models.FiltersShown(filters=[models.FilterShown.of(one.info) for one in pipeline.filters.all()])


async def show_filter(name: Name, who: Who, pipeline: Served) -> models.FilterShown:
    """Show a filter."""
    return models.FilterShown.of(pipeline.filters.index(name).info)


@needs(Role.ADMIN)
async def add_filter(
    name: Name, wanted: models.FilterWanted, who: Who, pipeline: Served
) -> models.FilterShown:
    """Add a filter, or change the matching of one with the same schema and key. For admins.

    Another schema or key is refused, and so is a matcher that does not take all subscriptions.
    """
    definition = await pipeline.asides.reads.run_for(who.user, _definition, wanted)
    return models.FilterShown.of(await pipeline.filters.add(who, name, definition, wanted.key))


def _definition(wanted: models.FilterWanted) -> Definition:
    try:
        schema = Schema.from_json(wanted.attributes)
    except (ValueError, TypeError) as error:
        raise RequestError(f"schema: {error}") from None
    said = wanted.model_dump(exclude_unset=True, exclude={"attributes", "key"})
    try:
        return Definition(schema, **said)
    except ValueError as error:
        raise RequestError(str(error)) from None


async def remove_filter(name: Name, who: Who, pipeline: Served) -> None:
    """Remove a filter with its subscriptions. For admins."""
    await pipeline.filters.remove(who, name)


@needs(Role.SUBSCRIBER)
async def subscribe(
    request: Request,
    response: Response,
    name: Name,
    who: Who,
    pipeline: Served,
    idempotency_key: IdempotencyKey = None,
) -> models.Subscribed | Response:
    """Subscribe once with a JSON object, or many times with JSON lines, of which the good ones are added."""
    body, limits = request.state.body, request.app.state.limits
    kind = bodies.media_type(request)
    if kind == JSON:
        wish = await bodies.worked(request, _wish, body, limits)
        id = await pipeline.subscriptions.subscribe(who, name, wish, idempotency_key)
        response.status_code, response.headers["location"] = 201, f"/subscriptions/{id}"
        return models.Subscribed(subscription=id)
    if kind not in LINES:
        raise MediaTypeError(f"the header Content-Type is needed: {JSON} or {LINES[0]}")
    await shared.enter_answers(request)
    wishes, wrong = await pipeline.asides.reads.run_for(who.user, _wishes, body, limits, pipeline.measures)
    made = await pipeline.subscriptions.subscribe_many(who, name, wishes, idempotency_key)
    return Response(
        await pipeline.asides.reads.run_for(who.user, _report, made, wrong, pipeline.measures),
        media_type=JSON,
    )


def _wish(line: bytes, limits: RequestLimits) -> Wish:
    bodies.require_small(len(line), bodies.MOST_DOCUMENT, "a subscription")
    require_shallow(line, limits.nesting)
    bodies.decoded(line)  # has the best error for text that is no JSON
    try:
        return models.SubscriptionWanted.model_validate_json(line).wish()
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _wishes(body: bytes, limits: RequestLimits, measures: Measures) -> tuple[list[Wish], dict[int, bytes]]:
    """Return the wishes of the good lines, and rows of the answer for the others. Takes seconds for many."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > bodies.MOST_EVENTS:
        raise TooLargeError(f"a request has at most {bodies.MOST_EVENTS} lines; send several")
    good: list[Wish] = []
    wrong: dict[int, bytes] = {}
    for row, line in enumerate(lines):
        try:
            good.append(_wish(line, limits))
        except (RTFilterError, RequestValidationError) as error:
            wrong[row] = _row(error, row, measures)  # an error object takes ten times as much memory
    return good, wrong


def _report(made: Sequence[int | Exception], wrong: Mapping[int, bytes], measures: Measures) -> bytes:
    """Return the result of each line, as `models.SubscriptionResults` has it."""
    good = iter(made)
    rows = (
        wrong[row] if row in wrong else _row(next(good), row, measures)
        for row in range(len(made) + len(wrong))
    )
    return b'{"rows":[' + b",".join(rows) + b"]}"


def _row(one: int | Exception, row: int, measures: Measures) -> bytes:
    if isinstance(one, Exception):
        found = problems.describe(one, row)
        measures.refuse("http", found.kind)
        return msgspec.json.encode({"problem": found.document})
    return b'{"subscription":%d}' % one


async def list_subscriptions(
    request: Request,
    who: Who,
    pipeline: Served,
    filter: Annotated[str | None, Query(description="Of one filter.", examples=["default"])] = None,
    user: Annotated[str | None, Query(description="Of another user; for admins.")] = None,
    everyone: Annotated[bool, Query(description="Of all users; for admins.")] = False,
    after: After = 0,
    limit: Limit = 100,
) -> Response:
    """List the user's own subscriptions, by id."""
    found, more = await pipeline.subscriptions.list(who, filter, after, limit, user, everyone)
    link = shared.link(request, found[-1].id) if more else None
    return Response(await pipeline.asides.reads.run_for(who.user, _page, found, link), media_type=JSON)


def _page(found: Sequence[StoredSubscription], link: str | None) -> bytes:
    return msgspec.json.encode({"subscriptions": list(map(shown, found)), "next": link})


async def show_subscription(id: Id, who: Who, pipeline: Served) -> models.SubscriptionShown:
    """Show a subscription."""
    return models.SubscriptionShown(**shown(await pipeline.subscriptions.show(who, id)))


@needs(Role.SUBSCRIBER)
async def replace(id: Id, wanted: models.SubscriptionWanted, who: Who, pipeline: Served) -> models.Replaced:
    """Replace a subscription as a whole: without `ttl` it does not expire any more.

    Its earlier matches are still delivered.
    """
    return models.Replaced(
        subscription=id, expires=await pipeline.subscriptions.replace(who, id, wanted.wish())
    )


async def unsubscribe(id: Id, who: Who, pipeline: Served) -> None:
    """Remove a subscription, with its deliveries."""
    await pipeline.subscriptions.unsubscribe(who, id)


async def statistics(who: Who, pipeline: Served) -> dict[str, Any]:
    """Return statistics of the user; for admins also of the server and its filters."""
    return dict(await pipeline.status.of_user(who))


def doors() -> APIRouter:
    """Return the routes of these doors."""
    router = shared.router()
    add = router.add_api_route
    add("/filters", list_filters, methods=["GET"])
    add("/filters/{filter}", add_filter, methods=["PUT"])
    add("/filters/{filter}", show_filter, methods=["GET"])
    add("/filters/{filter}", remove_filter, methods=["DELETE"], status_code=204, response_class=Response)
    add(
        "/filters/{filter}/subscriptions",
        subscribe,
        methods=["POST"],
        response_model=models.Subscribed | models.SubscriptionResults,
        response_model_exclude_none=True,
        responses={
            200: {"model": models.SubscriptionResults, "description": "What became of each line"},
            201: {"model": models.Subscribed, "description": "Subscribed"},
        },
        openapi_extra=_BODY,
    )
    add(
        "/subscriptions",
        list_subscriptions,
        methods=["GET"],
        responses={200: {"model": models.SubscriptionsShown}},
    )
    add("/subscriptions/{id}", show_subscription, methods=["GET"])
    add("/subscriptions/{id}", replace, methods=["PUT"])
    add("/subscriptions/{id}", unsubscribe, methods=["DELETE"], status_code=204, response_class=Response)
    add("/statistics", statistics, methods=["GET"])
    return router
