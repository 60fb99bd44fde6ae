"""The bodies of requests and answers of the doors of HTTP, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct

from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.service.doors.bodies import MOST_EVENTS
from rtfilter.service.doors.problems import Problem

Next = Annotated[str | None, Meta(description="Link to the next page, where there may be one.")]
Hints = Annotated[
    list[str] | None,
    Meta(description="Misspelt attributes and values of another type, if there are any."),
]
_Seconds = Annotated[float, Meta(gt=0)]
_NAMED: Final = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}


class _Wanted(Struct, forbid_unknown_fields=True):
    """A body in which unknown fields are errors.

    Attributes
    ----------
    EXAMPLES : list
        For OpenAPI.
    """

    EXAMPLES: ClassVar[list[dict[str, Any]]] = []


class FilterWanted(_Wanted):
    """A filter: a named schema, that is a type of events, and how they are matched."""

    EXAMPLES = [
        {"schema": {"price": "float", "symbol": "str"}, "key": "symbol"},
        {
            "schema": {"price": "float", "symbol": "str"},
            "key": "symbol",
            "matcher": "counting",
            "controller": {"name": "wang", "rounds": 32, "threshold": 1000},
        },
    ]
    schema: Annotated[
        Any,
        Meta(
            description='Attribute to type: "int", "float", "str", "bool", "timestamp"; or an object with '
            "`type`, `low` and `high`. Or an object with these as `attributes`, and with `strict`: true "
            "refuses events with unknown attributes or with values of another type.",
            extra_json_schema={
                "anyOf": [
                    {"type": "object", "minProperties": 1},
                    {"type": "array", "minItems": 1, "items": {"type": "object"}},
                ]
            },
        ),
    ]
    key: Annotated[
        str | None,
        Meta(description="The attribute that tells whose event it is, such as a truck or a symbol."),
    ] = None
    matcher: Annotated[
        Any,
        Meta(
            description="A name, or an object with it as `name` and options. Null: a scan, later an R*-tree.",
            extra_json_schema=_NAMED,
        ),
    ] = None
    controller: Annotated[
        Any,
        Meta(
            description="What chooses the plan of a batch, in the same form. Null: `cost`.",
            extra_json_schema=_NAMED,
        ),
    ] = None
    order: Annotated[
        Any,
        Meta(
            description="In which events of a batch are matched: `shortest`, `fifo` or `longest`.",
            extra_json_schema={"type": "string"},
        ),
    ] = "shortest"
    max_unbounded: Annotated[
        Any,
        Meta(
            description="Most subscriptions that no box bounds; null for any number.",
            extra_json_schema={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        ),
    ] = MAX_UNBOUNDED


class FilterShown(Struct):
    """An existing filter."""

    name: str
    schema: list[dict[str, Any]] | dict[str, Any]
    key: str | None
    matcher: str | dict[str, Any] | None
    controller: str | dict[str, Any] | None
    order: str
    max_unbounded: int | None


class FiltersShown(Struct):
    """All filters, by name."""

    filters: list[FilterShown]


class SubscriptionWanted(_Wanted):
    """A requested subscription."""

    EXAMPLES = [
        {"where": "price > 100 AND symbol = 'ACME'", "metadata": {"color": "red"}, "ttl": 86400},
        {"where": {"symbol": ["ACME"]}, "digest": 60},
    ]
    where: Annotated[
        Any,
        Meta(
            description="An SQL condition, or an event pattern.",
            extra_json_schema={"anyOf": [{"type": "string"}, {"type": "object"}]},
        ),
    ]
    metadata: Annotated[dict[str, Any] | None, Meta(description="To keep beside it.")] = None
    ttl: Annotated[_Seconds | None, Meta(description="Seconds after which it ends by itself.")] = None
    digest: Annotated[
        _Seconds | None, Meta(description="Deliveries come together, every so many seconds.")
    ] = None
    order: Annotated[
        Annotated[str, Meta(pattern="^key$")] | None,
        Meta(description="`key`: events of one key come in published order; the filter has a key then."),
    ] = None


class SubscriptionShown(Struct):
    """An existing subscription."""

    subscription: Annotated[int, Meta(description="Its id.")]
    filter: str
    user: str
    where: str | dict[str, Any]
    metadata: dict[str, Any] | None
    ttl: float | None
    digest: float | None
    order: str | None
    since: Annotated[float, Meta(description="When it was made or last replaced, in seconds since 1970.")]
    expires: Annotated[float | None, Meta(description="When it ends by itself, in seconds since 1970.")]


class SubscriptionsShown(Struct):
    """A page of subscriptions."""

    subscriptions: list[SubscriptionShown]
    next: Next


class Subscribed(Struct):
    """A new subscription."""

    subscription: Annotated[int, Meta(description="Its id.")]


class Replaced(Struct):
    """A replaced subscription."""

    subscription: Annotated[int, Meta(description="Its id, which stays.")]
    expires: Annotated[float | None, Meta(description="When it ends by itself; null where it has no `ttl`.")]


class SubscriptionResult(Struct):
    """The result of one of many subscriptions."""

    subscription: Annotated[int | None, Meta(description="Its id, where it was made.")] = None
    problem: Annotated[Problem | None, Meta(description="What is wrong, where it was not.")] = None


class SubscriptionResults(Struct):
    """The results of many subscriptions, in their order."""

    rows: list[SubscriptionResult]


class Published(Struct):
    """Positions of events in the log."""

    positions: list[int]
    hints: Hints = None


class StoredShown(Struct):
    """A stored event."""

    position: int
    at: Annotated[float, Meta(description="When it arrived, in seconds since 1970.")]
    user: Annotated[str, Meta(description="Who published it.")]
    event: dict[str, Any]


class EventsShown(Struct):
    """A page of stored events."""

    events: list[StoredShown]
    next: Next


class DeliveryShown(Struct, omit_defaults=True, kw_only=True):
    """An event for the user. For a subscription that ended there are `ended` and `reason` instead."""

    position: int
    subscriptions: Annotated[list[int] | None, Meta(description="The user's that match it.")] = None
    filter: str | None = None
    event: dict[str, Any] | None = None
    at: Annotated[float, Meta(description="When it arrived, in seconds since 1970.")]
    response: Annotated[float | None, Meta(description="Seconds until it was known what it matches.")] = None
    redelivered: Annotated[int | None, Meta(description="Times that it was sent before.")] = None
    dropped: Annotated[
        int | None,
        Meta(description="Deliveries that were dropped before this one and not reported yet, if any."),
    ] = None
    ended: Annotated[int | None, Meta(description="The subscription that ended.")] = None
    reason: Annotated[str | None, Meta(description="Why.")] = None


class DeliveriesShown(Struct):
    """A page of deliveries, by position."""

    deliveries: list[DeliveryShown]
    next: Next


class Acknowledgement(_Wanted):
    """Positions of deliveries that have arrived."""

    EXAMPLES = [{"positions": [3, 4]}]
    positions: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=MOST_EVENTS)]


class MatchedIds(Struct):
    """Ids of subscriptions, for each event."""

    matches: list[list[int]]
    hints: Hints = None


class ExplainRequest(_Wanted):
    """An event and a subscription, to explain why they match or not."""

    EXAMPLES = [{"event": {"price": 120.5, "symbol": "ACME"}, "subscription": 2}]
    event: dict[str, Any]
    subscription: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class ExplainAnswer(Struct):
    """The reasons why a subscription matches an event or not."""

    matched: bool
    report: Annotated[list[str], Meta(description="A line for each constraint.")]


class StrategyWanted(_Wanted):
    """The strategy that all sites are to have."""

    EXAMPLES = [{"strategy": "profile_forwarding"}]
    strategy: Annotated[str, Meta(max_length=100)]


class WebhookWanted(_Wanted):
    """The URL to which deliveries are to be sent."""

    EXAMPLES = [{"url": "https://ann.example/deliveries"}]
    url: Annotated[str, Meta(max_length=2000, description="https://host/path")]
