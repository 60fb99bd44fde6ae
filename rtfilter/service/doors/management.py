"""The doors that control the server: filters, subscriptions, webhooks, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rtfilter.basics.errors import RTFilterError
from rtfilter.definition import Definition
from rtfilter.events.schema import Schema
from rtfilter.service.doors import bodies, models, problems
from rtfilter.service.doors.bodies import JSON, LINES, Call, RequestLimits
from rtfilter.service.doors.door import After, Door, Id, IdempotencyKey, Limit, Name, link
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.measures import Measures
from rtfilter.service.records import FilterInfo, StoredSubscription, Wish, shown
from rtfilter.service.roles import Role
from rtfilter.service.service_errors import RequestError, TooLargeError
from rtfilter.service.webhooks import WebhookState

Everywhere = Annotated[
    bool, Meta(description="Wait until all sites that must know the subscription do; for one site, no wait.")
]
Site = Annotated[str, Meta(description="Name of a site.", examples=["tokyo"])]
User = Annotated[str | None, Meta(description="Of another user; for admins.")]
_SUBSCRIPTIONS: Final[dict[str, Any]] = {
    JSON: models.SubscriptionWanted,
    LINES[0]: {
        "schema": {"type": "string", "description": "A subscription on each line."},
        "examples": {"lines": {"value": '{"where": "price > 100"}\n{"where": "price < 10", "digest": 60}\n'}},
    },
}


async def list_filters(call: Call) -> Any:
    """List all filters, by name."""
    return {"filters": [_shown(one.info) for one in call.pipeline.filters.all()]}


async def show_filter(call: Call, filter: Name) -> Any:
    """Show a filter."""
    return _shown(call.pipeline.filters.index(filter).info)


async def add_filter(call: Call, filter: Name, wanted: models.FilterWanted) -> Any:
    """Add a filter, or change the matching of one with the same schema and key. For admins.

    Another schema or key is refused, and so is a matcher that does not take all subscriptions.
    """
    definition = await call.beside(_definition, wanted)
    return _shown(await call.pipeline.filters.add(call.who, filter, definition, wanted.key))


def _shown(info: FilterInfo) -> dict[str, Any]:
    definition = info.definition.to_json()
    return {"name": info.name, "schema": definition.pop("schema"), "key": info.key, **definition}


def _definition(wanted: models.FilterWanted) -> Definition:
    try:
        schema = Schema.from_json(wanted.schema)
    except (ValueError, TypeError) as error:
        raise RequestError(f"schema: {error}") from None
    try:
        return Definition(schema, wanted.matcher, wanted.controller, wanted.order, wanted.max_unbounded)
    except ValueError as error:
        raise RequestError(str(error)) from None


async def remove_filter(call: Call, filter: Name) -> None:
    """Remove a filter with its subscriptions. For admins."""
    await call.pipeline.filters.remove(call.who, filter)


async def subscribe(
    call: Call, filter: Name, idempotency_key: IdempotencyKey = None, everywhere: Everywhere = False
) -> Response:
    """Subscribe once with a JSON object, or many times with JSON lines, of which the good ones are added."""
    limits, measures = call.site.limits, call.pipeline.measures
    subscriptions = call.pipeline.subscriptions
    if call.media_type == JSON:
        wish = await call.worked(_wish, call.content, limits)
        id = await subscriptions.subscribe(call.who, filter, wish, idempotency_key)
        if everywhere:
            await call.pipeline.everywhere([id])
        headers = {"location": f"/subscriptions/{id}"}
        return Response(b'{"subscription":%d}' % id, 201, headers, media_type=JSON)
    if call.media_type not in LINES:
        raise MediaTypeError(f"Content-Type is {call.media_type or 'missing'}; send {JSON} or {LINES[0]}")
    await call.enter_answers()
    wishes, wrong = await call.beside(_wishes, call.content, limits, measures)
    made = await subscriptions.subscribe_many(call.who, filter, wishes, idempotency_key)
    if everywhere:
        await call.pipeline.everywhere([one for one in made if isinstance(one, int)])
    return Response(await call.beside(_report, made, wrong, measures), media_type=JSON)


def _wish(line: bytes, limits: RequestLimits) -> Wish:
    bodies.require_small(len(line), bodies.MOST_DOCUMENT, "a subscription")
    wanted = bodies.document(line, models.SubscriptionWanted, limits.nesting)
    return Wish(*msgspec.structs.astuple(wanted))


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
        except RTFilterError as error:
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
        return msgspec.json.encode({"problem": found})
    return b'{"subscription":%d}' % one


async def list_subscriptions(
    call: Call,
    filter: Annotated[str | None, Meta(description="Of one filter.", examples=["default"])] = None,
    user: User = None,
    everyone: Annotated[bool, Meta(description="Of all users; for admins.")] = False,
    after: After = 0,
    limit: Limit = 100,
) -> Response:
    """List the user's own subscriptions, by id."""
    subscriptions = call.pipeline.subscriptions
    found, more = await subscriptions.list(call.who, filter, after, limit, user, everyone)
    next = link(call, found[-1].id) if more else None
    return Response(await call.beside(_page, found, next), media_type=JSON)


