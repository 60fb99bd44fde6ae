"""Figure 4-d of the paper: the adaptive controller while the index grows.

Whenever the controller has settled, `threshold` subscriptions are inserted, so that it searches again. Only
batches of a search are measured, as in the paper. Claims: the controller is much better than no batch search,
and very near to the best possible. "Best possible" is the smallest response of all plans on the same batch.
No controller can reach it, because it does not know a batch before it has run.

Two rivals do not adapt. The best constant is the one plan that is best over the whole run, which is known
only afterwards. The middle constant is the middle level of the first tree, and it never changes.

In work units all plans are known for each batch, so controllers are followed through many orders of the
batches. In time they run live, see `live`. Beside the paper's controller stands ours with the same N, with
rules for what real traffic brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import confidence, live, times, verdicts
from experiments.paper.confidence import Interval
from experiments.paper.index import growing
from experiments.paper.live import Contestant, Search
from experiments.paper.plans import have_groups, last_in_range, shown
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import GROUPS, RULE, SETTINGS, Profile, Setting
from experiments.paper.verdicts import NOT_TIMED, Claim, Finding
from experiments.paper.work import Work, work
from experiments.response.bursts import label
from rtfilter.adaptive import (
    Controller,
    LevelController,
    Plan,
    PlanController,
    Report,
    Shape,
    WangController,
    exact,
)
from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.output import Row, table

POOL = 8
"""Number of batches that runs draw from in work units, as a multiple of the profile's."""
KINDS = {"visits": "units", "seconds": "time"}
PAPER, OURS = "paper", "ours"
"""The owners of controllers."""
RIVALS = {
    "none": "no batch search",
    "middle": "middle constant",
    "constant": "best constant",
    "adaptive": "adaptive",
    "possible": "best possible",
}


class Step(NamedTuple):
    """The work of all plans at one size of the index."""

    size: int
    work: Work

    @property
    def height(self) -> int:
        """Number of levels that the plans have."""
        return 1 + self.work.plans[-1].level


class Episode(NamedTuple):
    """The batches of one search of a controller."""

    batches: list[int]
    """Their rows in the pool."""
    plans: list[int]
    """The columns of their plans."""
    settled: int
    """The column of the plan that the controller settled at."""


def controller(setting: Setting, who: str, rounds: int, threshold: int) -> Controller:
    """Return the controller of the paper, or ours; if plans have groups, one for level and group."""
    own: dict[str, Any] = {"rounds": rounds, "threshold": threshold}
    if setting.grouped:
        rules = RULE if who == PAPER else {}
        return PlanController(groups=GROUPS, size_class=exact, **own, **rules)
    return WangController(**own) if who == PAPER else LevelController(size_class=exact, **own)


def contenders(profile: Profile) -> list[tuple[str, int]]:
    """Return the controllers and their N: the paper's with each N, ours with the largest."""
    return [*((PAPER, rounds) for rounds in profile.rounds), (OURS, max(profile.rounds))]


def measure(run: Run) -> None:
    """Follow controllers while the index grows: in work units many times, and in time live."""
    profile = run.profile
    costs = {"visits": 1.0} | ({} if run.setting.transformed else {"seconds": 4.0})
    for piece in run.pieces(costs):
        if piece == "seconds":
            run.keep(piece, [{"kind": piece, **row} for row in lived(run)])
            continue
        steps = list(counted(run))
        middle, rows = middle_plan(run.setting, steps[0].height, profile.batch), []
        for among in ("all",) if run.setting.grouped else ("judged", "all"):
            reach = steps if among == "all" else [in_range(step) for step in steps]
            found = follow(run.setting, reach, middle, profile, run.seed)
            rows += [{"among": among, **row} for row in found]
        run.keep(piece, [{"kind": piece, **row} for row in rows])


