"""Tables of the results: as text for a terminal, and as Markdown in ``docs/load.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from experiments import output
from experiments.output import outcome
from experiments.service.peers import JETSTREAM, NATS
from experiments.service.plan import FRAME, P99, TARGETS, Target
from rtfilter.replay.output import Row, save_picture, table

CORE: Final = {
    "match, JSON": "match_batch of objects",
    "match, JSON lines": "match_batch of objects",
    "match, Arrow": "match_batch of Arrow",
}
"""The equivalent work of the core alone, by door."""


def series(rows: Sequence[Row], *parts: str) -> dict[str, list[Row]]:
    """Return the rows of each job whose name begins so."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["job"].startswith(parts) and row["server"] != "core":
            found.setdefault(row["job"], []).append(row)
    return found


def rate(row: Row) -> float:
    """Return events a second that were answered and, where they are delivered, delivered."""
    answered: float = row["answered"]
    delivered: float | None = row.get("delivered")
    if delivered is None:
        return answered
    return min(answered, delivered / float(row["deliveries"]))


def reached(rows: Sequence[Row]) -> float:
    """Return the most of any step, and of the closed loop, whose time lasts until all is delivered."""
    return max(map(rate, rows))


def near(rows: Sequence[Row], offered: float) -> Row | None:
    """Return the step of an offered load, if it was measured."""
    found = [row for row in rows if row["offered"] and abs(row["offered"] / offered - 1) < 0.01]
    return min(found, key=lambda row: abs(row["offered"] - offered), default=None)


def worst(row: Row | None, name: str) -> float | None:
    """Return a percentile of answers or of deliveries, whichever is longer."""
    if row is None:
        return None
    values = [row.get(name), row.get(f"delivery_{name}")]
    return max((value for value in values if value is not None), default=None)


def targets(rows: Sequence[Row]) -> list[Row]:
    """Return each target and the result, by way and frame; the best way of a target has its verdict."""
    found: list[Row] = []
    for target in TARGETS:
        ways = [
            _way(target, some)
            for some in series(rows, "match ", "publish ").values()
            if some[0]["door"] in target.doors and some[0]["frame"] > 1
        ]
        if not ways:
            continue
        found += ways
        if any(way["both"] for way in ways):
            best = next(way for way in ways if way["both"])
        else:
            best = max(ways, key=lambda way: float(way["reached"]))
        best["verdict"] = outcome(best["both"])
    return found


def _way(target: Target, rows: Sequence[Row]) -> Row:
    most = reached(rows)
    half = near(rows, target.rate / 2)
    p99 = worst(half, "p99")
    return {
        "target": target.name,
        "door": rows[0]["door"],
        "frame": rows[0]["frame"],
        "wanted": target.rate,
        "reached": most,
        "p50": worst(half, "p50"),
        "p99": p99,
        "both": most >= target.rate and p99 is not None and p99 < P99,
        "verdict": None,
    }


def doors(rows: Sequence[Row]) -> list[Row]:
    """Return each way to match: what it reaches, beside the core alone, and its response times."""
    core = {(row["door"], row["frame"]): row for row in rows if row["server"] == "core"}
    found = []
    for some in series(rows, "match ").values():
        first, most = some[0], reached(some)
        alone = core.get((CORE[first["door"]], first["frame"]))
        found.append(
            first
            | {
                "reached": most,
                "us": 1e6 / most,
                "core_us": None if alone is None else alone["us"],
                "share": None if alone is None else f"{100 * max(0.0, 1 - alone['us'] * most / 1e6):.0f} %",
                **_at(some),
            }
        )
    return found


def core(rows: Sequence[Row]) -> list[Row]:
    """Return the core alone."""
    return [row | {"reached": row["answered"]} for row in rows if row["server"] == "core"]


def published(rows: Sequence[Row], *parts: str) -> list[Row]:
    """Return each way to publish: what it reaches, and response times of answers and deliveries."""
    return [
        some[0] | {"reached": reached(some), **_at(some)}
        for some in series(rows, *parts).values()
        if some[0]["door"].startswith("publish")
    ]


def varied(rows: Sequence[Row], *parts: str) -> list[Row]:
    """Return the table of `match` by matches per event."""
    return [
        some[0] | {"reached": reached(some), **_at(some)}
        for some in series(rows, *parts).values()
        if some[0]["door"].startswith("match")
    ]


def peers(rows: Sequence[Row]) -> list[Row]:
    """Return the peers, beside the ways of ours that do the same."""
    found = []
    for name, some in series(rows, "match application/x-ndjson", "fastapi", "postgresql").items():
        if name == "postgresql":
            best = max((row for row in some if row["closed"]), key=rate)
            for row in (row for row in some if row["closed"]):
                steps = [one for one in some if one["door"] == row["door"]]
                found.append(row | {"reached": max(map(rate, steps)), **(_at(steps) if row is best else {})})
        elif some[0]["frame"] <= 100:
            found.append(some[0] | {"reached": reached(some), **_at(some)})
    for some in series(rows, "publish ", "nats", "jetstream").values():
        if some[0]["frame"] > 1:
            found += [some[0] | {"reached": reached(some), **_at(some)}]
    return found


def steps(rows: Sequence[Row]) -> list[Row]:
    """Return all steps of the ways in frames of 100."""
    found = []
    for some in series(rows, "match application/x-ndjson", "publish HTTP").values():
        if some[0]["frame"] == 100:
            found += [row | _percentiles(row) for row in some if not row["closed"]]
    return found


