"""The papers whose evaluations are repeated, each with its experiments and its page.

A paper joins with a line in `PAPERS`, and a line in `experiments.__main__` for each of its experiments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Paper(NamedTuple):
    """A paper, and where its experiments are.

    Attributes
    ----------
    title : str
        Heading of its page.
    page : str
        File name of its page, in the folder of the pages.
    introduction : str
        What the paper measured, and what is judged here; Markdown below the heading.
    modules : mapping of str to str
        Module of each experiment by name, below `experiments`, in the order of the page. It has
        ``EXPERIMENT``, and ``SETTING_NAMES``, those of ``EXPERIMENT.settings`` on which it can be run.
    """

    title: str
    page: str
    introduction: str
    modules: Mapping[str, str]


WANG = Paper(
    "The paper's evaluation, repeated",
    "evaluation.md",
    """\
Wang, Zhang and Kitsuregawa search an R\\*-tree for batches of events, the shortest search first, and adapt
the level down to which a batch is estimated. Their Figure 4 is about response *time*. Here each claim has two
verdicts: in work units, which are visits of nodes and the same in each run, and in time.

## What was rebuilt

- The R\\*-tree with nodes of 10 and 20, grown to the paper's sizes, one insertion after the other.
- The estimate, the shortest search first, and the paper's controller with its N and its threshold.
- Figures 4-a to 4-d, with controllers that run live in 4-d.
- Counting, as in earlier work of the authors.

## What was changed, and why

- **Boxes and batches.** The paper tells neither how boxes are drawn nor how large a batch is. Boxes here lie
  between two sorted draws; other draws are below.
- **Batches of 8 events** in Figures 4-c and 4-d in time: N = 64 takes hundreds of batches a size.
- **Searches without an end.** The index grows after two loops, even before a controller settles.
- **Leaf level.** The loop of the paper ends above it, and so do verdicts. "With all levels" adds it.
- **Beside the paper:** constant levels, our controller, our nodes with groups, real data.

## What limits the conclusions most

1. The gain depends on how boxes are drawn and how the tree was built. The paper tells neither.
2. In time, a deeper level shares more work, which visits do not show. Where the best level is the last that
   the paper allows, its moves cannot be judged.
3. Times are of one machine, one core and compiled code.""",
    {
        name: f"paper.{name}"
        for name in ("times", "fig4a", "fig4b", "fig4c", "fig4d", "counting", "generators")
    },
)
"""The paper by which rtfilter began. `page` writes its pages, `claims_page` those of all others."""

NOVAK = Paper(
    "The evaluation of Novák's thesis, repeated",
    "novak.md",
    """\
The thesis compares a matching tree (MT), counting with counters in a map (CAM) and in the filters (CAS), and
Siena, on 1,000 to 4,000 nested predicates of twelve attributes. Each claim has two verdicts: by operations,
which are the same in each run, and in time. The parts of the thesis, and their places here: [its
page](../../docs/papers/novak.md).

## What was rebuilt

- The tree, both ways of counting, and a naive matcher, as objects of Python.
- The benchmark: its predicates, its thirteen events and its four sizes. Each run checks the results and the
  increments.
- Tables 5.1 to 5.3 beside those of the thesis, and Figures 5.3 and 5.4. The thesis draws eight of its methods
  in 5.3, and does not say which. Here all of them are drawn, for each contestant.

## What was changed, and why

- **Siena** is not available. A lean counting takes its place, and is never called Siena.
- **Python instead of Java.** Times of Python's objects compare with one another, and so do those of the
  compiled R\\*-tree and counting. Times of the two kinds do not.
- **Events.** The profile `full` matches as many as the thesis, other profiles fewer. Labels tell how many,
  and no time is scaled. Times are medians of rounds in which the contestants take turns.
- **Ranges.** A `>=` and a `<=` of one attribute are one range and one increment; the thesis counts two. The
  benchmark has `<` alone, so no number here depends on it.
- **The tree** inserts by a corrected rule, because that of the thesis loses subscriptions.

## What limits the conclusions most

1. A node of the tree and an increment have other costs in Python than in Java. So the ranking in time is one
   of these programs.
2. The benchmark has nested predicates with `<` alone, and matches one event again and again.
3. Siena is missing, and there is one machine. Its stand-in judges the claims about Siena, and nothing judges
   the claim about machines.""",
    {"thesis": "thesis.thesis"},
)
"""The thesis that compares a matching tree with ways to count."""

BITTNER = Paper(
    "Bittner's comparisons, repeated",
    "bittner.md",
    """\
