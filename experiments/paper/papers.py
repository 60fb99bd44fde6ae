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
        The measurements of the paper, and those judged here; Markdown below the heading.
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
- **Plans in 4-d in time** run the first six batches of a size and each tenth after them, the controllers all.
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
"""The paper by which rtfilter began. `page` writes its pages, and those of all others."""

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
  and no time is scaled. Times are CPU times, medians of rounds in which all methods, sizes and
  contestants take turns.
- **Ranges.** A `>=` and a `<=` of one attribute are one range and one increment; the thesis counts two. The
  benchmark has `<` alone, so no number here depends on it.
- **The tree** inserts by a corrected rule, because that of the thesis loses subscriptions.

## What limits the conclusions most

1. A node of the tree and an increment have other costs in Python than in Java. So the ranking in time is one
   of these programs.
2. The benchmark has nested predicates with `<` alone, and matches one event again and again.
3. Siena is missing; its stand-in judges the claims about it. There is one machine.""",
    {"thesis": "thesis.thesis"},
)
"""The thesis that compares a matching tree with ways to count."""

BITTNER = Paper(
    "Bittner's comparisons, repeated",
    "bittner.md",
    """\
Bittner (2004) makes two comparisons, and gives no values of their parameters: the filter of one broker beside
other filters, and three ways to forward profiles and events through a network of brokers. The parts of the
paper, and their places here: [its page](../../docs/papers/bittner.md).

## What was rebuilt

- `alerting`: the filter nodes of DAS and the tree of Gough and Smith, with the five operators of the paper.
  Each parameter varies alone.
- `forwarding`: profile forwarding, event forwarding and rendezvous nodes, in all combinations of what the
  paper varies. Messages and profiles held are exact; tests compare them with real routers.
- `forwarding` in time: real brokers with filter nodes run in one process, in fewer and smaller worlds. The
  CPU time of the busiest broker for an event gives the efficiency.
- `day`: brokers that measure their load and change the way of forwarding, beside each fixed way.

## What was changed, and why

- **Other systems.** Elvin4 and OpenORB are not available. Other matchers take their places, and no verdict is
  about the factor of eight. The R\\*-tree is compiled, the others are Python: its time is shown, not judged.
- **Operations** are the steps that each matcher counts, in its own unit.
- **Memory** has two measures: 8 bytes for each reference and 1/8 for each bit, with the tree as the paper
  draws it; and the bytes of Python's allocator, where the tree shares equal parts.
- **Efficiency** is not defined by the paper. Here it is the number of events for which the busiest broker
  makes a million steps. A step compares two bounds, or 64 profiles of two sets; sending or taking a message
  is 1,000 steps. Counts for 100 and 10,000 steps stand beside it where they differ.
- **The simple protocol** of event forwarding may take an event for less. The paper does not tell how much. A
  fit of the measured times gives the factor, and verdicts use it; counts for a half, three quarters and the
  same cost stand beside it.
- **Rendezvous nodes** are the brokers with the shortest ways to all others, which is the best place for them.
- **The day** of changing load is ours: one course of hours, on ten trees. A match stands for a quarter of a
  message; verdicts for half and twice of that stand beside it.
- **Beyond the paper**, brokers tell their neighbours one box for many near ones.

## What limits the conclusions most

1. All workloads are ours: uniform values of small domains, random trees of brokers, one constrained
   attribute in the network. The paper tells none of its own.
2. The counted efficiency is a model. Its order depends on the cost of a message, and the times come from
   small worlds, without sockets, with filters in Python.
3. The systems of the paper are missing: claims about all systems are judged by other matchers. The values of
   a parameter, and the timed worlds, take turns on one machine.""",
    {"alerting": "alerting.alerting", "forwarding": "forwarding.forwarding", "day": "forwarding.day"},
)
"""Interval nodes for each attribute, beside the tree that they come from."""

MOHAPATRA = Paper(
    "The survey of matching over 0, 1 and \\*, repeated",
    "mohapatra.md",
    """\
Mohapatra, Mohanta and Mohanty compare a naive matcher, RAPIDMatch, their modification of it and SGIM, by
seconds of Java for up to 1000 subscriptions over 0, 1 and \\*. The parts of the paper, and their places here:
[its page](../../docs/papers/mohapatra.md).

## What was rebuilt

