"""Matchers over 0, 1 and ``*`` compared, by number of subscriptions and by how many ones events have.

The paper (Mohapatra et al.) measured seconds of Java for 250 to 1000 subscriptions of 50 attributes, and does
not tell how many cells are stars, nor how many ones events have: here both vary. Subscriptions have stars
with a probability, and else 0 or 1, as likely; the cells of events are 1 with another.

Counts are what a matcher touches for one event, by one rule: nodes of trees, groups of SGIM, and each
constraint that a scan of subscriptions comes to, also where its outcome is known. Times are medians of rounds
in which all take turns: all but the words are plain Python, so that only these are compared. By how many
attributes SGIM groups, the paper does not say either: by two here, and beside them by others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from experiments.timing import medians
from experiments.timing import rounds as in_turns
from rtfilter.basics.text import plain
from rtfilter.events.schema import Schema
from rtfilter.matchers import Filters, make_matcher
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate
from rtfilter.replay.output import Row, table

WIDTH = 50
DENSITIES = (0.02, 0.06, 0.1, 0.5, 0.9, 0.94, 0.98)
"""Of ones in events."""
NAIVE, TREE, RAPID, MODIFIED, SGIM, WORDS = (
    "naive", "ternary-tree", "rapidmatch", "rapidmatch-modified", "sgim", "ternary-vectors",
)  # fmt: skip
PLAIN = (NAIVE, TREE, RAPID, MODIFIED, SGIM)
"""Matchers whose counts are of things touched, and whose times are of plain Python."""
GROUPED = {SGIM: 2} | {f"{SGIM}, {number}": number for number in (1, 4, 6)}
"""SGIM by the number of attributes that it groups by. Claims are of the first one, unless they name one."""
C = 4
"""The parameter of RAPIDMatch where that does not vary, and the one beside which SGIM groups differently."""
BUILT = 10_000
"""Most subscriptions for which SGIM is built several times."""
NONE = "none"
"""A matcher without subscriptions: the time of reading events, which all have."""
MUCH = 0.5
"""A matcher is much worse than one that takes less than this part of its work."""
ENOUGH = 100
"""Fewest touches for which the time of one of them is reported."""
ALIKE = 3.0
"""The largest ratio of matchers' times per touched item that counts as about equal."""
FEW = 1000
"""Most subscriptions that the paper measured."""

_SMALL = product((250, 500, 750, 1000), (0.5, 0.8, 0.9), (2, 4, 6))
SIZES: dict[str, dict[str, Any]] = {
    "ci": {
        "worlds": [[250, 0.8, 4], [1000, 0.8, 4]],
        "few": {"events": 10, "rounds": 3, "densities": DENSITIES},
    },
    "medium": {
        "worlds": [
            *map(list, _SMALL),
            *([count, stars, 4] for count in (10_000, 100_000) for stars in (0.5, 0.8, 0.9)),
        ],
        "few": {"events": 20, "rounds": 5, "densities": DENSITIES},
        "many": {"events": 4, "rounds": 3, "densities": (0.02, 0.1, 0.5, 0.9, 0.98)},
    },
}  # fmt: skip
SIZES["full"] = SIZES["medium"]
SETTINGS = {"own": Setting("own", "50 booleans, cells drawn alike")}
SCHEMA = Schema({f"b{place}": bool for place in range(WIDTH)})


def measure(run: Run) -> None:
    """Ask each matcher in each world the same events."""
    worlds = {f"{count}, {stars:g}, {c}": (count, stars, c) for count, stars, c in run.sizes["worlds"]}
    for piece in run.pieces({name: float(world[0]) for name, world in worlds.items()}):
        how = run.sizes["few" if worlds[piece][0] <= FEW else "many"]
        run.keep(piece, list(asked(*worlds[piece], **how, seed=run.seed)))


