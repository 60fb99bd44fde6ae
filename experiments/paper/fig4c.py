"""Figure 4-c of the paper: the mean response by level, on the same batches and on different ones.

In operation each level gets batches of its own. Claims: with small loop counters N the curve of different
events is ragged; as N grows it becomes a valley and merges into the curve of the same events.

In work units, curves of different events are drawn from many batches that all plans are counted on. In time,
each level really runs batches of its own, which are of fewer events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence, verdicts
from experiments.paper.index import GrowingFilter, growing
from experiments.paper.plans import have_groups, judged, level_of, mark, shown
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import SETTINGS
from experiments.paper.times import ORDER_NAMES
from experiments.paper.timing import ORDERS, batches, best_plans, calls, in_turns, names, ordered, responses
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import work
from experiments.response.bursts import label
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.replay.output import Row, table

TOGETHER = 8
"""Batches of both kinds take turns in time, this many of a kind at once."""
ENOUGH = 8
"""A share of fewer curves than this is told, but not judged."""
KINDS = {"visits": "units", "seconds": "time"}


def measure(run: Run) -> None:
    """Make the curve of the same events and, for each N, many curves of different ones, in both units."""
    index, profile = growing(run.setting, run.seed), run.profile
    costs = {"visits": 1.0} | ({} if run.setting.transformed else {"seconds": 3.0})
    for piece in run.pieces(costs):
        index.grow(profile.middle)
        if piece == "visits":
            levels = index.levels()
            plans = run.setting.plans(levels.height, profile.batch)
            count = 2 * max(profile.rounds) * len(plans)
            points = index.points(0, count * profile.batch).reshape(count, profile.batch, -1)
            labels = [label(plan, profile.batch) for plan in plans]
            response = work(run.setting, levels, points).response
            rows = drawn_curves(piece, labels, response, profile.rounds, profile.repeats, run.seed)
        else:
            assert isinstance(index, GrowingFilter)
            rows = timed(run, index)
        run.keep(piece, rows)


def timed(run: Run, index: GrowingFilter) -> list[Row]:
    """Return rows of curves in time: all plans on the same batches, then each plan on batches of its own."""
    profile, batch = run.profile, run.setting.live
    by_name, plans = calls(run, index, batch), names(run, index.filter.tree.height, batch)
    arriving = batches(index, batch)
    every = {name: by_name[name] for name in plans}
    first = responses(in_turns(every, arriving, lambda _: profile.first, run.tell))
    best = best_plans(first, index.filter.tree.height)["judged"]
    orders = {ORDER_NAMES[order]: ordered(best, order) for order in ORDERS}
    count = max(profile.rounds) * profile.searches
    wanted = every | {name: by_name[name] for name in orders.values()}
    same: dict[str, list[float]] = {name: [] for name in wanted}
    own: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(-(-count // TOGETHER)):
        for name, taken in responses(in_turns(wanted, arriving, lambda _: TOGETHER, run.tell)).items():
            same[name] += taken
        for name, call in every.items():
            own[name] += responses(in_turns({name: call}, arriving, lambda _: TOGETHER, run.tell))[name]
        run.advance(TOGETHER / count)
    drawn = np.array([own[name][:count] for name in plans]).T
    means = {n: drawn[: count // n * n].reshape(-1, n, len(plans)).mean(axis=1) for n in profile.rounds}
    rows = curves("seconds", plans, np.array([same[name] for name in plans]).T, means)
    rows[0]["orders"] = {
        order: {"plan": best, "own": confidence.mean(same[name], 0)} for order, name in orders.items()
    }
    return [row | {"batch": batch} for row in rows]


def drawn_curves(
    kind: str, names: Sequence[str], response: FloatArray, rounds: Sequence[int], repeats: int, seed: int
) -> list[Row]:
    """Return rows of curves from the responses (b, p) of many batches.

    A curve of different events uses no batch twice, so there is none for N that needs more than b batches.
    """
    rng = np.random.default_rng(seed)
    fitting = [count for count in rounds if count * len(names) <= len(response)]
    drawn = {n: np.array([_different(response, n, rng) for _ in range(repeats)]) for n in fitting}
    return curves(kind, names, response, drawn)


def curves(
    kind: str, names: Sequence[str], response: FloatArray, different: Mapping[int, FloatArray]
) -> list[Row]:
    """Return rows of the curve of the same events, and of curves of different ones.

    Parameters
    ----------
    kind : str
        ``visits`` or ``seconds``.
    names : sequence of str
        The p plans.
    response : float64 (b, p)
        Responses of the same batches.
    different : mapping of int to float64 (c, p)
        Curves by N, the number of batches that each plan has of its own.
    """
    height = 1 + max(level_of(name) for name in names)
    same = [confidence.mean(column, 0) for column in response.T]
    line = np.array([own.value for own in same])
    among = {
        key: [list(names).index(name) for name in chosen]
        for key, chosen in {"judged": judged(names, height), "all": list(names)}.items()
    }
    best = min(among["judged"], key=lambda p: float(line[p]))
    rows: list[Row] = [
        {
            "kind": kind,
            "events": "same",
            "rounds": len(response),
            "plans": list(names),
            "height": height,
            "mean": line.tolist(),
            "low": [own.low for own in same],
            "high": [own.high for own in same],
            "over": [confidence.slower(column, response[:, best]) for column in response.T],
        }
    ]
    for count, drawn in different.items():
        rows.append(
            {
                "kind": kind,
                "events": "different",
                "rounds": count,
                "plans": list(names),
                "curves": len(drawn),
                "mean": drawn[0].tolist(),
                **{key: _differing(drawn[:, own], line[own]) for key, own in among.items()},
            }
        )
    return rows


def _differing(drawn: FloatArray, line: FloatArray) -> Row:
    """Return the differences of curves, float64 (repeats, p), from the curve of the same events."""
    best = drawn.argmin(axis=1)
    return {
        "off": confidence.mean(np.abs(drawn / line - 1).max(axis=1), 0),
        "turned": float(np.mean((np.diff(drawn) > 0) != (np.diff(line) > 0))) if len(line) > 1 else 0.0,
        "ragged": float(np.mean([not is_valley(each) for each in drawn])),
        "wrong": float(np.mean(best != line.argmin())),
        "regret": confidence.mean(line[best] / line.min() - 1, 0),
    }


def _different(response: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    """Return a curve (p,) in which each plan has `count` other batches."""
    plans = response.shape[1]
    chosen: IntArray = rng.permutation(len(response))[: count * plans].reshape(plans, count)
    return np.array([response[own, p].mean() for p, own in enumerate(chosen)])


def is_valley(values: Sequence[float] | FloatArray) -> bool:
    """Return whether the values first fall, then rise, and do not turn again."""
    signs = [b > a for a, b in pairwise(values) if a != b]
    return signs == sorted(signs)


def is_grouped(rows: Sequence[Row]) -> bool:
    """Return whether the plans have groups."""
    return have_groups(name for row in rows for name in row["plans"])


def same_events(rows: Sequence[Row], kind: str) -> Row | None:
    """Return the curve of the same events; None if there is none."""
    return next((row for row in rows if (row["kind"], row["events"]) == (kind, "same")), None)


def different(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the curves of different events, sorted by N."""
    chosen = [row for row in rows if (row["kind"], row["events"]) == (kind, "different")]
    return sorted(chosen, key=lambda row: row["rounds"])