Bittner (2004) compares twice, by parameters whose values are not told: one broker's filter with others, and
three ways to send profiles and events through a network of brokers.

`alerting` compares the filter nodes of DAS with Elvin4 and with OpenORB. Neither can be
had any more, so other methods take their places, and nothing is said of the factor 8. Each parameter is
varied alone. Operations are the steps that each matcher counts, in its own unit. All matchers but the
R\\*-tree are pure Python; its time is shown and not judged. Memory is told twice: 8 bytes for each reference
to a set, a node or a profile and 1/8 for each bit that leaves hold, with the tree as the paper draws it; and
what Python's allocator says while a matcher is built, where the tree shares what is alike.

`forwarding` compares profile forwarding, event forwarding and rendezvous nodes, in all combinations of what
the paper varies. Messages and profiles held follow from the tree and from who matches; they are exact, and
those of real routers in tests. Efficiency needs a model of costs: a broker's *work* is 1000 steps for each
message that it sends or takes (event forwarding, whose protocol is simple, takes one for 500), and what
filter nodes need to filter: a search in the bounds of three attributes, and sets of 64 profiles a step. What
clients are told is the same for all, and not counted. The efficiency is that of the busiest broker. Each
count is told for messages of 100 and of 10,000 steps, too. Rendezvous nodes are the brokers with the
shortest ways to all others, which is the best that can be done for them. Beyond the paper, near boxes are
told as one: real routers count by how much tables shrink, and how many messages are in vain.

`day` is about the paper's advice to choose among strategies by load: a network that measures its load and
changes its strategy while events are under way, beside each fixed strategy, with real routers.""",
    {"alerting": "alerting.alerting", "forwarding": "forwarding.forwarding", "day": "forwarding.day"},
)
"""Interval nodes for each attribute, beside the tree that they come from."""

MOHAPATRA = Paper(
    "The survey of matching over 0, 1 and \\*, repeated",
    "mohapatra.md",
    """\
Mohapatra, Mohanta and Mohanty compare a naive matcher, RAPIDMatch, their modification of it and SGIM, by
seconds of Java for up to 1000 subscriptions. Here each claim is judged by tests per event, and by time,
where all matchers are plain Python.""",
    {"survey": "survey.heuristics"},
)

XUE = Paper(
    "The simulation of Xue and Feng, repeated",
    "xue.md",
    """\
Xue and Feng (2005) compare hybrid routing (unicast between clusters, multicast within them) with hierarchical
routing, by the *total cost of the tree*, the messages of all links, and by the *average event delay*, for 1
to 10,000 subscribers and 100 or 1000 publishers. The delay is time used by events received; what is counted
as such is left open, and no reading gives both of its curves. So two are here: the mean latency, and the time
from the first publication to the last receipt, by the number of receipts. Curves part where they differ by
more than 5 % from there on; where the paper has a number for that, it is met by up to twice as many or half
as many, and partly up to four times. The figures of the paper are lost: trends are compared, and the numbers
of its text. Costs are exact; delays are of simulated time, the same in each run. The paper's 730 links cannot
be those of a tree of 100 clusters: they are links of the network below it. Beyond the paper's simulation,
clients that look for a broker are compared with clients anywhere. What the paper describes, and where it is
here: [its page](../../docs/papers/xue.md).""",
    {"hybrid": "hybrid.hybrid"},
)
"""Routing between clusters of brokers, and within them."""

NEWER = Paper(
    "REIN, TAMA, BE-Tree and HEM, held to their claims",
    "newer.md",
    """\
Four papers since 2011, of which only the abstracts lay before us: what those claim is judged beside
`counting`, which is the older way, and the R\\*-tree. All are compiled, and take turns on the same events;
workloads are those of [the contest](../../docs/contest.md). What of each paper is here, and what is not:
[their page](../../docs/papers/newer.md).""",
    {"newer": "newer.newer"},
)

PAPERS: Mapping[str, Paper] = {
    "wang": WANG, "novak": NOVAK, "bittner": BITTNER, "mohapatra": MOHAPATRA, "xue": XUE, "newer": NEWER,
}  # fmt: skip
"""All papers, by name."""

MODULES: Mapping[str, str] = {
    name: module for paper in PAPERS.values() for name, module in paper.modules.items()
}
"""The modules of the experiments of all papers, by name of the experiment."""
