"""The bodies of requests and answers of the control doors, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.service.doors.problems import Problem
from rtfilter.service.records import FilterInfo, Wish

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Id = Annotated[int, Field(ge=1, lt=2**63)]


Hints = Annotated[
    list[str] | None,
    Field(description="Misspelt attributes and values of another type, if there are any."),
]


class _Given(BaseModel):
    """A body in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


_NAMED: Final[dict[str, JsonValue]] = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}


class FilterWanted(_Given):
    """A filter: a named schema, that is a type of events, and how they are matched."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"schema": {"price": "float", "symbol": "str"}, "key": "symbol"},
                {
                    "schema": {"price": "float", "symbol": "str"},
                    "key": "symbol",
                    "matcher": "counting",
                    "controller": {"name": "wang", "rounds": 32, "threshold": 1000},
                },
            ],
        }
    )
    attributes: Any = Field(
        alias="schema",
        json_schema_extra={
            "anyOf": [
                {"type": "object", "minProperties": 1},
                {"type": "array", "minItems": 1, "items": {"type": "object"}},
            ]
        },
        description='Attribute to type: "int", "float", "str", "bool", "timestamp"; or an object with '
        "`type`, `low` and `high`. Or an object with these as `attributes`, and with `strict`: true refuses "
        "events with unknown attributes or with values of another type.",
    )
    key: str | None = Field(
        default=None, description="The attribute that tells whose event it is, such as a truck or a symbol."
    )
    matcher: Any = Field(
        default=None,
        json_schema_extra=_NAMED,
        description="A name, or an object with it as `name` and options. Null: a scan, later an R*-tree.",
    )
    controller: Any = Field(
        default=None,
        json_schema_extra=_NAMED,
        description="What chooses the plan of a batch, in the same form. Null: `cost`.",
    )
    order: Any = Field(
        default="shortest",
        json_schema_extra={"type": "string"},
        description="In which events of a batch are matched: `shortest`, `fifo` or `longest`.",
    )
    max_unbounded: Any = Field(
        default=MAX_UNBOUNDED,
        json_schema_extra={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        description="Most subscriptions that no box bounds; null for any number.",
    )


class FilterShown(BaseModel):
    """An existing filter."""

    name: str
    attributes: list[dict[str, Any]] | dict[str, Any] = Field(alias="schema")
    key: str | None
    matcher: str | dict[str, Any] | None
    controller: str | dict[str, Any] | None
    order: str
    max_unbounded: int | None

    @classmethod
    def of(cls, info: FilterInfo) -> FilterShown:
        """Return the model of a filter."""
        return cls(name=info.name, key=info.key, **info.definition.to_json())


class FiltersShown(BaseModel):
    """All filters, by name."""

    filters: list[FilterShown]


class SubscriptionWanted(_Given):
    """A requested subscription."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"where": "price > 100 AND symbol = 'ACME'", "metadata": {"color": "red"}, "ttl": 86400},
                {"where": {"symbol": ["ACME"]}, "digest": 60},
            ]
        }
    )
    where: Any = Field(
        description="An SQL condition, or an event pattern.",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "object"}]},
    )
    metadata: dict[str, JsonValue] | None = Field(default=None, description="To keep beside it.")
    ttl: Seconds | None = Field(default=None, description="Seconds after which it ends by itself.")
    digest: Seconds | None = Field(
        default=None, description="Deliveries come together, every so many seconds."
    )
    order: Literal["key"] | None = Field(
        default=None, description="Events of one key come in published order; the filter has a key then."
    )

    def wish(self) -> Wish:
        """Return the subscription as the pipeline takes it."""
        return Wish(self.where, self.metadata, self.ttl, self.digest, self.order)


class SubscriptionShown(BaseModel):
    """An existing subscription."""

    subscription: int = Field(description="Its id.")
    filter: str
    user: str
    where: str | dict[str, Any]
    metadata: dict[str, Any] | None
    ttl: float | None
    digest: float | None
    order: str | None
    since: float = Field(description="When it was made or last replaced, in seconds since 1970.")
    expires: float | None = Field(description="When it ends by itself, in seconds since 1970.")


class SubscriptionsShown(BaseModel):
    """A page of subscriptions."""

    subscriptions: list[SubscriptionShown]
    next: str | None = Field(description="Link to the next page, where there may be one.")


class Subscribed(BaseModel):
    """A new subscription."""

    subscription: int = Field(description="Its id.")


class Replaced(BaseModel):
    """A replaced subscription."""

    subscription: int = Field(description="Its id, which stays.")
    expires: float | None = Field(description="When it ends by itself; null where it has no `ttl`.")


class SubscriptionResult(BaseModel):
    """The result of one of many subscriptions."""

    subscription: int | None = Field(default=None, description="Its id, where it was made.")
    problem: Problem | None = Field(default=None, description="What is wrong, where it was not.")