def text(rows: Sequence[Row]) -> str:
    """Return the curves of the same events, and the differences of other curves, as tables."""
    units, seconds = same_events(rows, "visits"), same_events(rows, "seconds")
    assert units is not None
    grouped = is_grouped(rows)
    lines = []
    for p, name in enumerate(units["plans"]):
        line: Row = {"plan": shown(name, grouped), "units": units["mean"][p], "over": _excess(units, p)}
        if seconds is not None:
            line |= {"ms": seconds["mean"][p] * 1e3, "slower": _excess(seconds, p)}
        if name not in judged(units["plans"], units["height"]):
            line["range"] = "leaf level, not in the paper"
        lines.append(line)
    columns = {"plan": "level", "units": "work units", "over": "above best"}
    columns["ms"] = f"ms, {seconds['batch']} events" if seconds and "batch" in seconds else "ms"
    columns |= {"slower": "above best in time", "range": ""}
    if grouped:
        del columns["range"]
    parts = [
        "same events; above the best " + ("plan" if grouped else "level of the paper's range"),
        table(lines, {key: name for key, name in columns.items() if any(key in own for own in lines)}),
    ]
    names = {
        "unit": "unit",
        "rounds": "N",
        "curves": "curves",
        "off": "largest difference",
        "turned": "steps turned",
    }
    names |= {"ragged": "no valley", "wrong": "another best", "regret": "its regret"}
    if grouped:
        del names["turned"], names["ragged"]
    lines = [
        {"unit": unit, "rounds": row["rounds"], "curves": row["curves"]}
        | {key: percent(value if isinstance(value, float | int) else value[0], 1)
           for key, value in row["judged"].items()}
        for kind, unit in KINDS.items() for row in different(rows, kind)
    ]  # fmt: skip
    where = "" if grouped else ", within the paper's range"
    return "\n".join([*parts, "", f"different events, shares of repetitions{where}", table(lines, names)])