def lived(run: Run) -> list[Row]:
    """Return rows of all contenders in time: a row per size, and one for the whole run."""
    setting, profile = run.setting, run.profile
    own = [
        Contestant(who, rounds, controller(setting, who, rounds, profile.threshold), profile.threshold)
        for who, rounds in contenders(profile)
    ]
    steps = list(live.walk(run, own))
    middle = label(middle_plan(setting, steps[0].height, run.setting.live), run.setting.live)
    constant = min(
        max(steps, key=lambda step: step.height).fixed,
        key=lambda name: sum(step.every.mean(axis=0)[step.column(name)] for step in steps),
    )
    common = {"among": "all" if setting.grouped else "judged", "events": run.setting.live,
              "constant_plan": constant, "middle_plan": middle}  # fmt: skip
    rows: list[Row] = []
    for place, (who, rounds) in enumerate(contenders(profile)):
        kept, whole = common | {"who": who, "rounds": rounds}, []
        for step in steps:
            searches = step.searches[place]
            taken = on_same_batches(step, searches, constant, middle)
            rows.append(kept | lived_at(step, searches, taken))
            each = [on_same_batches(step, [search], constant, middle) for search in searches]
            whole += [{name: own.mean() for name, own in one.items()} for one in each if len(one["adaptive"])]
        every = {name: np.array([one[name] for one in whole]) for name in whole[0]}
        rows.append(kept | {"size": None} | ratios(every, median_ratio))
    return rows


def on_same_batches(
    step: live.Step, searches: Sequence[Search], constant: str, middle: str
) -> dict[str, FloatArray]:
    """Return the seconds of searches (b,), and of their reference, on the batches that all ran."""
    adaptive, fixed = step.compared(searches)
    return {
        "adaptive": adaptive,
        "none": fixed[:, 0],
        "possible": fixed.min(axis=1),
        "fixed": fixed[:, step.best],
        "constant": fixed[:, step.column(constant)],
        "middle": fixed[:, step.column(middle)],
    }


def lived_at(step: live.Step, searches: Sequence[Search], taken: dict[str, FloatArray]) -> Row:
    """Return a row about the searches of a contestant at one size, in time."""
    return {
        "size": step.size,
        "height": step.height,
        "batches": fmean(len(search.batches) for search in searches),
        "best": list(step.fixed)[step.best],
        **{name: live.middle(values) for name, values in taken.items()},
        **ratios(taken, live.ratio),
        "plans": dict(Counter(search.settled or "not yet" for search in searches)),
    }


def counted(run: Run) -> Iterator[Step]:
    """Yield the work of all plans at each size."""
    index, profile = growing(run.setting, run.seed), run.profile
    for size in profile.sizes:
        run.tell(f"visits at {size}")
        index.grow(size)
        count = POOL * profile.batches
        points = index.points(0, count * profile.batch).reshape(count, profile.batch, -1)
        yield Step(size, work(run.setting, index.levels(), points))
        run.advance(size / sum(profile.sizes))


def in_range(step: Step) -> Step:
    """Return the same without the plans that the paper cannot reach."""
    last = last_in_range(step.height)
    kept = [p for p, plan in enumerate(step.work.plans) if plan.level <= last]
    found = step.work
    return Step(
        step.size,
        found._replace(
            plans=[found.plans[p] for p in kept],
            response=found.response[:, kept],
            estimation=found.estimation[:, kept],
        ),
    )


def follow(setting: Setting, steps: Sequence[Step], middle: Plan, profile: Profile, seed: int) -> list[Row]:
    """Follow each contender through the steps, many times: a row per size, and one for the whole run."""
    constant = best_constant(steps)
    rows = []
    for who, rounds in contenders(profile):
        episodes: list[list[Episode]] = []
        for repeat in range(profile.repeats):
            own = controller(setting, who, rounds, profile.threshold)
            walked = []
            for step in steps:
                rng = np.random.default_rng([seed, rounds, repeat, step.size])
                order = shuffled(rng, len(step.work.response))
                walked.append(episode(own, step.work, order, profile.batch))
                own.on_update(profile.threshold)
            episodes.append(walked)
        taken = [
            means(step, [walked[k] for walked in episodes], constant, middle) for k, step in enumerate(steps)
        ]
        common = {"who": who, "rounds": rounds, "constant_plan": label(constant, profile.batch),
                  "middle_plan": label(middle, profile.batch)}  # fmt: skip
        for k, step in enumerate(steps):
            walked_here = [walked[k] for walked in episodes]
            rows.append(common | summary(step, walked_here, taken[k], profile))
        whole = {name: np.mean([each[name] for each in taken], axis=0) for name in taken[0]}
        rows.append(common | {"size": None} | ratios(whole, mean_ratio))
    return rows