class SubscriptionResults(BaseModel):
    """The results of many subscriptions, in their order."""

    rows: list[SubscriptionResult]


class Published(BaseModel):
    """Positions of events in the log."""

    positions: list[int]
    hints: Hints = None


class StoredShown(BaseModel):
    """A stored event."""

    position: int
    at: float = Field(description="When it arrived, in seconds since 1970.")
    user: str = Field(description="Who published it.")
    event: dict[str, Any]


class EventsShown(BaseModel):
    """A page of stored events."""

    events: list[StoredShown]
    next: str | None = Field(description="Link to the next page, where there is one.")


class DeliveryShown(BaseModel):
    """An event for the user. For a subscription that ended there are `ended` and `reason` instead."""

    position: int
    subscriptions: list[int] | None = Field(default=None, description="The user's that match it.")
    filter: str | None = None
    event: dict[str, Any] | None = None
    at: float = Field(description="When it arrived, in seconds since 1970.")
    response: float | None = Field(default=None, description="Seconds until it was known what it matches.")
    redelivered: int | None = Field(default=None, description="Times that it was sent before.")
    dropped: int | None = Field(
        default=None, description="Deliveries that were dropped before this one and not reported yet, if any."
    )
    ended: int | None = Field(default=None, description="The subscription that ended.")
    reason: str | None = Field(default=None, description="Why.")


class DeliveriesShown(BaseModel):
    """A page of deliveries, by position."""

    deliveries: list[DeliveryShown]
    next: str | None = Field(description="Link to the next page, where there is one.")


class MatchedIds(BaseModel):
    """Ids of subscriptions, for each event."""

    matches: list[list[int]]
    hints: Hints = None


class ExplainRequest(_Given):
    """An event and a subscription, to explain why they match or not."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event": {"price": 120.5, "symbol": "ACME"}, "subscription": 2}]}
    )
    event: dict[str, JsonValue]
    subscription: Id


class ExplainAnswer(BaseModel):
    """The reasons why a subscription matches an event or not."""

    matched: bool
    report: list[str] = Field(description="A line for each constraint.")


class ResponseTimes(BaseModel):
    """A histogram of seconds."""

    bounds: list[float] = Field(description="Upper bounds of the buckets, but the last one.")
    counts: list[int] = Field(description="Events since the start in each bucket.")
    sum: float


class PlanShown(BaseModel):
    """The plan for batches of one class of sizes."""

    size_class: int = Field(description="Batches of so many events, and of less than twice as many.")
    batches: int
    level: int = Field(description="Down to which a batch shares a search of the index.")
    group: int | None = Field(description="Events that are finished together; null for the whole batch.")
    stable: bool = Field(description="True if no other plan is being tried.")


class EstimateShown(BaseModel):
    """Events by their estimated work."""

    nodes: float | None = Field(description="It was at most so many nodes; null where it was more.")
    events: int
    visits: int = Field(description="Nodes that they were compared with.")


class FilterStatus(BaseModel):
    """Counts of a filter since the start."""

    name: str
    subscriptions: int
    height: int | None = Field(default=None, description="Levels of the index.")
    events: int = 0
    matches: int = 0
    response: ResponseTimes | None = None
    plans: list[PlanShown] = []
    estimates: list[EstimateShown] = []


class StageShown(BaseModel):
    """The time that events have spent in a stage since the start."""

    name: str
    count: int = Field(description="Events; or entries of the log, which has changes as well.")
    sum: float = Field(description="Seconds of them all.")


class BehindShown(BaseModel):
    """A user with deliveries that are not acknowledged."""

    user: str
    pending: int
    age: float = Field(description="Seconds since the oldest one arrived.")
    connected: bool = Field(description="True if deliveries are sent at once.")


class Status(BaseModel):
    """The state of the server now. Two of them give the changes in between."""

    version: str
    open: bool = Field(description="True if the server has no users, and accepts every name.")
    uptime: float = Field(description="Seconds since the start.")
    ready: bool
    waiting_entries: int = Field(description="Entries of the log that wait to be matched.")
    waiting_bytes: int = Field(description="Bytes that wait to be written to the log.")
    head: int = Field(description="The last position of the log.")
    settled: int = Field(description="Position up to which all matches are known.")
    subscriptions: int
    delivered: int
    redelivered: int
    acknowledged: int
    dropped: int
    expired: int
    waiting_deliveries: int
    slowest: list[BehindShown] = Field(
        description="Users with the longest backlogs and the oldest deliveries."
    )
    stages: list[StageShown] = Field(description="In the order in which events go through them.")
    filters: list[FilterStatus]


class Health(BaseModel):
    """The state of the server."""

    status: Literal["ok", "starting", "busy", "stopping", "failed"]
