"""The R*-tree compared with counting, brute force, plain bit masks and libspatialindex.

The paper (Wang et al.) uses a multidimensional index because earlier work of its authors had found one much
faster than counting. This experiment tests that for the tree with the paper's nodes and with rtfilter's own,
also on boxes that a tree cannot prune. Counting is that of Novák 2013.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from experiments import peers
from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main
from experiments.paper.verdicts import Claim, Finding
from experiments.peers.own import BitMasks, Counting, PaperNodes
from experiments.peers.scans import NumPy
from experiments.peers.trees import RtreeInsertedSmall
from experiments.speed import trial
from rtfilter.basics.text import plain
from rtfilter.index.tree import RStarTree
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES

PEERS = (peers.OURS, PaperNodes.name, Counting.name, NumPy.name, BitMasks.name, RtreeInsertedSmall.name)
BATCHES = (1, 1000)
COUNTED = 100
"""Number of events whose visits and increments are counted."""
BUILD, ASK = 400.0, 5.0
"""Longest time in seconds for a peer to build an index, and for the events of a batch size."""


UNITS = Finding("a visit and an increment are not one unit", verdicts.DOES_NOT_APPLY)
"""The finding in work units."""
SHORT = {
    peers.OURS: "rtfilter", PaperNodes.name: "10 and 20", Counting.name: "counting", NumPy.name: "NumPy",
    BitMasks.name: "bit masks", RtreeInsertedSmall.name: "rtree",
}  # fmt: skip
"""Short names of the peers, for tables."""


def measure(run: Run) -> None:
    """Measure each peer on each workload and number of subscriptions, in a process of its own."""
    costs = {
        f"{name} of {count}": 10.0 + count / 10_000
        for count in run.profile.compared
        for name in run.profile.workloads
    }
    for piece in run.pieces(costs):
        name, count = piece.split(" of ")
        rows = [counted(name, int(count), run.seed)]
        for peer in PEERS:
            run.tell(f"{piece}: {peer}")
            case = trial.Case(
                peer,
                name,
                int(count),
                BOXES[name](run.seed).dimensions,
                None,
                BATCHES,
                run.seed,
                3,
                BUILD,
                ASK,
            )
            rows += [_kept(row) for row in trial.run(case)]
            run.advance(1 / len(PEERS))
        run.keep(piece, rows)


def _kept(row: Row) -> Row:
    """Return the cells of a row of `trial` that are kept."""
    names = (
        "peer",
        "workload",
        "subscriptions",
        "batch",
        "us",
        "matches",
        "build_us",
        "bytes",
        "rounds",
        "skipped",
    )
    return {"kind": "time"} | {key: row[key] for key in names if key in row}


def counted(name: str, count: int, seed: int) -> Row:
    """Return visits, increments and matches per event, which are the same in each run."""
    source = BOXES[name](seed)
    boxes, points = source.subscriptions(0, count), source.events(0, COUNTED)
    counting = Counting(boxes)
    matches = counting.ask(points)
    return {
        "kind": "counts",
        "workload": name,
        "subscriptions": count,
        "increments": counting.increments / COUNTED,
        "visits": _visits(RStarTree.bulk_load(*boxes), points),
        "paper_visits": _visits(PaperNodes(boxes).tree, points),
        "matches": len(matches.ids) / COUNTED,
    }


def _visits(tree: RStarTree, points: Any) -> float:
    return float(tree.hits(points).visits.mean())


def counts(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with counts, by workload and number of subscriptions."""
    return [row for row in rows if row["kind"] == "counts"]


def timed(rows: Sequence[Row], row: Row, peer: str, batch: int) -> Row | None:
    """Return the row with the times of a peer on the workload and number of subscriptions of `row`."""
    key = (row["workload"], row["subscriptions"], peer, batch)
    found = (
        other
        for other in rows
        if "us" in other and (other["workload"], other["subscriptions"], other["peer"], other["batch"]) == key
    )
    return next(found, None)


def us(rows: Sequence[Row], row: Row, peer: str, batch: int) -> float | None:
    """Return microseconds per event of a peer on the workload and number of subscriptions of `row`."""
    found = timed(rows, row, peer, batch)
    return None if found is None else float(found["us"])


