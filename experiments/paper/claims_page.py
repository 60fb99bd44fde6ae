"""The page of a paper: a table of its claims with what was found, then each experiment's picture and tables.

All numbers of the page come from the rows of the experiments.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.paper import verdicts
from experiments.paper.page import FIXED, Result, counted
from experiments.paper.papers import Paper
from experiments.paper.verdicts import Claim, Finding
from rtfilter.replay import machine

HEADS = ("claim", "the paper", "ours, counted", "ours, in time")


def claims_page(paper: Paper, found: Sequence[Result], pictures: str) -> str:
    """Return the page of a paper, as Markdown, with pictures from a folder."""
    machines = dict.fromkeys(machine.one_line(result.machine) for result in found)
    claims = [claim for result in found for claim in result.claims]
    parts = [
        f"# {paper.title}",
        paper.introduction,
        "## Claims",
        f"{counted(claims)} {FIXED}",
    ]
    for result in found:
        parts.append(f"`{result.command}` ({result.setting_title}; {result.revision}):")
        parts.append(_table(result.claims))
    for result in found:
        title = f"{result.experiment.title}, {result.setting_title}"
        parts += [
            f"## {title[0].upper()}{title[1:]}",
            f"![{title}]({pictures}/{result.picture})",
            f"```text\n{result.experiment.text(result.rows)}\n```",
        ]
    return "\n\n".join([*parts, "; ".join(machines) + "."]) + "\n"


def _table(claims: Sequence[Claim]) -> str:
    lines = [HEADS, tuple("---" for _ in HEADS)]
    lines += [(each.claim, each.paper, _told(each.units), _told(each.time)) for each in claims]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _told(finding: Finding) -> str:
    """Return the verdict and what was found. A claim that cannot be judged has no verdict."""
    if finding.verdict == verdicts.DOES_NOT_APPLY:
        return finding.ours
    return f"**{finding.verdict}**: {finding.ours}"
