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

MOHAPATRA = Paper(
    "The survey of matching over 0, 1 and \\*, repeated",
    "mohapatra.md",
    """\
Mohapatra, Mohanta and Mohanty compare a naive matcher, RAPIDMatch, their modification of it and SGIM, by
seconds of Java for up to 1000 subscriptions. Here each claim is judged by tests per event, and by time,
where all matchers are plain Python.""",
    {"survey": "survey.heuristics"},
)

PAPERS: Mapping[str, Paper] = {"wang": WANG, "mohapatra": MOHAPATRA}
"""All papers, by name."""

MODULES: Mapping[str, str] = {
    name: module for paper in PAPERS.values() for name, module in paper.modules.items()
}
"""The modules of the experiments of all papers, by name of the experiment."""
