"""Steps of load up to saturation, and what is kept of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, Final

import numpy as np

from experiments import ResultError
from experiments.load.mixed import arrivals
from experiments.load.others import Others, wait_for_quiet
from experiments.service.offer import DEPTH, Line, Offered, offer
from experiments.service.plan import Size, target_of
from experiments.service.wires import delivered, positions
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.replay.output import Row

MOST: Final = 200_000
"""Requests of a closed loop."""
QUIET: Final = 0.15
"""Cores that other processes may use; with more, a step is made once more, and the quieter one counts."""
PATIENCE: Final = 2.0
"""Seconds that are waited for that."""
LONGER: Final = 3
"""Times that the step at half of a target is longer than others: its p99 is judged."""
BUSY: Final = 0.8
"""Share of its core from which the generator may be the limit."""


@dataclass
class Series:
    """A way to send requests to a server.

    Attributes
    ----------
    row : dict
        Its identity: server, door, frame, users, matches and so on.
    lines : sequence of Line
    requests : sequence of bytes
        Each has ``row["frame"]`` events.
    answers : sequence of bytes
        The expected answer to each, if it is always the same.
    listeners : sequence of Line
    deliveries : int64 (number of requests,)
        Deliveries of each request.
    ordered : bool
        True if deliveries are known by their order, and not by positions.
    closed_depth, depth : int
        Requests under way on a connection, in the closed loop and in the open one.
    worked : callable
        CPU seconds of the server so far.
    """

    row: Row
    lines: Sequence[Line]
    requests: Sequence[bytes]
    worked: Callable[[], float]
    answers: Sequence[bytes] = ()
    listeners: Sequence[Line] = ()
    deliveries: IntArray | None = None
    ordered: bool = False
    closed_depth: int = 1
    depth: int = DEPTH

    def expected(self, count: int) -> int:
        """Return the number of deliveries of a number of requests."""
        if self.deliveries is None:
            return 0
        whole, rest = divmod(count, len(self.requests))
        return int(whole * self.deliveries.sum() + self.deliveries[:rest].sum())


def run(series: Series, size: Size, shares: Sequence[float], seed: int) -> list[Row]:
    """Return the capacity in a closed loop, and a row for each step of an open one."""
    frame = series.row["frame"]
    for _ in range(2):  # the first one warms up
        closed = offer(
            series.lines,
            series.requests,
            np.zeros(MOST),
            size.seconds / 2,
            series.listeners,
            depth=series.closed_depth,
            expected=series.expected,
            stop_at_end=True,
        )
        _check(series, closed)
    capacity = len(closed.due) * frame / closed.lasted  # with what was under way in the end
    rows = [series.row | {"closed": True, "offered": None, "answered": capacity}]
    rates = {share * capacity for share in shares}
    target = target_of(series.row["door"]) if series.row["server"] == "rtfilter" else None
    if target is not None and frame > 1:
        rates |= {rate for rate in (target.rate / 2, float(target.rate)) if rate < 1.2 * capacity}
    half = None if target is None else target.rate / 2
    for rate in sorted(rates):
        seconds = size.seconds * (LONGER if rate == half else 1)
        tries = [quiet_step(series, rate, seconds, seed)]
        if tries[0]["others"] > QUIET:
            tries.append(quiet_step(series, rate, seconds, seed))
        rows.append(min(tries, key=lambda row: float(row["others"])))
    return rows


def quiet_step(series: Series, rate: float, seconds: float, seed: int) -> Row:
    """Return a step once other processes rest, or soon; ``others`` is the number of cores they used."""
    wait_for_quiet(QUIET, PATIENCE)
    others, before, own = Others(), series.worked(), process_time()
    row = step(series, rate, seconds, seed)
    return row | {"others": others.cores([series.worked() - before, process_time() - own])}


def step(series: Series, rate: float, seconds: float, seed: int) -> Row:
    """Offer a rate, in events a second, and return its step."""
    due = arrivals(np.random.default_rng([seed, round(rate)]), rate / series.row["frame"], seconds)
    before = series.worked()
    found = offer(
        series.lines,
        series.requests,
        due,
        seconds,
        series.listeners,
        depth=series.depth,
        expected=series.expected,
    )
    worked = series.worked() - before
    _check(series, found)
    return (
        series.row
        | {"closed": False, "offered": rate}
        | summary(series, found)
        | {
            "server_share": worked / found.lasted,
            "generator_share": found.worked / found.lasted,
            "late_ms": float(
                np.nanquantile(np.nan_to_num(found.sent - found.due, nan=found.lasted), 0.99) * 1e3
            ),
            "limit": "generator" if found.worked / found.lasted > BUSY else None,
        }
    )


def summary(series: Series, found: Offered) -> Row:
    """Return rates and response times of a step."""
    frame, window = series.row["frame"], found.window
    answered = ~np.isnan(found.done)
    row: Row = {
        "requests": len(found.due),
        "answered": float((found.done <= window).sum() * frame / window),
        "unanswered": int((~answered).sum()),
        "refused": len(found.refused),
        **percentiles(waited(found), ""),
    }
    if series.deliveries is not None:
        moments = np.array([moment for moment, _ in found.deliveries])
        due = _due_of_deliveries(series, found)
        known = ~np.isnan(due)
        expected = series.expected(len(found.due))
        row |= {
            "delivered": float((moments <= window).sum() / window),
            "undelivered": max(expected - len(moments), 0),
            **percentiles(moments[known] - due[known], "delivery_"),
        }
    return row


def waited(found: Offered) -> FloatArray:
    """Return seconds from when each request was due to its answer, or to the end where none came."""
    done: FloatArray = np.where(np.isnan(found.done), found.lasted, found.done) - found.due
    return done


def percentiles(seconds: FloatArray, prefix: str) -> Row:
    """Return p50, p99 and p99.9 in ms; None if less than one value is above."""
    found: Row = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        enough = len(seconds) * (1 - share) > 0.99
        found[f"{prefix}{name}"] = float(np.quantile(seconds, share) * 1e3) if enough else None
    return found


def _due_of_deliveries(series: Series, found: Offered) -> FloatArray:
    """Return the time at which the request of each delivery was due; NaN where that is unknown."""
    frame = series.row["frame"]
    if series.ordered:
        which = np.arange(len(found.deliveries)) // frame
        known: FloatArray = np.append(found.due, np.nan)[np.minimum(which, len(found.due))]
        return known
    at: list[int] = []
    due: list[float] = []
    refused = set(found.refused)
    for request, body in enumerate(found.answers):
        if body and request not in refused:
            its = positions(body)
            at += its
            due += [float(found.due[request])] * len(its)
    order = np.argsort(at)
    places, moments = np.array(at, np.int64)[order], np.array(due)[order]
    asked = delivered([body for _, body in found.deliveries])
    if not len(places):
        return np.full(len(asked), np.nan)
    row = np.minimum(np.searchsorted(places, asked), len(places) - 1)
    answer: FloatArray = np.where(places[row] == asked, moments[row], np.nan)
    return answer


def _check(series: Series, found: Offered) -> None:
    """Compare answers that are known. Raises `ResultError`."""
    if not series.answers:
        return
    refused = set(found.refused)
    for which, body in enumerate(found.answers):
        right = series.answers[which % len(series.answers)]
        if body and which not in refused and body != right:
            raise ResultError(
                f"a wrong answer of {describe(series.row)}: {body[:200]!r}, not {right[:200]!r}"
            )


def describe(row: Row) -> str:
    """Return a series in a few words."""
    words: list[Any] = [row["server"], row["door"], f"frames of {row['frame']:,}"]
    if row.get("users"):
        words.append(f"{row['users']:,} subscribers")
    if row.get("matches") is not None:
        words.append(f"{row['matches']:.3g} matches an event")
    return ", ".join(words)