def text(rows: Sequence[Row]) -> str:
    """Return counts, and microseconds per event of each peer, as tables."""
    first = {
        "workload": "per event",
        "subscriptions": "subscriptions",
        "matches": "matches",
        "increments": "increments",
        "paper_visits": "visits, 10 and 20",
        "visits": "visits, default",
    }
    parts = [table(counts(rows), first)]
    for batch in BATCHES:
        lines = []
        for row in counts(rows):
            line = {"workload": row["workload"], "subscriptions": row["subscriptions"]}
            lines.append(line | {peer: us(rows, row, peer, batch) for peer in PEERS})
        title = "us, one event a call" if batch == 1 else f"us, batches of {batch}"
        columns = {"workload": title, "subscriptions": "subscriptions"} | SHORT
        parts.append(table(lines, columns))
    skipped = [f"{row['peer']}, {row['workload']}, {row['subscriptions']:,}: {row['skipped']}"
               for row in rows if "skipped" in row]  # fmt: skip
    return "\n\n".join([*parts, *skipped])


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims: by how much the tree is faster than counting, and which matchers are faster."""
    most = max(row["subscriptions"] for row in counts(rows))
    large = [row for row in counts(rows) if row["subscriptions"] == most]
    made = []
    for peer, nodes in ((PaperNodes.name, "the paper's nodes"), (peers.OURS, "rtfilter's nodes")):
        ratios = {batch: dict(_ratios(rows, large, peer, batch)) for batch in BATCHES}
        every = [ratio for own in ratios.values() for ratio in own.values()]
        if not every:
            continue
        told = "; ".join(
            f"batch {batch}: " + ", ".join(f"{name} {plain(ratio, 3, ',')}" for name, ratio in own.items())
            for batch, own in ratios.items()
        )
        lost = list(_lost(rows, peer))
        most_of = f"{plain(min(every), 2, ',')} to {plain(max(every), 3, ',')} times"
        made += [
            Claim(
                f"the R*-tree with {nodes} is faster than counting",
                "a tree is",
                UNITS,
                Finding(f"{most_of}, {most:,} subscriptions; {told}", _faster(every, 1)),
            ),
            Claim(
                f"with {nodes}, the R*-tree is faster by about four orders of magnitude",
                "a UB-tree is, in earlier work",
                UNITS,
                Finding(most_of, _faster(every, verdicts.FOUR_ORDERS)),
            ),
            Claim(
                f"where others are faster than {nodes}",
                "",
                UNITS,
                Finding("; ".join(lost) if lost else "nowhere", "observed"),
            ),
        ]
    return made


def _faster(ratios: Sequence[float], limit: float) -> str:
    return verdicts.above([(ratio, ratio, ratio) for ratio in ratios], limit)


def _ratios(rows: Sequence[Row], chosen: Iterable[Row], peer: str, batch: int) -> Iterable[tuple[str, float]]:
    for row in chosen:
        own, other = us(rows, row, peer, batch), us(rows, row, Counting.name, batch)
        if own and other:
            yield row["workload"], other / own


def _lost(rows: Sequence[Row], peer: str) -> Iterable[str]:
    """Yield the cases where another peer is faster than this one; trees of this library do not count."""
    rivals = [name for name in PEERS if name not in (peers.OURS, PaperNodes.name)]
    for row in counts(rows):
        for batch in BATCHES:
            own = us(rows, row, peer, batch)
            times = {name: value for name in rivals if (value := us(rows, row, name, batch)) is not None}
            best = min(times, key=times.__getitem__, default="")
            if own and best and times[best] < own:
                where = f"{row['workload']} {row['subscriptions']:,}, batch {batch}"
                yield f"{where}: {best} {plain(own / times[best], 2, ',')} times"


def draw(rows: Sequence[Row], _title: str) -> Figure:
    """Draw the time per event by number of subscriptions, one panel per workload."""
    names = list(dict.fromkeys(row["workload"] for row in counts(rows)))
    figure = Figure(figsize=(3.2 * len(names), 4.2), layout="constrained")
    figure.suptitle("lines: batches of 1000, dots: one event a call; least to most of 3 rounds", fontsize=9)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        own = [row for row in counts(rows) if row["workload"] == name]
        for place, peer in enumerate(PEERS):
            for batch, style in zip(BATCHES, (":", "-"), strict=True):
                line = [found for row in own if (found := timed(rows, row, peer, batch))]
                size = [found["subscriptions"] for found in line]
                axes.plot(size, [found["us"] for found in line], style, color=f"C{place}",
                          label=peer if batch > 1 else None, marker="o" if batch > 1 else ".")  # fmt: skip
                low, high = ([of(found["rounds"]) for found in line] for of in (min, max))
                axes.fill_between(size, low, high, color=f"C{place}", alpha=0.15, lw=0)
        axes.set(title=name, xlabel="subscriptions", xscale="log", yscale="log")
    panels[0].set_ylabel("µs per event")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


EXPERIMENT = Experiment("counting", "the R*-tree compared with counting", measure, text, claims, draw)
SETTING_NAMES = ("paper",)
main = partial(main, EXPERIMENT, SETTING_NAMES)
