"""The panels of the dashboard and their queries.

`dashboard.py` makes the dashboard from them, `overview.py` draws them. The tests run each query on a real
Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RATE = "[$__rate_interval]"
VARIABLES = ("job", "instance", "filter")
"""Labels by which those who look at the dashboard choose."""


def chosen(*, of: tuple[str, ...] = VARIABLES, **labels: str) -> str:
    """Label matchers: what was chosen on the dashboard by the variables `of`, and these labels."""
    picked = [f'{name}=~"${name}"' for name in of] + [f'{k}="{v}"' for k, v in labels.items()]
    return "{" + ", ".join(picked) + "}"


CHOSEN = chosen()
SERVER = chosen(of=("job", "instance"))
"""For what a server tells of all its filters together."""


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes
    ----------
    title, text : str
        Its name; what it means, and how to see that something is wrong.
    queries : dict of legend to PromQL
        A legend may contain ``{{label}}``.
    unit : str
        Grafana's name of the unit.
    kind : str
        "lines", "heatmap", "bars" (present values) or "number" (one present value).
    limit : float, optional
        Above it something is wrong: a line.
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "lines"
    limit: float | None = None


@dataclass(frozen=True)
class Row:
    """A titled group of panels, closed at first if not everybody has what they show."""

    title: str
    panels: list[Panel] = field(default_factory=list)
    closed: bool = False


def rate(name: str, by: str = "", where: str = CHOSEN) -> str:
    """Increase per second, summed over all labels except `by`."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({name}{where}{RATE}))"


def mean(name: str, by: str = "", where: str = CHOSEN) -> str:
    """Mean of the values in a histogram."""
    return f"{rate(name + '_sum', by, where)} / {rate(name + '_count', by, where)}"


def latest(name: str, by: str = "", how: str = "max", where: str = CHOSEN) -> str:
    """Present value of a gauge: the greatest of all processes, or as `how` says."""
    return f"{how}{f' by ({by}) ' if by else ''}({name}{where})"


RESPONSE = "rtfilter_response_seconds"
SERVICE = "rtfilter_service_"
SITE = "rtfilter_service_site_"
NATS = "rtfilter_nats_"
CLASS = "size_class"
MOMENTS = {"0.1 ms": "0.0001", "1 ms": "0.001", "10 ms": "0.01", "100 ms": "0.1"}


def shares(name: str, bounds: dict[str, str]) -> dict[str, str]:
    """Which share of a histogram's values is at most a bound, by legend; the bounds are some of its own.

    Such shares are exact. Quantiles would be guessed from the ends of the bucket that they fall in.
    """
    return {
        f"within {legend}": f"sum(rate({name}_bucket{chosen(le=bound)}{RATE})) / {rate(name + '_count')}"
        for legend, bound in bounds.items()
    }


LEVEL_CHANGES = f"sum by ({CLASS}) (changes(rtfilter_controller_level{CHOSEN}[1m])) > 0"
"""When the level of a class of batch sizes has changed: an annotation."""