def asked(
    count: int, stars: float, c: int, events: int, rounds: int, densities: Sequence[float], seed: int
) -> Iterator[Row]:
    """Yield a row for each matcher and density of ones: work and microseconds per event."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(3, (count, WIDTH), p=[(1 - stars) / 2, (1 - stars) / 2, stars])
    held = Filters.of_predicates(SCHEMA, [_predicate(own) for own in cells.tolist()], np.arange(count))
    made, built = {NONE: make_matcher(NAIVE, SCHEMA)}, {NONE: 0.0}
    options: dict[str, tuple[str, dict[str, Any]]] = {
        name: (name, {"c": c} if name in (RAPID, MODIFIED) else {}) for name in (*PLAIN, WORDS)
    }
    if c == C and count <= BUILT:
        options |= {name: (SGIM, {"attributes": number}) for name, number in GROUPED.items()}
    for name, (matcher, own) in options.items():
        made[name] = make_matcher(matcher, SCHEMA, **own)
        (built[name],) = in_turns({"": partial(made[name].add, held)}, 1)[""]
    for density in densities:
        points = rng.random((events, WIDTH)) < density
        batch = SCHEMA.read([_event(own) for own in points])
        taken = medians({name: partial(one.match, batch) for name, one in made.items()}, rounds)
        for name in options:
            hits = made[name].match(batch)
            yield {
                "matcher": name, "subscriptions": count, "stars": stars, "c": c, "ones": density,
                "work": float(hits.visits.mean()), "us": 1e6 * taken[name] / events,
                "none_us": 1e6 * taken[NONE] / events,
                "matches": len(hits.ids) / events, "build_s": built[name],
                "few": int((2 * points.sum(axis=1) <= WIDTH).sum()), "events": events,
            }  # fmt: skip


def _predicate(cells: list[int]) -> Predicate:
    tests = (Constraint(f"b{at}", "=", cell == 1) for at, cell in enumerate(cells) if cell < 2)
    return Predicate((Filter(tuple(tests)),))


def _event(ones: Any) -> dict[str, bool]:
    return {f"b{at}": bool(one) for at, one in enumerate(ones)}


Key = tuple[Any, ...]


def by_world(rows: Sequence[Row], what: str) -> dict[Key, dict[str, float]]:
    """Return the work or the time of each matcher, by subscriptions, stars, c and ones."""
    found: dict[Key, dict[str, float]] = {}
    for row in rows:
        key = (row["subscriptions"], row["stars"], row["c"], row["ones"])
        found.setdefault(key, {})[row["matcher"]] = row[what]
    return found


def per_touch(rows: Sequence[Row]) -> dict[str, float]:
    """Return nanoseconds of each matcher per touch: medians over the worlds with many touches."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["matcher"] in PLAIN and row["work"] >= ENOUGH:
            found.setdefault(row["matcher"], []).append(1000 * (row["us"] - row["none_us"]) / row["work"])
    return {name: median(own) for name, own in found.items()}


def text(rows: Sequence[Row]) -> str:
    """Return work and microseconds per event, as tables."""
    each = ", ".join(f"{name} {plain(ns, 2)}" for name, ns in per_touch(rows).items())
    parts = [f"ns for each thing touched, without reading the event, medians of worlds: {each}"]
    for what, title in (("work", "touched per event"), ("us", "us per event")):
        lines = [
            dict(zip(("subscriptions", "stars", "c", "ones"), key, strict=True)) | own
            for key, own in by_world(rows, what).items()
        ]
        columns = {"subscriptions": title, "stars": "stars", "c": "c", "ones": "ones"}
        short = {
            NAIVE: "naive",
            TREE: "tree",
            RAPID: "rapid",
            MODIFIED: "modified",
            SGIM: "sgim",
            WORDS: "words",
        }
        parts.append(table(lines, columns | short))
        some = {key: own for key, own in by_world(rows, what).items() if own.keys() >= GROUPED.keys()}
        lines = [
            dict(zip(("subscriptions", "stars", "c", "ones"), key, strict=True))
            | {str(number): own[name] for name, number in GROUPED.items()}
            for key, own in some.items()
        ]
        numbers = {str(number): str(number) for number in sorted(GROUPED.values())}
        columns = {"subscriptions": f"sgim by attributes: {title}", "stars": "stars", "ones": "ones"}
        parts.append(table(lines, columns | numbers))
    return "\n\n".join(parts)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's claims, and what follows from the definitions; ours have no text of the paper."""
    few = [row for row in rows if row["subscriptions"] <= FEW]
    most = max(row["subscriptions"] for row in rows)
    many = [row for row in rows if row["subscriptions"] == most]
    uneven = [row for row in few if row["ones"] > 0.5]
    rare = [row for row in rows if row["ones"] < 0.5 and row["few"] == row["events"]]
    return [
        _claim("naive is much worse than RAPIDMatch", "it is", few, NAIVE, RAPID, MUCH),
        _claim("naive is much worse than modified RAPIDMatch", "it is", few, NAIVE, MODIFIED, MUCH),
        _claim("naive is worse than the tree", "it is", few, NAIVE, TREE),
        _most_efficient(few),
        _claim("modified RAPIDMatch is better than RAPIDMatch", "it is", few, RAPID, MODIFIED),
        _claim("it is where ones are more than zeros", "", uneven, RAPID, MODIFIED),
        *(
            _claim(f"with at most {FEW:,} subscriptions, SGIM is worse than {name}", "it is", few, SGIM, name)
            for name in (NAIVE, RAPID, MODIFIED)
        ),
        *(
            _claim(f"with {most:,} subscriptions, SGIM is better than {name}", "very many", many, name, SGIM)
            for name in (NAIVE, RAPID, MODIFIED)
        ),
        *(_crossing(rows, name) for name in GROUPED),
        *(
            _claim(
                f"SGIM is better by {GROUPED[name]} attributes than by {GROUPED[SGIM]}", "",
                _beside(rows, name), SGIM, name,
            )
            for name in GROUPED if name != SGIM
        ),
        _alike(rows),
        Claim(
            "both visit the same nodes where ones are no more than zeros", "",
            _same(rare), verdicts.NOT_TIMED,
        ),
    ]  # fmt: skip


def _claim(told: str, paper: str, rows: Sequence[Row], worse: str, better: str, part: float = 1.0) -> Claim:
    units, time = (_finding(by_world(rows, what), worse, better, part) for what in ("work", "us"))
    return Claim(told, paper, units, time)