def _page(found: Sequence[StoredSubscription], next: str | None) -> bytes:
    return msgspec.json.encode({"subscriptions": list(map(shown, found)), "next": next})


async def show_subscription(call: Call, id: Id) -> Any:
    """Show a subscription."""
    return shown(await call.pipeline.subscriptions.show(call.who, id))


async def replace(call: Call, id: Id, wanted: models.SubscriptionWanted) -> models.Replaced:
    """Replace a subscription as a whole: without `ttl` it does not expire any more.

    Its earlier matches are still delivered.
    """
    wish = Wish(*msgspec.structs.astuple(wanted))
    return models.Replaced(id, await call.pipeline.subscriptions.replace(call.who, id, wish))


async def unsubscribe(call: Call, id: Id) -> None:
    """Remove a subscription, with its deliveries."""
    await call.pipeline.subscriptions.unsubscribe(call.who, id)


async def statistics(call: Call) -> dict[str, Any]:
    """Return statistics of the user; for admins also of the server and its filters."""
    return dict(await call.pipeline.status.of_user(call.who))


async def change_strategy(call: Call, wanted: models.StrategyWanted) -> None:
    """Change the strategy of the whole network. Asked of the root's designated site; for admins."""
    call.pipeline.require_site().switch(wanted.strategy)


async def forget_site(call: Call, site: Site) -> None:
    """Miss no more events of a site that is gone for good, at all sites. It may come back. For admins."""
    call.pipeline.require_site().forget(site)


async def put_webhook(call: Call, wanted: models.WebhookWanted) -> WebhookState:
    """Send deliveries to a URL from now on, with a new secret. Replaces an earlier webhook."""
    return await call.site.webhooks.put(call.who, wanted.url)


async def show_webhook(call: Call, user: User = None) -> WebhookState:
    """Show the user's webhook."""
    return call.site.webhooks.show(call.who, user)


async def remove_webhook(call: Call, user: User = None) -> None:
    """Remove the webhook. Deliveries stay."""
    await call.site.webhooks.remove(call.who, user)


async def renew_secret(call: Call) -> WebhookState:
    """Sign with a new secret from now on."""
    return await call.site.webhooks.renew(call.who)


async def resume_webhook(call: Call) -> WebhookState:
    """Send again to a webhook that is parked; where it waits for the next try, try at once."""
    return await call.site.webhooks.resume(call.who)


DOORS: Final = (
    Door("GET", "/filters", list_filters, answers={200: models.FiltersShown}),
    Door("PUT", "/filters/{filter}", add_filter, Role.ADMIN, answers={200: models.FilterShown}),
    Door("GET", "/filters/{filter}", show_filter, answers={200: models.FilterShown}),
    Door("DELETE", "/filters/{filter}", remove_filter, status=204),
    Door(
        "POST",
        "/filters/{filter}/subscriptions",
        subscribe,
        Role.SUBSCRIBER,
        takes=_SUBSCRIPTIONS,
        answers={200: models.SubscriptionResults, 201: models.Subscribed},
    ),
    Door("GET", "/subscriptions", list_subscriptions, answers={200: models.SubscriptionsShown}),
    Door("GET", "/subscriptions/{id}", show_subscription, answers={200: models.SubscriptionShown}),
    Door("PUT", "/subscriptions/{id}", replace, Role.SUBSCRIBER),
    Door("DELETE", "/subscriptions/{id}", unsubscribe, status=204),
    Door("PUT", "/site/strategy", change_strategy, Role.ADMIN, status=204),
    Door("DELETE", "/site/sites/{site}", forget_site, Role.ADMIN, status=204),
    Door("GET", "/statistics", statistics),
    Door("PUT", "/webhook", put_webhook, Role.SUBSCRIBER),
    Door("GET", "/webhook", show_webhook, standby=False),
    Door("DELETE", "/webhook", remove_webhook, status=204),
    Door("POST", "/webhook/secret", renew_secret, Role.SUBSCRIBER),
    Door("POST", "/webhook/resume", resume_webhook, Role.SUBSCRIBER),
)