ROWS = [
    Row(
        "Response time",
        [
            Panel(
                "Mean response",
                "Time from the arrival of a batch to the release of an event, mean over events. If it rises "
                "while the traffic is steady, look at Estimation share, Index and In flight.",
                {"mean": mean(RESPONSE)},
                "s",
                "number",
                limit=0.1,
            ),
            Panel(
                "Response",
                "Share of the events that are released within a time of their batch's arrival. If some are "
                "far behind the others, some batches are large, or one class of batch sizes is slow.",
                shares(RESPONSE, MOMENTS),
                "percentunit",
            ),
            Panel(
                "Mean response by batch size",
                "One line for each class of batch sizes, named by its smallest size.",
                {"{{size_class}}": mean(RESPONSE, CLASS)},
                "s",
            ),
            Panel(
                "Responses",
                "How many events took how long.",
                {"{{le}}": f"sum by (le) (increase({RESPONSE}_bucket{CHOSEN}{RATE}))"},
                "s",
                "heatmap",
            ),
            Panel(
                "Batches by mean response",
                "Share of the batches whose mean response is within a time: how much batches differ.",
                shares("rtfilter_batch_response_seconds", MOMENTS),
                "percentunit",
            ),
        ],
    ),
    Row(
        "Batches",
        [
            Panel(
                "Events",
                "Events matched per second, and refused with their batch: a value that no event may have. "
                "Names that stand for an attribute which the event lacks, and values of another type.",
                {
                    "matched": rate("rtfilter_events_total"),
                    "refused": rate("rtfilter_events_refused_total"),
                    "misspelt": rate("rtfilter_values_misspelt_total"),
                    "of another type": rate("rtfilter_values_ill_typed_total"),
                },
                "ops",
            ),
            Panel(
                "Batches by size",
                "Batches per second, by class of batch sizes.",
                {"{{size_class}}": rate("rtfilter_batches_total", CLASS)},
                "ops",
            ),
            Panel(
                "Matches of an event",
                "Mean number of subscriptions that match an event. The work grows with it.",
                {"matches": f"{rate('rtfilter_matches_total')} / {rate('rtfilter_events_total')}"},
            ),
            Panel(
                "Exact checks of an event",
                "Subscriptions that an event is checked against one by one, because no box decides them, "
                "and how many of these did not match. If far more are refused than match, give their "
                "filters a constraint that bounds them; look at Unbounded.",
                {
                    "checked": f"{rate('rtfilter_exact_checks_total')} / {rate('rtfilter_events_total')}",
                    "refused": f"{rate('rtfilter_exact_checks_refused_total')} / "
                    f"{rate('rtfilter_events_total')}",
                },
            ),
            Panel(
                "Time of exact checks",
                "Seconds per second that exact checks take, of all threads, by kind. If python or lists "
                "take the most, look at the dearest subscriptions in the statistics of the filter.",
                {"{{kind}}": rate("rtfilter_exact_check_seconds_total", "kind")},
                "percentunit",
            ),
            Panel(
                "Exact checks by kind",
                "Candidates checked per second: exact ends compared in columns, conditions checked by "
                "compiled code, predicates checked in Python, and missing attributes of lists, in Python.",
                {"{{kind}}": rate("rtfilter_exact_checks_total", "kind")},
                "ops",
            ),
            Panel(
                "In flight",
                "Batches being matched now, at most one per thread. If it stays at that limit, more events "
                "arrive than are matched.",
                {"batches": latest("rtfilter_in_flight_batches", how="sum")},
            ),
        ],
    ),
    Row(
        "Controller",
        [
            Panel(
                "Level",
                "Level of the index down to which a batch shares one traversal, by class of batch sizes. 0 "
                "is the root.",
                {"{{size_class}}": latest("rtfilter_controller_level", CLASS)},
            ),
            Panel(
                "Group",
                "Events that share the rest of the search and are released together. 0 is the whole batch.",
                {"{{size_class}}": latest("rtfilter_controller_group_events", CLASS)},
            ),
            Panel(
                "Probing",
                "1 while a class of batch sizes compares plans. If it is nearly always 1, the class never "
                "settles: responses differ too much to tell plans apart, or change all the time.",
                {"{{size_class}}": latest("rtfilter_controller_probing", CLASS)},
            ),
            Panel(
                "Updates since settled",
                "Index updates since a class of batch sizes last compared plans. A controller that follows "
                "the paper does so again at the threshold.",
                {
                    "{{size_class}}": latest("rtfilter_controller_updates", CLASS),
                    "threshold": latest("rtfilter_controller_threshold_updates"),
                },
            ),
            Panel(
                "Decisions",
                "Transitions between probing and stable, and changes of the plan, per second. Anomalies are "
                "probing loops in which both neighbours were better, a sign of noise.",
                {
                    "transitions": rate("rtfilter_controller_transitions_total"),
                    "plan changes": rate("rtfilter_controller_plan_changes_total"),
                    "tries": rate("rtfilter_controller_tries_total"),
                    "alarms": rate("rtfilter_controller_alarms_total"),
                },
                "ops",
            ),
        ],
    ),
    Row(
        "Estimate",
        [
            Panel(
                "Estimation share",
                "Share of the time of streams that estimates and ordering take. It falls to 0 where the "
                "controller chooses the whole batch as the group. Above a half, compare with "
                "`FixedPlan(0, None)`, the plan without an estimate.",
                {
                    "share": f"{rate('rtfilter_estimation_seconds_sum')} / "
                    f"{rate('rtfilter_stream_seconds_total')}"
                },
                "percentunit",
                limit=0.5,
            ),
            Panel(
                "Estimated workload",
                "Share of the events whose search paths stop at no more than so many index nodes. If all "
                "events are alike, the order gains nothing.",
                shares("rtfilter_workload_nodes", {f"{n} nodes": f"{n}.0" for n in (1, 4, 16, 64, 256)}),
                "percentunit",
            ),
            Panel(
                "Visits by estimate",
                "Nodes that an event visits after the estimate, mean over all events with about this "
                "estimate since the start. It should rise with the estimate.",
                {
                    "{{nodes}}": "sum by (nodes) (rtfilter_estimated_visits_total"
                    f"{CHOSEN}) / sum by (nodes) (rtfilter_estimated_events_total{CHOSEN})"
                },
                kind="bars",
            ),
        ],
    ),
    Row(
        "Index",
        [
            Panel(
                "Subscriptions",
                "Subscriptions in the index, and their boxes. Equal boxes are stored once.",
                {
                    "subscriptions": latest("rtfilter_index_subscriptions"),
                    "boxes": latest("rtfilter_index_boxes"),
                },
            ),
            Panel(
                "Updates",
                "Boxes inserted and deleted; subscriptions added, removed, removed as their time to live was "
                "over, and refused; per second.",
                {
                    "boxes": rate("rtfilter_index_updates_total"),
                    "added": rate("rtfilter_subscriptions_added_total"),
                    "removed": rate("rtfilter_subscriptions_removed_total"),
                    "expired": rate("rtfilter_subscriptions_expired_total"),
                    "refused": rate("rtfilter_subscriptions_refused_total"),
                },
                "ops",
            ),
            Panel(
                "Memory",
                "Memory of the index, and of the whole process.",
                {
                    "index": latest("rtfilter_index_bytes"),
                    "process": latest("process_resident_memory_bytes"),
                },
                "bytes",
                limit=16e9,
            ),
            Panel("Height", "Levels of the index.", {"levels": latest("rtfilter_index_height")}),
            Panel(
                "Unbounded",
                "Subscriptions that nothing bounds, such as bid >= ask alone: each costs an exact check of "
                "nearly every event. The filter refuses more than its max_unbounded.",
                {"subscriptions": latest("rtfilter_index_unbounded")},
            ),
            Panel(
                "Matcher",
                "What finds the subscriptions: processes that use each matcher. It changes only where the "
                'filter was made with matcher="auto"; `stats()["matcher"]` says why.',
                {"{{matcher}}": f"sum by (matcher) (rtfilter_matcher{CHOSEN})"},
            ),
            Panel(
                "Matcher trials",
                "Trials of other matchers, and changes of the matcher, per second; and what trials take of "
                "one core.",
                {
                    "trials": rate("rtfilter_matcher_trials_total"),
                    "changes": rate("rtfilter_matcher_moves_total"),
                    "cores": rate("rtfilter_matcher_trial_seconds_total"),
                },
            ),
        ],
    ),
    Row(
        "Service",
        [
            Panel(
                "Service response",
                "Time from the arrival of an event until it is known what it matches: mean over "
                "all events of a filter. If it rises, see in Time by stage where events wait.",
                {"{{filter}}": mean(f"{SERVICE}response_seconds", "filter")},
                "s",
                limit=0.1,
            ),
            Panel(
                "Service response within",
                "Share of the events of which it is known within a time what they match.",
                shares(f"{SERVICE}response_seconds", MOMENTS),
                "percentunit",
            ),
            Panel(
                "Time by stage",
                "Mean time in each stage. Those before deliver follow each other, and make up the response. "
                "read: the network or the publisher is slow. parse: bodies are large. store: the disk or the "
                "database is slow. queue: more comes than is matched. match: see the rows above.",
                {"{{stage}}": mean(f"{SERVICE}stage_seconds", "stage", SERVER)},
                "s",
            ),
            Panel(
                "Behind",
                "Entries of the log of which it is not known yet what they match, and those of them that no "
                "batch has taken. If they grow, more comes than is matched.",
                {
                    "not settled": f"max({SERVICE}head{SERVER} - {SERVICE}settled{SERVER})",
                    "waiting": latest(f"{SERVICE}waiting_entries", where=SERVER),
                },
            ),
            Panel(
                "Traffic",
                "Events stored; deliveries sent for the first time, and acknowledged; per second.",
                {
                    one: rate(f"{SERVICE}{one}_total", where=SERVER)
                    for one in ("published", "delivered", "acknowledged")
                },
                "ops",
            ),
            Panel(
                "Deliveries again or gone",
                "Sent again; dropped because a backlog had no room; dropped because they were too old; per "
                "second. Whatever is dropped or expired never reaches its subscriber.",
                {
                    one: rate(f"{SERVICE}{one}_total", where=SERVER)
                    for one in ("redelivered", "dropped", "expired")
                },
                "ops",
            ),
            Panel(
                "Webhooks",
                "Requests to webhooks per second, by what became of them; and webhooks that are parked, "
                "which get nothing until their users resume them.",
                {
                    "{{outcome}} a second": rate(f"{SERVICE}webhook_requests_total", "outcome", SERVER),
                    "parked": f'sum({SERVICE}webhooks{SERVER[:-1]}, state="parked"}})',
                },
            ),
            Panel(
                "Backlog",
                "Deliveries that are not acknowledged: of all users, and the most of one. Where the most is "
                "near the bound of a backlog, deliveries are dropped soon, or publishers refused.",
                {
                    "all users": latest(f"{SERVICE}waiting_deliveries", how="sum", where=SERVER),
                    "most of one": latest(f"{SERVICE}longest_backlog", where=SERVER),
                },
            ),
            Panel(
                "Age of the backlog",
                "Age of the oldest delivery that is not acknowledged. If it grows steadily, somebody has "
                "subscriptions and fetches nothing.",
                {"oldest": latest(f"{SERVICE}backlog_oldest_seconds", where=SERVER)},
                "s",
            ),
            Panel(
                "What waits in memory",
                "Size of the deliveries that are not acknowledged, and of what waits to be written.",
                {
                    "backlog": latest(f"{SERVICE}backlog_bytes", how="sum", where=SERVER),
                    "to be written": latest(f"{SERVICE}waiting_bytes", how="sum", where=SERVER),
                },
                "bytes",
            ),
            Panel(
                "Refused",
                "What was refused per second, by door and kind. busy: the server has too much, or its "
                "database fails. limit: a user has or sends too much. The others are mistakes of clients.",
                {"{{kind}}, {{door}}": f"{rate(f'{SERVICE}refused_total', 'kind, door', SERVER)} > 0"},
                "ops",
            ),
            Panel(
                "Connections",
                "Open connections by door, and users who have subscriptions.",
                {
                    "{{door}}": latest(f"{SERVICE}connections", "door", "sum", SERVER),
                    "users": latest(f"{SERVICE}users_with_subscriptions", where=SERVER),
                },
            ),
            Panel(
                "Commit",
                "Mean time of a transaction of the log: that of the disk, or of the way to the database.",
                {"mean": mean(f"{SERVICE}commit_seconds", where=SERVER)},
                "s",
            ),
            Panel(
                "Taken together",
                "Entries that one transaction writes, and that are matched in one batch; means. They grow "
                "with the load, and so the cost of each entry falls.",
                {
                    "transaction": mean(f"{SERVICE}commit_entries", where=SERVER),
                    "batch": mean(f"{SERVICE}batch_entries", where=SERVER),
                },
            ),
            Panel(
                "Tidying",
                "Share of the time in which indexes are written beside the log, and the log is trimmed.",
                {
                    "indexes": rate(f"{SERVICE}index_write_seconds_sum", where=SERVER),
                    "log": rate(f"{SERVICE}trim_seconds_sum", where=SERVER),
                },
                "percentunit",
            ),
            Panel(
                "Ready",
                "Servers that have computed all that they had not at their start; servers that stand by; and "
                "failures of the database per second.",
                {
                    "ready": latest(f"{SERVICE}ready", how="sum", where=SERVER),
                    "standing by": latest(f"{SERVICE}standby", how="sum", where=SERVER),
                    "failures of the database": rate(f"{SERVICE}database_errors_total", where=SERVER),
                },
            ),
        ],
        closed=True,
    ),
    Row(
        "Sites",
        [
            Panel(
                "Sites in the tree",
                "Sites that are at the root or below a parent, those that miss no event, and all that are "
                "scraped. If they differ for long, rtfilter map shows which are cut off.",
                {
                    "in the tree": latest(f"{SITE}reached", how="sum", where=SERVER),
                    "current": latest(f"{SITE}current", how="sum", where=SERVER),
                    "all": latest(f"{SITE}reached", how="count", where=SERVER),
                },
            ),
            Panel(
                "Neighbours",
                "Neighbours that each site has a connection to. One that falls to 0 has lost its network.",
                {"{{instance}}": latest(f"{SITE}neighbours", "instance", where=SERVER)},
            ),
            Panel(
                "Events of other sites",
                "Events of other sites that are stored per second: those that somebody here or behind wants.",
                {"{{instance}}": rate(f"{SITE}events_total", "instance", SERVER)},
                "ops",
            ),
        ],
        closed=True,
    ),
    Row(
        "Spark",
        [
            Panel(
                "Micro-batches",
                "Time from the start of a micro-batch until its result is written: mean, by class of "
                "micro-batch sizes.",
                {"{{size_class}}": mean("rtfilter_spark_batch_seconds", CLASS)},
                "s",
            ),
            Panel(
                "Rows",
                "Events and matches per second. If more is read than matched, the stream falls behind. "
                "The log names events that were left out.",
                {
                    "events": rate("rtfilter_spark_events_total"),
                    "left out": rate("rtfilter_spark_events_left_out_total"),
                    "matches": rate("rtfilter_spark_matches_total"),
                    "read by {{query}}": rate("rtfilter_spark_input_rows_total", "query"),
                },
                "ops",
            ),
            Panel(
                "Balance",
                "Micro-batches per second that were dealt out, or matched where they were, by the reason; "
                "and the slowest core's work as a multiple of the mean, if the last one stays where it is.",
                {
                    "dealt: {{dealt}}, {{reason}}": rate("rtfilter_spark_decisions_total", "dealt, reason"),
                    "slowest / mean": latest("rtfilter_spark_skew"),
                },
            ),
            Panel(
                "Phases",
                "How a query spends its time. addBatch is matching and writing, the rest is Spark's own.",
                {"{{query}} {{phase}}": rate("rtfilter_spark_phase_seconds_total", "query, phase")},
                "percentunit",
            ),
            Panel(
                "Time to a match",
                "Time from the start of a task to a match in it: mean over matches, and the longest of the "
                "last micro-batch.",
                {
                    "mean": f"{rate('rtfilter_spark_offset_seconds_total')} / "
                    f"{rate('rtfilter_spark_matches_total')}",
                    "longest": latest("rtfilter_spark_last_offset_seconds"),
                },
                "s",
            ),
            Panel(
                "Queries",
                "1 while a query runs; and the number of versions of the index that streams have used.",
                {
                    "{{query}}": latest("rtfilter_spark_query_running", "query"),
                    "versions": latest("rtfilter_spark_index_versions_total"),
                },
            ),
        ],
        closed=True,
    ),
    Row(
        "NATS",
        [
            Panel(
                "NATS events",
                "Events matched per second, refused as no event, and messages that the engine has delivered "
                "again. If many come again, workers die, or --ack-wait is short.",
                {
                    "matched": rate(f"{NATS}events_total"),
                    "refused": rate(f"{NATS}events_refused_total"),
                    "delivered again": rate(f"{NATS}redelivered_total"),
                },
                "ops",
            ),
            Panel(
                "NATS response",
                "Mean time from the arrival of a message at a worker until its matches are stored; and its "
                "age when they are known, since the engine has stored it. If only the age is high, more "
                "comes than the workers match: start another.",
                {
                    "{{filter}}": mean(f"{NATS}response_seconds", "filter"),
                    "age, {{filter}}": mean(f"{NATS}age_seconds", "filter"),
                },
                "s",
                limit=0.1,
            ),
            Panel(
                "NATS backlog",
                "Messages that the consumer has not delivered, messages in workers, and messages of matches "
                "that are not stored. If the last stay, the engine has no leader or no room.",
                {
                    "not delivered": latest(f"{NATS}pending"),
                    "in workers": latest(f"{NATS}unacknowledged", how="sum"),
                    "not stored": latest(f"{NATS}matches_unstored", how="sum"),
                },
            ),
            Panel(
                "NATS matches",
                "Messages of matches per second: stored, known to the engine already, and sent again.",
                {
                    "stored": rate(f"{NATS}matches_stored_total"),
                    "known": rate(f"{NATS}matches_duplicate_total"),
                    "sent again": rate(f"{NATS}matches_repeated_total"),
                },
                "ops",
            ),
            Panel(
                "NATS subscriptions",
                "Subscriptions of a worker, those that are refused, and changes that the last batch waited "
                "for.",
                {
                    "subscriptions": latest(f"{NATS}subscriptions"),
                    "refused": latest(f"{NATS}subscriptions_refused"),
                    "behind": latest(f"{NATS}behind"),
                },
            ),
            Panel(
                "NATS batches",
                "Batches per second, new connections, and writes to the bucket after it got another leader.",
                {
                    "batches": rate(f"{NATS}batches_total"),
                    "connections": rate(f"{NATS}reconnects_total"),
                    "writes": rate(f"{NATS}marks_total"),
                },
                "ops",
            ),
        ],
        closed=True,
    ),
]