def _beside(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows of worlds in which a matcher was asked."""
    pieces = {row["piece"] for row in rows if row["matcher"] == name}
    return [row for row in rows if row["piece"] in pieces]


def _most_efficient(rows: Sequence[Row]) -> Claim:
    """Return the claim that the tree is ahead of the best of all others."""
    findings = []
    for what in ("work", "us"):
        worlds = by_world(rows, what)
        best = {
            key: {TREE: own[TREE], "best": min(own[name] for name in PLAIN if name != TREE)}
            for key, own in worlds.items()
        }
        findings.append(_finding(best, "best", TREE, 1.0))
    return Claim("the tree is the most efficient", "it is", *findings)


def _finding(worlds: dict[Key, dict[str, float]], worse: str, better: str, part: float) -> Finding:
    # An empty tree has nothing to visit; the look at it counts as one visit.
    ratios = [max(own[worse], 1.0) / max(own[better], 1.0) for own in worlds.values()]
    if not ratios:
        return Finding("not measured", verdicts.DOES_NOT_APPLY)
    sure = sum(ratio > 1 / part for ratio in ratios)
    found = f"{plain(min(ratios), 2, ',')} to {plain(max(ratios), 3, ',')} times; in {sure} of {len(ratios)}"
    return Finding(found, verdicts.above([(ratio, ratio, ratio) for ratio in ratios], 1 / part))


def _alike(rows: Sequence[Row]) -> Claim:
    """Return the claim that each touched item takes all matchers about as long, so counts stand for time."""
    each = per_touch(rows)
    if not each:
        finding = Finding("not measured", verdicts.DOES_NOT_APPLY)
    else:
        apart = max(each.values()) / min(each.values())
        finding = Finding(
            f"{plain(apart, 3)} times: {', '.join(f'{name} {plain(ns, 3)} ns' for name, ns in each.items())}",
            verdicts.HOLDS if apart <= ALIKE else verdicts.FAILS,
        )
    told = f"a thing touched takes each matcher about as long, within a factor of {ALIKE:g}"
    return Claim(told, "", Finding("time for each count", verdicts.DOES_NOT_APPLY), finding)


def _crossing(rows: Sequence[Row], name: str) -> Claim:
    """Return the claim that SGIM is better than RAPIDMatch from some number of subscriptions on."""
    rows = _beside(rows, name)
    counts = sorted({row["subscriptions"] for row in rows})
    findings = []
    for what in ("work", "us"):
        won, whole = [], []
        for count in counts:
            worlds = by_world([row for row in rows if row["subscriptions"] == count], what).values()
            better = sum(own[name] < own[RAPID] for own in worlds)
            won.append(f"{better} of {len(worlds)} with {count:,}")
            whole.append(better == len(worlds))
        crossed = next((count for at, count in enumerate(counts) if all(whole[at:])), None)
        told = "; nowhere for good" if crossed is None else f"; always from {crossed:,} on"
        findings.append(
            Finding(f"in {', '.join(won)}{told}", verdicts.FAILS if crossed is None else verdicts.HOLDS)
        )
    by, paper = ("", "it does") if name == SGIM else (f" by {GROUPED[name]} attributes", "")
    return Claim(f"SGIM{by} overtakes RAPIDMatch as subscriptions become many", paper, *findings)


def _same(rows: Sequence[Row]) -> Finding:
    worlds = by_world(rows, "work").values()
    same = sum(own[RAPID] == own[MODIFIED] for own in worlds)
    verdict = verdicts.HOLDS if same == len(worlds) else verdicts.FAILS
    return Finding(f"in {same} of {len(worlds)} worlds", verdict if worlds else verdicts.DOES_NOT_APPLY)


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw seconds, as the paper does, and work by number of subscriptions; a column for each density."""
    stars, c = 0.8, C
    figure = Figure(figsize=(2.6 * len(DENSITIES), 7), layout="constrained")
    figure.suptitle(f"{title}; stars {stars:g}, c = {c}", fontsize=9)
    panels = figure.subplots(2, len(DENSITIES), sharey="row", sharex=True, squeeze=False)
    for line, (what, unit) in zip(panels, {"us": 1e-6, "work": 1.0}.items(), strict=True):
        for axes, ones in zip(line, DENSITIES, strict=True):
            for name in PLAIN:
                own = [row for row in rows if (row["matcher"], row["stars"], row["c"], row["ones"])
                       == (name, stars, c, ones)]  # fmt: skip
                found = [unit * row[what] for row in own]
                axes.plot([row["subscriptions"] for row in own], found, marker=".", label=name)
            axes.set(xscale="log", yscale="log")
    for axes, ones in zip(panels[0], DENSITIES, strict=True):
        axes.set_title(f"ones {ones:g}")
    for axes in panels[1]:
        axes.set_xlabel("subscriptions")
    panels[0][0].set_ylabel("seconds per event")
    panels[1][0].set_ylabel("touched per event")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PLAIN))
    return figure


EXPERIMENT = Experiment("survey", "matchers over 0, 1 and *", measure, text, claims, draw, SETTINGS, SIZES)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
