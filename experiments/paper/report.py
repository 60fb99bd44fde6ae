"""All experiments of the paper, and the page with its claims and our results.

``all`` runs all experiments and writes the page. ``report`` draws the pictures and writes the page from kept
numbers.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from os.path import relpath
from pathlib import Path
from typing import Any, NamedTuple

from experiments.errors import ResultError
from experiments.output import content
from experiments.paper import runner
from experiments.paper.runner import Experiment, told
from experiments.paper.settings import PROFILES, SETTINGS
from experiments.paper.verdicts import Claim
from rtfilter.replay import machine
from rtfilter.replay.output import Row

NAMES = ("times", "fig4a", "fig4b", "fig4c", "fig4d", "counting", "regret")
"""The modules with experiments, in the order of the page."""
SHOWN = ("paper", "modern")
"""Settings whose pictures are on the page."""
PAGE = "evaluation.md"
READING = "reading.md"
"""A text by hand in the folder of the page, which becomes a part of the page."""
INTRODUCTION = """\
Wang, Zhang and Kitsuregawa search an R\\*-tree for batches of events, the shortest search first, and adapt
the level down to which a batch is estimated. This page repeats each figure of their paper, adds experiments
on questions that the paper leaves open, and gives a verdict on each claim, also on those that fail.
`python -m experiments all --profile full` measures all of it, in hours; `--profile ci` takes minutes."""


class Result(NamedTuple):
    """The content of a file of numbers."""

    experiment: Experiment
    setting: str
    profile: str
    machine: dict[str, Any]
    rows: list[Row]

    @property
    def claims(self) -> list[Claim]:
        """Its claims with their verdicts."""
        return self.experiment.claims(self.rows)


def experiment(name: str) -> Experiment:
    """The experiment of a name."""
    found: Experiment = import_module(f"experiments.paper.{name}").EXPERIMENT
    return found


def settings(name: str) -> tuple[str, ...]:
    """The settings on which an experiment of a name can be run."""
    found: tuple[str, ...] = import_module(f"experiments.paper.{name}").SETTING_NAMES
    return found


def results(folder: Path) -> list[Result]:
    """The results in a folder, sorted by experiment and setting.

    Raises
    ------
    ResultError
        A file is damaged or not complete.
    """
    found = []
    for name in NAMES:
        for setting in settings(name):
            path = folder / f"{name}-{setting}.json"
            if not path.exists():
                continue
            kept = content(path)
            profile = kept["settings"]["profile"]["name"]
            if not kept.get("complete"):
                again = f"python -m experiments {name} --setting {setting} --profile {profile} --out {folder}"
                raise ResultError(f"{path} is not complete: go on with {again}, or delete it")
            found.append(Result(experiment(name), setting, profile, kept["machine"], kept["rows"]))
    return found


def page(found: Sequence[Result], pictures: str, reading: str) -> str:
    """The page as Markdown, with pictures from a folder and a text by hand."""
    own = [result for result in found if result.setting == SHOWN[0]]
    machines = dict.fromkeys(machine.one_line(result.machine) for result in found)
    profiles = ", ".join(dict.fromkeys(f"`{result.profile}`" for result in found))
    parts = [
        "# The paper's evaluation, repeated",
        INTRODUCTION,
        _count(own),
        _table(own),
        "What was found for each claim is below, in the section of its experiment.",
        f"Profile {profiles}. " + "; ".join(machines) + ".",
        *([reading.strip()] if reading else []),
        "## Pictures",
        *(picture for result in found if result.setting in SHOWN for picture in _picture(result, pictures)),
        "## Verdicts by setting",
        "Settings: " + "; ".join(f"`{name}`: {SETTINGS[name].title}" for name in SETTINGS) + ".",
        _matrix(found),
    ]
    for result in found:
        parts += [
            f"## {result.experiment.name}, {result.setting} ({result.profile})",
            "\n".join(line for claim in result.claims for line in told(claim)),
            f"```text\n{result.experiment.text(result.rows)}\n```",
        ]
    return "\n\n".join(parts) + "\n"


def _count(found: Sequence[Result]) -> str:
    told = []
    for unit in ("units", "time"):
        verdicts = Counter(getattr(claim, unit).verdict for result in found for claim in result.claims)
        told.append(
            f"in {unit} " + ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common())
        )
    return f"Verdicts on the paper's setting: {'; '.join(told)}."


def _table(found: Sequence[Result]) -> str:
    """All claims and verdicts; what was found is too long for a cell."""
    lines = ["| | claim | paper | units | time |", "|---|---|---|---|---|"]
    lines += [
        f"| {result.experiment.name} | {claim.claim} | {claim.paper} | **{claim.units.verdict}** "
        f"| **{claim.time.verdict}** |"
        for result in found
        for claim in result.claims
    ]
    return "\n".join(lines)


def _picture(result: Result, pictures: str) -> list[str]:
    name = f"{result.experiment.name}-{result.setting}"
    return [f"![{result.experiment.title}, {SETTINGS[result.setting].title}]({pictures}/{name}.png)"]


def _matrix(found: Sequence[Result]) -> str:
    """The verdicts on each claim by setting, as a table."""
    names = [name for name in SETTINGS if any(result.setting == name for result in found)]
    verdicts: dict[tuple[str, str], dict[str, str]] = {}
    for result in found:
        for claim in result.claims:
            verdicts.setdefault((result.experiment.name, claim.claim), {})[result.setting] = (
                f"{claim.units.verdict} / {claim.time.verdict}"
            )
    lines = [f"| | claim | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    lines += [
        f"| {name} | {claim} | {' | '.join(own.get(setting, '') for setting in names)} |"
        for (name, claim), own in verdicts.items()
        if len(own) > 1
    ]
    return "\n".join(lines)


def write(folder: Path, to: Path) -> Path:
    """Draw all results of a folder, and write the page into the folder `to`; its path.

    Raises
    ------
    ResultError
        The folder holds no result, a damaged one, or one that is not complete.
    """
    found = results(folder)
    if not found:
        raise ResultError(f"{folder} holds no results: python -m experiments all --out {folder}")
    for result in found:
        runner.picture(result.experiment, SETTINGS[result.setting], result.rows, folder)
    to.mkdir(parents=True, exist_ok=True)
    written = to / PAGE
    reading = to / READING
    written.write_text(
        page(found, Path(relpath(folder, to)).as_posix(), reading.read_text() if reading.exists() else "")
    )
    return written


def everything(arguments: Sequence[str]) -> int:
    """Run all experiments; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments all",
        description="Run all experiments of the paper and write the page. An interrupted run is continued.",
    )
    runner.arguments(parser, tuple(SETTINGS), list(SETTINGS))
    given = parser.parse_args(arguments)
    profile, out = PROFILES[given.profile], runner.folder(parser, given)
    print(machine.one_line())
    try:
        for setting in given.setting:
            for name in NAMES:
                if setting in settings(name):
                    rows = runner.measure(experiment(name), SETTINGS[setting], profile, out, given.seed)
                    print(runner.show(experiment(name), SETTINGS[setting], rows), flush=True)
        written = write(out, out)
    except ResultError as error:
        parser.error(str(error))
    print(f"page {written}")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Write the page of a folder; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments report",
        description="Draw the pictures and write the page from the numbers in a folder.",
    )
    parser.add_argument("folder", type=Path, help="folder with numbers of the experiments")
    parser.add_argument("--to", type=Path, help="folder for the page (the same folder)")
    given = parser.parse_args(arguments)
    try:
        written = write(given.folder, given.to or given.folder)
    except ResultError as error:
        parser.error(str(error))
    print(f"page {written}")
    return 0
