"""Figure 4-c of the paper: the mean response by level, on the same batches and on different ones.

In operation each level gets batches of its own. Claims: with small loop counters N the curve of different
events is ragged; as N grows it becomes a valley and merges into the curve of the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence
from experiments.paper.fig4a import have_groups, shown
from experiments.paper.index import GrowingFilter, growing
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import ARRIVAL, batches, calls
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import work
from experiments.response.bursts import in_turns, label
from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.events.table import EventTable
from rtfilter.replay.output import Row, table

MERGED = 0.1
"""Largest difference of the curve with the largest N from the curve of the same events."""
RAGGED, CLEARLY = (4, 16), 0.05
"""Values of N with ragged curves in the paper; curves are ragged if more than this share is no valley."""


def measure(run: Run) -> None:
    """Make the curve of the same events and, for each N, many curves of different ones; then time them."""
    index, profile = growing(run.setting, run.seed), run.profile
    costs = {"visits": 1.0}
    if isinstance(index, GrowingFilter):
        costs["seconds"] = 3.0
    for piece in run.pieces(costs):
        index.grow(profile.middle)
        if piece == "visits":
            levels = index.levels()
            plans = run.setting.plans(levels.height, profile.batch)
            count = 2 * max(profile.rounds) * len(plans)
            points = index.points(0, count * profile.batch).reshape(count, profile.batch, -1)
            response = work(run.setting, levels, points).response
            names = [label(plan, profile.batch) for plan in plans]
            run.keep(piece, in_units(names, response, profile.rounds, profile.repeats, run.seed))
        else:
            assert isinstance(index, GrowingFilter)
            run.keep(piece, in_seconds(run, index))


def in_units(
    names: Sequence[str], response: FloatArray, rounds: Sequence[int], repeats: int, seed: int
) -> list[Row]:
    """Rows of curves from the responses (b, p) of many batches; a curve uses no batch twice."""
    same = [confidence.mean(column) for column in response.T]
    rows: list[Row] = [curve("same", names, response)]
    line = np.array([own.value for own in same])
    rng = np.random.default_rng(seed)
    for count in rounds:
        drawn = np.array([_different(response, count, rng) for _ in range(repeats)])
        off = np.abs(drawn / line - 1).max(axis=1)
        best = drawn.argmin(axis=1)
        rows.append(
            {
                "kind": "visits",
                "events": "different",
                "rounds": count,
                "plans": list(names),
                "mean": drawn[0],
                "off": confidence.mean(off),
                "turned": float(np.mean((np.diff(drawn) > 0) != (np.diff(line) > 0))),
                "ragged": float(np.mean([not is_valley(each) for each in drawn])),
                "wrong": float(np.mean(best != line.argmin())),
                "regret": confidence.mean(line[best] / line.min() - 1),
            }
        )
    return [{**row, "mean": [float(value) for value in row["mean"]]} for row in rows]


def _different(response: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """A curve (p,) in which each plan has `count` other batches."""
    plans = response.shape[1]
    chosen: IntArray = rng.permutation(len(response))[: count * plans].reshape(plans, count)
    return np.array([response[own, p].mean() for p, own in enumerate(chosen)])


def curve(events: str, names: Sequence[str], response: FloatArray, kind: str = "visits") -> Row:
    """A row with the means and intervals of responses (b, p) by plan."""
    means = [confidence.mean(column) for column in response.T]
    return {
        "kind": kind,
        "events": events,
        "rounds": len(response),
        "plans": list(names),
        "mean": [own.value for own in means],
        "low": [own.low for own in means],
        "high": [own.high for own in means],
    }


def is_valley(values: Sequence[float] | FloatArray) -> bool:
    """Whether the values first fall, then rise, and do not turn again."""
    signs = [b > a for a, b in pairwise(values) if a != b]
    return signs == sorted(signs)


def in_seconds(run: Run, index: GrowingFilter) -> list[Row]:
    """Rows of timed curves: on the same batches, and with other batches for each plan."""
    batch, most = run.profile.batch, run.profile.timed_different
    by_name = {name: call for name, call in calls(run, index, batch).items() if name != ARRIVAL}
    taken = in_turns(by_name, batches(index, batch), most, run.tell)
    names = list(by_name)
    rows = [curve("same", names, np.array(list(taken.values())).T, "seconds")]
    separate = []
    for place, (name, call) in enumerate(by_name.items()):
        own: Iterator[EventTable] = batches(index, batch, (place + 1) * most * batch)
        separate.append(in_turns({name: call}, own, most, run.tell)[name])
    response = np.array(separate).T
    return rows + [curve("different", names, response[:count], "seconds") for count in sorted({4, most})]


def text(rows: Sequence[Row]) -> str:
    """The curve of the same events, and how curves of different events differ from it, as tables."""
    same = next(row for row in rows if (row["kind"], row["events"]) == ("visits", "same"))
    seconds = next((row for row in rows if (row["kind"], row["events"]) == ("seconds", "same")), None)
    grouped = is_grouped(rows)
    lines = []
    for p, name in enumerate(same["plans"]):
        line: Row = {"plan": shown(name, grouped), "units": same["mean"][p]}
        line["over"] = same["mean"][p] / min(same["mean"]) - 1
        if seconds is not None:
            line["ms"] = seconds["mean"][p] * 1e3
        lines.append(line)
    columns = {"plan": "level", "units": "work units", "over": "above best", "ms": "ms"}
    different = [
        {
            "rounds": row["rounds"],
            "off": row["off"][0],
            "turned": None if grouped else row["turned"],
            "ragged": None if grouped else row["ragged"],
            "wrong": row["wrong"],
            "regret": row["regret"][0],
        }
        for row in drawn(rows)
    ]
    names = {
        "rounds": "N",
        "off": "largest difference",
        "turned": "steps turned",
        "ragged": "no valley",
        "wrong": "another best",
        "regret": "its regret",
    }
    same_events, others = table(lines, columns), table(different, names)
    return f"same events\n{same_events}\n\ndifferent events, shares of repetitions\n{others}"


def is_grouped(rows: Sequence[Row]) -> bool:
    """Whether the plans have groups."""
    return have_groups(name for row in rows for name in row["plans"])


def drawn(rows: Sequence[Row]) -> list[Row]:
    """The curves of different events in work units, sorted by N."""
    chosen = [row for row in rows if (row["kind"], row["events"]) == ("visits", "different")]
    return sorted(chosen, key=lambda row: row["rounds"])


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Whether curves of different events are ragged for small N and merge for large N."""
    found = drawn(rows)
    many = found[-1]
    same = next(row for row in rows if (row["kind"], row["events"]) == ("visits", "same"))
    shrinks = all(a["off"][0] > b["off"][0] for a, b in pairwise(found))
    made = []
    if not is_grouped(rows):
        valley = is_valley(same["mean"])
        inner = same["plans"][int(np.argmin(same["mean"]))]
        made = [
            Claim(
                "the response by level is a valley, with the best level inside",
                "yes",
                Finding(
                    f"level {shown(inner, False)} of 0 to {len(same['plans']) - 1}; "
                    f"{'a valley' if valley else 'no valley'}; {_in_time(rows)}",
                    "holds" if valley and inner not in (same["plans"][0], same["plans"][-1]) else "fails",
                ),
                NOT_TIMED,
            ),
            Claim(
                "with different events and a small N, curves are ragged",
                "at N = 4 and 16",
                Finding(
                    "no valley in "
                    + ", ".join(f"{percent(row['ragged'])} (N = {row['rounds']})" for row in found),
                    _ragged(found),
                ),
                NOT_TIMED,
            ),
        ]
    return [
        *made,
        Claim(
            "with a larger N, curves merge into that of the same events",
            "yes",
            Finding(
                ", ".join(f"N = {row['rounds']}: within {percent(row['off'][0])}" for row in found),
                "holds" if shrinks and many["off"][0] <= MERGED else "partly" if shrinks else "fails",
            ),
            NOT_TIMED,
        ),
        Claim(
            "a wrong level from few samples costs little",
            "not claimed",
            Finding(
                ", ".join(f"N = {row['rounds']}: {percent(row['regret'][0], 1)}" for row in found), "observed"
            ),
            NOT_TIMED,
        ),
    ]