def _excess(row: Row, p: int) -> str:
    value, low, high = row["over"][p]
    return f"{percent(value)} ({100 * low:.0f}..{100 * high:.0f})"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims: curves of different events are ragged for small N and merge for large N."""
    made = []
    if not is_grouped(rows):
        made = [
            Claim(
                "the response by level is a valley, with the best level inside",
                "yes",
                *(_valley(same_events(rows, kind)) for kind in KINDS),
            ),
            Claim(
                "with different events and a small N, curves are ragged",
                "at N = 4 and 16",
                *(_ragged(different(rows, kind)) for kind in KINDS),
            ),
        ]
    return [
        *made,
        Claim(
            "with a larger N, curves merge into that of the same events",
            "yes",
            *(_merging(different(rows, kind)) for kind in KINDS),
        ),
        Claim(
            "a wrong level from few samples costs little",
            "",
            *(_regret(different(rows, kind)) for kind in KINDS),
        ),
    ]


def _valley(row: Row | None) -> Finding:
    """Return whether the curve is a valley in the paper's range, with both ends surely above the best."""
    if row is None:
        return NOT_TIMED
    names = judged(row["plans"], row["height"])
    if len(names) < 3:
        return Finding(f"only {len(names)} levels", verdicts.DOES_NOT_APPLY)
    line = [row["mean"][row["plans"].index(name)] for name in names]
    best = int(np.argmin(line))
    ends = [row["over"][row["plans"].index(name)] for name in (names[0], names[-1])]
    valley, inside = is_valley(line), 0 < best < len(line) - 1
    sure = inside and all(low > 0 for _, low, _ in ends)
    every = row["plans"][int(np.argmin(row["mean"]))]
    told = f"level {best} of 0 to {len(line) - 1}, {'a valley' if valley else 'no valley'}"
    if inside and not sure:
        told += ", not told apart from an end"
    verdict = verdicts.HOLDS if valley and sure else verdicts.PARTLY if inside else verdicts.FAILS
    return Finding(f"{told}; of all levels {level_of(every)}", verdict)


def _ragged(found: Sequence[Row]) -> Finding:
    if not found:
        return NOT_TIMED
    shares = {row["rounds"]: row["judged"]["ragged"] for row in found}
    curves = {row["rounds"]: row["curves"] for row in found}
    told = "no valley in " + ", ".join(
        f"{percent(share)} of {curves[count]} (N = {count})" for count, share in shares.items()
    )
    enough = {count: share for count, share in shares.items() if curves[count] >= ENOUGH}
    return Finding(told, verdicts.ragged(enough) if len(enough) > 1 else verdicts.CANNOT)


def _merging(found: Sequence[Row]) -> Finding:
    if not found:
        return NOT_TIMED
    shrinks = all(a["judged"]["off"][0] > b["judged"]["off"][0] for a, b in pairwise(found))
    told = ", ".join(f"N = {row['rounds']}: within {percent(row['judged']['off'][0])}" for row in found)
    merged = verdicts.negligible([found[-1]["judged"]["off"]])
    return Finding(told, merged if shrinks else verdicts.FAILS)


def _regret(found: Sequence[Row]) -> Finding:
    if not found:
        return NOT_TIMED
    told = ", ".join(f"N = {row['rounds']}: {percent(row['judged']['regret'][0], 1)}" for row in found)
    return Finding(told, verdicts.OBSERVED)


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the curves, in work units and in time."""
    kinds = [kind for kind in KINDS if same_events(rows, kind) is not None]
    grouped = is_grouped(rows)
    figure = Figure(figsize=((7 if grouped else 5.5) * len(kinds), 4.8), layout="constrained")
    figure.suptitle(title)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        scale = 1 if kind == "visits" else 1e3
        row = same_events(rows, kind)
        assert row is not None
        names = row["plans"] if grouped else list(range(len(row["plans"])))
        for own in [row, *different(rows, kind)]:
            _curve(axes, names, own, scale)
        for place, (order, found) in enumerate(row.get("orders", {}).items()):
            at = found["plan"] if grouped else level_of(found["plan"])
            axes.plot([at], [scale * found["own"][0]], "v^"[place], color="tab:red", label=f"best, {order}")
        mark(axes, row["height"], row["plans"] if grouped else None)
        unit = "work units" if kind == "visits" else "ms"
        axes.set(xlabel="level/group" if grouped else "level", ylabel=f"mean response, {unit}")
        axes.tick_params(axis="x", rotation=90 if grouped else 0)
        axes.legend(
            fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.24 if grouped else -0.14)
        )
    return figure


def _curve(axes: Any, names: Sequence[str | int], row: Row, scale: float) -> None:
    mean = scale * np.array(row["mean"])
    if row["events"] == "same":
        axes.plot(names, mean, "k.-", lw=2, label="same events")
        low, high = (scale * np.array(row[key]) for key in ("low", "high"))
        axes.fill_between(names, low, high, color="k", alpha=0.1)
    else:
        axes.plot(names, mean, ".--", label=f"different events, N = {row['rounds']}")


EXPERIMENT = Experiment("fig4c", "mean response by level", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