- All five matchers: naive, the tree, RAPIDMatch, modified RAPIDMatch and SGIM, each in plain Python. Brute
  force is the test of each.
- The comparison, with seconds by number of subscriptions as in the figures of the paper, and beyond its 1000
  subscriptions.
- `ternary-vectors` stands beside them and has no claim: it compares 64 attributes at once.

## What was changed, and why

- **What the paper does not tell varies**: the share of stars, the share of ones in events, the parameter c,
  and the number of attributes by which SGIM groups.
- **Counts follow one rule for all.** A count is the number of things that a matcher touches for an event:
  each node of a tree, each group of SGIM, and each constraint that it comes to, also where its outcome is
  known. A row says whether a touched thing takes all matchers about as long.
- **The pseudo-code is lost.** Both RAPIDMatch methods are restored from their description, and the rules of
  SGIM's groups are ours.
- **Two verdicts**: each claim is judged by counts, and by times of plain Python. The words of
  `ternary-vectors` are compiled, so its time is not judged.

## What limits the conclusions most

1. SGIM's rules are ours. Another rule may drop other groups, so its claims are about our SGIM.
2. Cells are drawn independently of each other. Real subscriptions share more, which helps trees.
3. Times are of Python, where a node and a constraint cost other shares than in Java. Worlds of
   100,000 subscriptions have four events, and all worlds are drawn once.""",
    {"survey": "survey.heuristics"},
)

XUE = Paper(
    "The simulation of Xue and Feng, repeated",
    "xue.md",
    """\
Xue and Feng (2005) compare hybrid routing (unicast between clusters, multicast within them) with hierarchical
routing, for 1 to 10,000 subscribers and 100 or 1000 publishers. Their measures are the *total cost of the
tree*, the messages over all links, and the *average event delay*. The parts of the paper, and their places
here: [its page](../../docs/papers/xue.md).

## What was rebuilt

- 100 clusters of 11 brokers in a transit-stub network of 730 links, ten networks. Each cluster has at most
  eight child clusters.
- Both ways to route, by the routers of this project. A part of each run sends every message through them,
  and finds the same messages, costs and delays.
- The cost: each message between clusters counts once for each link on its way, and each message or multicast
  in a cluster once, for the local network.
- Beyond the paper: clients that look for a broker, beside clients anywhere.

## What was changed, and why

- **730 links** are neither those of a tree of 100 clusters nor of 1,100 brokers. They are the links of the
  network below the tree.
- **The delay** is time used by events received, and the paper leaves open of which. Two readings are here:
  the mean latency, and the time from the first publication to the last receipt, by the number of receipts.
- **Load.** The paper tells neither how fast publishers publish nor how long a broker needs for a message. So
  several loads are here, and a claim is judged by all of them.
- **Where curves part**: they differ by more than 5 % from there on. A number of the paper holds if it is that
  number, and partly up to a factor of two.
- **Columns.** Costs are counts. Delays are of simulated time, the same in each run, and stand in the column
  of times.
- **By construction**: the cost of all events is the sum of the costs of each. So two claims about more
  publishers are decided before anything is drawn, and say so.

## What limits the conclusions most

1. The figures of the paper are lost. Trends and the numbers of its text are compared, nothing else.
2. The delay depends on the load more than on anything else, and the paper does not tell its own.
3. Time is simulated: a broker needs the same time for each message, and links have a latency and no
   capacity.""",
    {"hybrid": "hybrid.hybrid"},
)
"""Routing between clusters of brokers, and within them."""

NEWER = Paper(
    "REIN, TAMA, BE-Tree and HEM, held to their claims",
    "newer.md",
    """\
Four papers since 2011 claim to be faster than counting, which is the older way, and than each other. What
of each paper is here, and what is not: [their page](../../docs/papers/newer.md).

## What was rebuilt

- All four matchers, compiled, beside our counting and our R\\*-tree. All take turns on the same events.

## What was changed, and why

- **Only abstracts** lay before us. So claims are those of the abstracts, and details of the structures are
  ours.
- **Workloads** are those of [the contest](../../docs/contest.md), because each paper has its own.

## What limits the conclusions most

1. The papers' programs may do what their abstracts do not tell.
2. All matchers take subscriptions at any time here, which costs REIN and HEM layers.
3. Times are of one machine, one core and compiled code.""",
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