def _at(rows: Sequence[Row]) -> Row:
    """Return response times at half of the reached rate, or at the nearest step."""
    most = reached(rows)
    open_steps = [row for row in rows if not row["closed"]]
    if not open_steps:
        return {}
    step = min(open_steps, key=lambda row: abs(row["offered"] - most / 2))
    return {"offered": step["offered"], **_percentiles(step)}


def _percentiles(step: Row) -> Row:
    found = {name: step.get(name) for name in ("p50", "p99", "p99.9")}
    return found | {f"delivery_{name}": step.get(f"delivery_{name}") for name in ("p50", "p99", "p99.9")}


WAYS: Final = {"server": "server", "door": "door", "frame": "frame"}
TIMES: Final = {"offered": "at events/s", "p50": "p50, ms", "p99": "p99, ms", "p99.9": "p99.9, ms"}
DELIVERIES: Final = {
    "delivery_p50": "delivered p50, ms",
    "delivery_p99": "p99, ms",
    "delivery_p99.9": "p99.9, ms",
}
TABLES: Final[Mapping[str, tuple[Callable[[Sequence[Row]], list[Row]], Mapping[str, str]]]] = {
    "targets": (
        targets,
        {
            "target": "target",
            "door": "door",
            "frame": "frame",
            "wanted": "wanted, events/s",
            "reached": "reached",
            "p50": "p50 at half of the target, ms",
            "p99": "p99",
            "verdict": "verdict",
        },
    ),
    "match": (
        doors,
        {
            "door": "door",
            "frame": "frame",
            "reached": "events/s",
            "us": "us an event",
            "core_us": "core alone",
            "share": "service's share",
            **TIMES,
        },
    ),
    "core": (core, {"door": "core alone", "frame": "frame", "us": "us an event", "reached": "events/s"}),
    "publish": (
        lambda rows: published(rows, "publish "),
        {"door": "door", "frame": "frame", "reached": "events/s", **TIMES, **DELIVERIES},
    ),
    "subscribers": (
        lambda rows: published(rows, "subscribers "),
        {
            "users": "subscribers",
            "deliveries": "deliveries an event",
            "reached": "events/s",
            **TIMES,
            **DELIVERIES,
        },
    ),
    "matches": (
        lambda rows: published(rows, "matches "),
        {
            "matches": "matches an event",
            "deliveries": "deliveries an event",
            "reached": "events/s",
            **TIMES,
            **DELIVERIES,
        },
    ),
    "match-matches": (
        lambda rows: varied(rows, "matches "),
        {"matches": "matches an event", "reached": "events/s", **TIMES},
    ),
    "peers": (peers, {**WAYS, "reached": "events/s", **TIMES, **DELIVERIES}),
    "steps": (
        steps,
        {
            "door": "door",
            "offered": "offered, events/s",
            "answered": "answered",
            "p50": "p50, ms",
            "p99": "p99, ms",
            "p99.9": "p99.9, ms",
            **DELIVERIES,
            "server_share": "of the server's core",
            "generator_share": "of the generator's",
        },
    ),
}
"""By name: the rows, and the heading of each column."""


def text(rows: Sequence[Row]) -> str:
    """Return all tables, as text."""
    parts = []
    for name, (make, columns) in TABLES.items():
        found = make(rows)
        if found:
            parts.append(f"{name}\n" + table(found, columns))
    limited = sorted({row["job"] for row in rows if row.get("limit")})
    if limited:
        parts.append(f"the generator may be the limit of: {', '.join(limited)}")
    return "\n\n".join(parts)


def filled(page: str, kept: Mapping[str, Any]) -> str:
    """Return a page with new tables; see `experiments.output`."""
    parts = {name: partial(_part, *table) for name, table in TABLES.items()}
    return output.filled(page, kept, parts)


def _part(make: Callable[[Sequence[Row]], list[Row]], columns: Mapping[str, str], rows: Sequence[Row]) -> str:
    return output.markdown(make(rows), columns)


PANELS: Final = (
    ("match: p99 of answers", ("match ",), "p99"),
    ("publish, one match an event: p99 of deliveries", ("publish ",), "delivery_p99"),
    ("peers: p99", ("match application/x-ndjson 100", "fastapi", "postgresql", "nats", "jetstream"), "p99"),
)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for `match`, for publishing and for peers, with a line for each way."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(10, 12), layout="constrained")
    for axes, (title, parts, name) in zip(picture.subplots(len(PANELS)), PANELS, strict=True):
        for number, some in enumerate(series(rows, *parts).values()):
            named = "delivery_p99" if some[-1]["server"] in (NATS, JETSTREAM) else name
            steps = [row for row in some if row.get(named) is not None]
            if not steps or (parts[1:] and steps[0]["frame"] > FRAME):
                continue
            first = steps[0]
            label = f"{first['door']}, frames of {first['frame']:,}"
            if parts[1:]:
                label = f"{first['server']}: {label}"
            x, y = [row["offered"] for row in steps], [row[named] for row in steps]
            axes.loglog(x, y, marker="osD^vP*X"[number % 8], label=label)
        axes.axhline(P99, color="grey", linestyle=":", linewidth=1)
        axes.set_title(title)
        axes.set_xlabel("offered load, events a second")
        axes.set_ylabel("ms from when due")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:  # none where no step was sustained
            axes.legend(fontsize=8)
    save_picture(picture, path, 110)