def _ragged(found: Sequence[Row]) -> str:
    """The verdict: curves are ragged at all N that the paper names, and less so at the largest."""
    named = [row["ragged"] for row in found if row["rounds"] in RAGGED]
    less = found[-1]["ragged"] < max(named, default=0) / 2
    if all(share > CLEARLY for share in named):
        return "holds" if less else "partly"
    return "partly" if any(share > CLEARLY for share in named) else "fails"


def _in_time(rows: Sequence[Row]) -> str:
    timed = next((row for row in rows if (row["kind"], row["events"]) == ("seconds", "same")), None)
    if timed is None:
        return "not timed"
    best = timed["plans"][int(np.argmin(timed["mean"]))]
    return f"in time level {shown(best, False)}"


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the curves, in work units and in time."""
    kinds = [kind for kind in ("visits", "seconds") if any(row["kind"] == kind for row in rows)]
    figure = Figure(figsize=(5.5 * len(kinds), 4), layout="constrained")
    figure.suptitle(title)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        own = [row for row in rows if row["kind"] == kind]
        scale = 1 if kind == "visits" else 1e3
        for row in own:
            _curve(axes, row, scale, is_grouped(rows))
        unit = "work units" if kind == "visits" else "ms"
        axes.set(xlabel="level/group" if is_grouped(rows) else "level", ylabel=f"mean response, {unit}")
        axes.legend(fontsize=8)
    return figure


def _curve(axes: Any, row: Row, scale: float, grouped: bool) -> None:
    names = [shown(name, grouped) for name in row["plans"]]
    mean = scale * np.array(row["mean"])
    if row["events"] == "same":
        axes.plot(names, mean, "k.-", lw=2, label="same events")
        axes.fill_between(
            names, scale * np.array(row["low"]), scale * np.array(row["high"]), color="k", alpha=0.1
        )
    else:
        axes.plot(names, mean, ".--", label=f"different events, N = {row['rounds']}")
    axes.tick_params(axis="x", rotation=90 if grouped else 0)


EXPERIMENT = Experiment("fig4c", "mean response by level", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
