"""What the dashboard shows: rows of panels, each with its queries. No Grafana is needed to read this.

`dashboard.py` makes the dashboard of them, `overview.py` a picture; the tests run every query on a real
Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: What Grafana fills in: the time that a rate is taken over, and the chosen jobs.
RATE, CHOSEN = "[$__rate_interval]", '{job=~"$job"}'


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes
    ----------
    title, text : str
        What it is called, and what it means and when it looks wrong.
    queries : dict of legend to PromQL
        A legend may have ``{{label}}``.
    unit : str
        As Grafana names it.
    kind : str
        "lines", "heatmap", "bars" (the present values) or "number" (the present value).
    """

    title: str
    text: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "lines"


@dataclass(frozen=True)
class Row:
    """Panels beside and below each other, with a title."""

    title: str
    panels: list[Panel] = field(default_factory=list)


def rate(name: str, by: str = "") -> str:
    """Per second, summed over all that is not named."""
    return f"sum{f' by ({by}) ' if by else ''}(rate({name}{CHOSEN}{RATE}))"


def mean(name: str, by: str = "") -> str:
    """Mean of a histogram."""
    return f"{rate(name + '_sum', by)} / {rate(name + '_count', by)}"


def quantile(share: float, name: str, by: str = "") -> str:
    """Quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(name + '_bucket', labels)})"


def latest(name: str, by: str = "", how: str = "max") -> str:
    """Present value of a gauge, over processes."""
    return f"{how}{f' by ({by}) ' if by else ''}({name}{CHOSEN})"


RESPONSE = "rtfilter_response_seconds"
CLASS = "size_class"
QUANTILES = {"median": 0.5, "90 %": 0.9, "99 %": 0.99}


def quantiles(name: str) -> dict[str, str]:
    """Queries for some quantiles of a histogram, by their legends."""
    return {legend: quantile(share, name) for legend, share in QUANTILES.items()}


ROWS = [
    Row(
        "Response time",
        [
            Panel(
                "Mean response",
                "From the arrival of a batch to the release of each of its events, mean over events: what "
                "rtfilter is for. Rising with steady traffic: look at estimation share, index, in flight.",
                {"mean": mean(RESPONSE)},
                "s",
                "number",
            ),
            Panel(
                "Response",
                "Quantiles over events. A far 99 % beside a low median: large batches, or a dear class.",
                quantiles(RESPONSE),
                "s",
            ),
            Panel(
                "Mean response by batch size",
                "One line for each class of batch sizes (its least size).",
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
                "Mean response of a batch",
                "Quantiles over batches: how even the service is from batch to batch.",
                quantiles("rtfilter_batch_response_seconds"),
                "s",
            ),
        ],
    ),
    Row(
        "Batches",
        [
            Panel("Events", "Matched in a second.", {"events": rate("rtfilter_events_total")}, "ops"),
            Panel(
                "Batches by size",
                "Batches in a second, by class of size.",
                {"{{size_class}}": rate("rtfilter_batches_total", CLASS)},
                "ops",
            ),
            Panel(
                "Matches of an event",
                "Mean number of subscriptions that match. Work grows with it whatever the index does.",
                {"matches": f"{rate('rtfilter_matches_total')} / {rate('rtfilter_events_total')}"},
            ),
            Panel(
                "In flight",
                "Batches being matched now, at most one for each thread of yours. At that limit all "
                "the time: more arrives than is matched.",
                {"batches": latest("rtfilter_in_flight_batches", how="sum")},
            ),
        ],
    ),
    Row(
        "Controller",
        [
            Panel(
                "Level",
                "Level of the index that a class of batches shares a traversal to, 0 the root.",
                {"{{size_class}}": latest("rtfilter_controller_level", CLASS)},
            ),
            Panel(
                "Group",
                "Events that share the rest of the search and are released together; 0 is the whole batch.",
                {"{{size_class}}": latest("rtfilter_controller_group_events", CLASS)},
            ),
            Panel(
                "Probing",
                "1 while a class compares plans. Always 1: it never settles; raise `rounds` or `threshold`.",
                {"{{size_class}}": latest("rtfilter_controller_probing", CLASS)},
            ),
            Panel(
                "Updates since settled",
                "Index updates since a class became stable. At the threshold it doubts its plan and probes.",
                {
                    "{{size_class}}": latest("rtfilter_controller_updates", CLASS),
                    "threshold": latest("rtfilter_controller_threshold_updates"),
                },
            ),
            Panel(
                "Decisions",
                "Changes between probing and stable, and of the plan, in a second; anomalies are loops in "
                "which both neighbours were better, a sign of noise.",
                {
                    "transitions": rate("rtfilter_controller_transitions_total"),
                    "plan changes": rate("rtfilter_controller_plan_changes_total"),
                    "anomalies": rate("rtfilter_controller_anomalies_total"),
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
                "Of the time of streams. Above a fifth, the level is too deep for what ordering gains.",
                {
                    "share": f"{rate('rtfilter_estimation_seconds_sum')} / "
                    f"{rate('rtfilter_stream_seconds_total')}"
                },
                "percentunit",
            ),
            Panel(
                "Estimated workload",
                "Index nodes at which an event's paths stop, quantiles over events. All alike: there is "
                "nothing to order by.",
                quantiles("rtfilter_workload_nodes"),
            ),
            Panel(
                "Visits by estimate",
                "Nodes really visited after the estimate, mean over events of each class of estimates, "
                "since the start. It should rise with the estimate.",
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
                "In the index, and boxes that they are made of.",
                {
                    "subscriptions": latest("rtfilter_index_subscriptions"),
                    "boxes": latest("rtfilter_index_boxes"),
                },
            ),
            Panel(
                "Updates",
                "Boxes inserted and deleted, subscriptions added and removed, in a second.",
                {
                    "boxes": rate("rtfilter_index_updates_total"),
                    "added": rate("rtfilter_subscriptions_added_total"),
                    "removed": rate("rtfilter_subscriptions_removed_total"),
                },
                "ops",
            ),
            Panel("Memory", "Of the index.", {"bytes": latest("rtfilter_index_bytes")}, "bytes"),
            Panel("Height", "Levels of the index.", {"levels": latest("rtfilter_index_height")}),
        ],
    ),
    Row(
        "Spark",
        [
            Panel(
                "Micro-batches",
                "Time from the start of a micro-batch until its result is written, quantiles over batches.",
                quantiles("rtfilter_spark_batch_seconds"),
                "s",
            ),
            Panel(
                "Rows",
                "Events and matches in a second. Input above what is processed: the stream falls behind.",
                {
                    "events": rate("rtfilter_spark_events_total"),
                    "matches": rate("rtfilter_spark_matches_total"),
                    "read by {{query}}": rate("rtfilter_spark_input_rows_total", "query"),
                },
                "ops",
            ),
            Panel(
                "Partitions",
                "What the controller of a stream chose by size of micro-batch: 0 where the events are, 1 one "
                "partition, 2 two, 3 four, and so on.",
                {"{{size_class}}": latest("rtfilter_spark_controller_level", CLASS)},
            ),
            Panel(
                "Phases",
                "Where a query's time goes: addBatch is matching and writing, the rest Spark's own.",
                {"{{query}} {{phase}}": rate("rtfilter_spark_phase_seconds_total", "query, phase")},
                "percentunit",
            ),
            Panel(
                "Time to a match",
                "From the start of a task to a match within it, mean over matches, and the longest of the "
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
                "1 while a query runs, and versions of the index that streams have seen.",
                {
                    "{{query}}": latest("rtfilter_spark_query_running", "query"),
                    "versions": latest("rtfilter_spark_index_versions_total"),
                },
            ),
        ],
    ),
]