def shuffled(rng: np.random.Generator, count: int) -> Iterator[int]:
    """Yield the rows of a pool in random order, endlessly."""
    while True:
        yield from rng.permutation(count).tolist()


def episode(own: Controller, found: Work, order: Iterator[int], batch: int) -> Episode:
    """Run batches in an order until a controller settles. Without a choice, one batch is run."""
    height = 1 + found.plans[-1].level
    column = {plan: p for p, plan in enumerate(found.plans)}
    chosen: list[int] = []
    plans: list[int] = []
    for _, at in zip(range(100_000), order, strict=False):
        ticket = own.plan(batch, Shape(height))
        settled = ticket.episode == 0
        if not settled or not chosen:
            p = column[ticket.plan]
            own.report(ticket, Report(float(found.response[at, p]), batch))
            chosen.append(at)
            plans.append(p)
        if settled:
            return Episode(chosen, plans, column[ticket.plan])
    raise RuntimeError("the controller did not settle")


def clamped(plan: Plan, found: Work) -> int:
    """Return the column of a plan, or of the same group at the last level if the tree is lower."""
    level = min(plan.level, found.plans[-1].level)
    return found.plans.index(Plan(level, plan.group))


def best_constant(steps: Sequence[Step]) -> Plan:
    """Return the plan with the smallest mean response over all steps."""
    highest = max(steps, key=lambda step: step.height)

    def total(plan: Plan) -> float:
        return sum(float(step.work.response[:, clamped(plan, step.work)].mean()) for step in steps)

    return min(highest.work.plans, key=total)


