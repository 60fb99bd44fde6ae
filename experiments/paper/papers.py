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
the level down to which a batch is estimated. Their Figure 4 is about response *time*. Here each claim is
judged in time, and in work units: visits of nodes, which are the same in each run.""",
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
Siena, on 1,000 to 4,000 nested predicates of twelve attributes. Siena is not to be had; in its place stands a
lean counting, which is never called Siena. Each claim is judged by operations, which are the same in each
run, and in time. All contestants of the claims are objects of Python, so their times compare with one
another, as those of the thesis's Java did; the R\\*-tree and the compiled counting compare with one another
alone. What the thesis built, and where it is here: [its page](../../docs/papers/novak.md).""",
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