def middle_plan(setting: Setting, height: int, batch: int) -> Plan:
    """Return the middle level of a tree, the first one; if plans have groups, with the middle group."""
    groups = [plan.group for plan in setting.plans(1, batch)] if setting.grouped else [1]
    return Plan((height - 1) // 2, groups[len(groups) // 2])


def means(step: Step, episodes: Sequence[Episode], constant: Plan, middle: Plan) -> dict[str, FloatArray]:
    """Return the mean response of each search (r,), and of what it is compared with, on the same batches."""
    found = step.work
    least, fixed = found.response.min(axis=1), int(found.response.mean(axis=0).argmin())

    def of_each(values: Callable[[Episode], FloatArray]) -> FloatArray:
        return np.array([values(own).mean() for own in episodes])

    return {
        "adaptive": of_each(lambda own: found.response[own.batches, own.plans]),
        "none": of_each(lambda own: found.random[own.batches]),
        "possible": of_each(lambda own: least[own.batches]),
        "fixed": of_each(lambda own: found.response[own.batches, fixed]),
        "constant": of_each(lambda own: found.response[own.batches, clamped(constant, found)]),
        "middle": of_each(lambda own: found.response[own.batches, clamped(middle, found)]),
    }


Over = Callable[[FloatArray, FloatArray], Interval]
"""The excess of values over paired others, as a share, with an interval."""


def mean_ratio(own: FloatArray, other: FloatArray) -> Interval:
    """Return the mean of own / other - 1."""
    return confidence.mean(own / other - 1)


def median_ratio(own: FloatArray, other: FloatArray) -> Interval:
    """Return the median of own / other - 1."""
    return confidence.middle(own / other - 1)


def ratios(taken: dict[str, FloatArray], over: Over) -> Row:
    """Return the controller compared with each of the others."""
    adaptive = taken["adaptive"]
    return {
        "gain": _saved(over(adaptive, taken["none"])),
        "possible_gain": _saved(over(taken["possible"], taken["none"])),
        "regret": over(adaptive, taken["possible"]),
        **{f"over_{name}": over(adaptive, taken[name]) for name in ("fixed", "constant", "middle")},
    }


def _saved(over: Interval) -> Interval:
    return Interval(-over.value, -over.high, -over.low)


def summary(step: Step, episodes: Sequence[Episode], taken: dict[str, FloatArray], profile: Profile) -> Row:
    """Return a row about the searches at one size, in work units."""
    plans = step.work.plans
    mean = step.work.response.mean(axis=0)
    return {
        "size": step.size,
        "height": step.height,
        "batches": fmean(len(own.batches) for own in episodes),
        "best": label(plans[int(mean.argmin())], profile.batch),
        **{name: confidence.mean(values) for name, values in taken.items()},
        **ratios(taken, mean_ratio),
        "plans": dict(Counter(label(plans[own.settled], profile.batch) for own in episodes)),
    }


def of(rows: Sequence[Row], kind: str, among: str, rounds: int | None = None, who: str = PAPER) -> list[Row]:
    """Return the rows of a kind, a range, an N and a controller, without those of the whole run."""
    chosen = [row for row in _of(rows, kind, among, who) if rounds in (None, row["rounds"]) and row["size"]]
    return sorted(chosen, key=lambda row: (row["rounds"], row["size"]))


def _of(rows: Sequence[Row], kind: str, among: str, who: str) -> list[Row]:
    return [row for row in rows if (row["kind"], row["among"], row.get("who", PAPER)) == (kind, among, who)]


def whole_run(rows: Sequence[Row], kind: str, among: str, who: str = PAPER) -> Row | None:
    """Return the row of the whole run with the largest N; None if the controller was not there."""
    own = [row for row in _of(rows, kind, among, who) if row["size"] is None]
    return max(own, key=lambda row: int(row["rounds"]), default=None)


def ranges(rows: Sequence[Row]) -> list[str]:
    """Return the ranges of levels that were followed; the first is the one that is judged."""
    return sorted({row["among"] for row in rows}, reverse=True)


def is_grouped(rows: Sequence[Row]) -> bool:
    """Return whether the plans have groups."""
    return have_groups(name for row in rows if row["size"] for name in [row["best"], *row["plans"]])


def text(rows: Sequence[Row]) -> str:
    """Return tables with one line per size and N, one for each unit and range of levels."""
    grouped, parts = is_grouped(rows), []
    for kind, unit in KINDS.items():
        for among in ranges(rows):
            lines = []
            for row in [*of(rows, kind, among), *of(rows, kind, among, who=OURS)]:
                plans = sorted(row["plans"].items(), key=lambda item: -item[1])
                scale = 1 if kind == "visits" else 1e3
                lines.append(
                    {
                        "rounds": f"{row['rounds']}{', ours' * (row.get('who') == OURS)}",
                        "size": row["size"] / 1e6,
                        "batches": round(row["batches"]),
                        **{key: scale * row[key][0] for key in RIVALS},
                        "regret": times.interval(row["regret"]),
                        "at": " ".join(shown(name, grouped) for name, _ in plans[:2]),
                    }
                )
            if not lines:
                continue
            own = whole_run(rows, kind, among)
            assert own is not None
            where = "" if grouped else ", all levels" if among == "all" else ", the paper's range"
            constants = [shown(own[key], grouped) for key in ("constant_plan", "middle_plan")]
            names = {
                "rounds": "N", "size": "M", "batches": "batches", "none": "none", "middle": "middle",
                "constant": "constant", "adaptive": "adaptive", "possible": "possible",
                "regret": "regret", "at": "settled",
            }  # fmt: skip
            unit_of = "work units" if unit == "units" else "ms"
            events = f" for {own['events']} events" if "events" in own else ""
            heading = f"{unit_of}{events}{where}, by millions (M) of subscriptions; "
            heading += f"constants: best {constants[0]}, middle {constants[1]}"
            parts.append(f"{heading}\n{table(lines, names)}")
    return "\n\n".join(parts)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims: the controller beats no batch search and constant plans, and is near the best."""
    return [
        _claim(rows, "while it searches, the controller is much better than no batch search",
               "about as in 4-b", "gain", _much),
        _claim(rows, "the controller is very near to the best possible of each batch", "gap negligible",
               "regret", verdicts.negligible),
        _claim(rows, "adapting is better than the best constant plan, known afterwards", "",
               "over_constant", _better),
        _claim(rows, "adapting is better than the middle level, never changed", "", "over_middle", _better),
        _claim(rows, "the controller is near to the best fixed plan of each size", "", "over_fixed",
               verdicts.negligible),
        *_beside(rows),
    ]  # fmt: skip


def _beside(rows: Sequence[Row]) -> list[Claim]:
    """Return the claim that compares our controller's distance from the best possible with the paper's."""
    found = []
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        both = [whole_run(own, kind, ranges(own)[0], who) for who in (OURS, PAPER)] if own else [None]
        told = [times.interval(row["regret"]) for row in both if row]
        if len(told) == 2:
            found.append(
                Finding(f"{told[0]} above the best possible, the paper's {told[1]}", verdicts.OBSERVED)
            )
        else:
            found.append(NOT_TIMED)
    return [Claim("our controller, with rules for real traffic, beside the paper's", "", *found)]


def _much(found: Sequence[Sequence[float]]) -> str:
    return verdicts.rather_above(found, verdicts.CLEARLY, verdicts.MUCH)


def _better(found: Sequence[Sequence[float]]) -> str:
    """Return the verdict that a response is surely smaller than another."""
    return verdicts.above([(-value, -high, -low) for value, low, high in found], 0.0)


def _claim(
    rows: Sequence[Row], claim: str, paper: str, key: str, judge: Callable[[list[Sequence[float]]], str]
) -> Claim:
    """Return a claim on numbers of each size, or of the whole run if it is about a constant."""
    findings = []
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            findings.append(NOT_TIMED)
            continue
        told, verdict = [], ""
        for among in ranges(own):
            whole = whole_run(own, kind, among)
            assert whole is not None
            found = [row[key] for row in of(own, kind, among, whole["rounds"])]
            if key in ("over_constant", "over_middle"):
                found = [whole[key]]
            verdict = verdict or judge(found)
            told.append(_told(whole, found, key))
        findings.append(Finding("; with all levels ".join(dict.fromkeys(told)), verdict))
    return Claim(claim, paper, *findings)


def _told(whole: Row, found: Sequence[Sequence[float]], key: str) -> str:
    values = [value for value, _, _ in found]
    if key == "gain":
        least, most = percent(min(values)), percent(max(values))
        return (
            f"gain {least} to {most} of {percent(whole['possible_gain'][0])} possible (N = {whole['rounds']})"
        )
    value, low, high = whole[key]
    told = f"{times.interval((value, low, high))} above it"
    if value < 0:
        told = f"{times.interval((-value, -high, -low))} below it"
    return f"{told}, {percent(max(values), 1)} at one size" if key == "regret" else told


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw responses by size of the controller and its rivals, and its regret by N, in both units."""
    among = ranges(rows)[0]
    kinds = [kind for kind in KINDS if of(rows, kind, among)]
    figure = Figure(figsize=(4.3 * 2 * len(kinds), 4.4), layout="constrained")
    where = "; levels of the paper's range" if among == "judged" else ""
    figure.suptitle(title + where)
    panels = figure.subplots(1, 2 * len(kinds))
    for place, kind in enumerate(kinds):
        response, regret = panels[2 * place : 2 * place + 2]
        counts = sorted({row["rounds"] for row in of(rows, kind, among)})
        own = of(rows, kind, among, counts[-1])
        scale, unit = (1.0, "work units") if kind == "visits" else (1e3, "ms")
        for key, name in RIVALS.items():
            _line(response, own, key, scale, name)
        ours = of(rows, kind, among, who=OURS)
        if ours:
            _line(response, ours, "adaptive", scale, "adaptive, ours")
            _line(regret, ours, "regret", 100, f"N = {counts[-1]}, ours")
        response.set(ylabel=f"mean response, {unit}", title=f"N = {counts[-1]}", ylim=(0, None))
        for count in counts:
            _line(regret, of(rows, kind, among, count), "regret", 100, f"N = {count}")
        regret.set(ylabel="adaptive over best possible, %", title=f"regret in {KINDS[kind]}", ylim=(0, None))
    for axes in panels:
        axes.set(xlabel="million subscriptions")
        axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def _line(axes: Any, rows: Sequence[Row], key: str, scale: float, name: str) -> None:
    value, low, high = scale * np.array([row[key] for row in rows]).T
    size = [row["size"] / 1e6 for row in rows]
    line = axes.plot(size, value, ".-", label=name)[0]
    axes.fill_between(size, low, high, color=line.get_color(), alpha=0.2, lw=0)


EXPERIMENT = Experiment("fig4d", "adaptive while the index grows", measure, text, claims, draw)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
