"""All experiments of the papers, and the pages with their claims and our results.

``all`` runs all experiments and writes the pages. ``report`` draws the pictures and writes the pages from
kept numbers. Each paper has its page; see `papers`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from itertools import chain
from os.path import relpath
from pathlib import Path

from experiments.errors import ResultError
from experiments.output import content
from experiments.paper import budget, page, runner
from experiments.paper.budget import Part, span
from experiments.paper.claims_page import claims_page
from experiments.paper.page import Result
from experiments.paper.papers import MODULES, PAPERS, WANG, Paper
from experiments.paper.runner import Experiment
from experiments.paper.settings import PROFILES
from rtfilter.replay import machine

READING = "reading.md"
"""A text by hand in the folder of the pages, which becomes a part of the first one."""


def experiment(name: str) -> Experiment:
    """Return the experiment of a name."""
    found: Experiment = import_module(f"experiments.{MODULES[name]}").EXPERIMENT
    return found


def settings(name: str) -> tuple[str, ...]:
    """Return the settings on which an experiment of a name can be run."""
    found: tuple[str, ...] = import_module(f"experiments.{MODULES[name]}").SETTING_NAMES
    return found


def results(folder: Path, paper: Paper = WANG) -> list[Result]:
    """Return the results of a paper in a folder, sorted by experiment and setting.

    Raises
    ------
    ResultError
        A file is damaged or not complete.
    """
    found = []
    for name in paper.modules:
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


def write(folder: Path, to: Path) -> list[Path]:
    """Draw all results of a folder, and write a page for each paper that has some into the folder `to`.

    Returns
    -------
    list of Path
        The pages, in the order of `PAPERS`.

    Raises
    ------
    ResultError
        The folder holds no result, a damaged one, or one that is not complete.
    """
    found = {paper.page: own for paper in PAPERS.values() if (own := results(folder, paper))}
    if not found:
        raise ResultError(f"{folder} holds no results: python -m experiments all --out {folder}")
    to.mkdir(parents=True, exist_ok=True)
    for result in chain.from_iterable(found.values()):
        setting = result.experiment.settings[result.setting]
        runner.picture(result.experiment, setting, result.rows, folder)
    for name, text in pages(folder, to).items():
        (to / name).write_text(text)
    return [to / name for name in found]


def pages(folder: Path, to: Path) -> dict[str, str]:
    """Return the texts of all pages about the results of a folder, by name, for the folder `to`."""
    pictures = Path(relpath(folder, to)).as_posix()
    made = {}
    for paper in PAPERS.values():
        own = results(folder, paper)
        if own and paper is WANG:
            reading = to / READING
            made[paper.page] = page.first_page(own, pictures, reading.read_text() if reading.exists() else "")
            made[page.DETAILS] = page.details(own, pictures)
        elif own:
            made[paper.page] = claims_page(paper, own, pictures)
    return made


def everything(arguments: Sequence[str]) -> int:
    """Run all experiments; see ``--help``."""
    names = list(dict.fromkeys(setting for name in MODULES for setting in experiment(name).settings))
    parser = argparse.ArgumentParser(
        prog="python -m experiments all",
        description="Run all experiments of the papers and write the pages. An interrupted run is continued; "
        "results of another revision begin anew.",
    )
    runner.arguments(parser, names, names)
    parser.add_argument(
        "--paper", nargs="+", choices=PAPERS, default=list(PAPERS), metavar="NAME",
        help=f"one or more of {', '.join(PAPERS)} (all)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    profile, out = PROFILES[given.profile], runner.folder(parser, given)
    chosen = [name for paper in given.paper for name in PAPERS[paper].modules]
    revision = machine.describe()["revision"]
    parts = [
        Part(name, setting, profile, out, revision)
        for setting in given.setting for name in chosen if setting in settings(name)
    ]  # fmt: skip
    if not parts:
        parser.error(f"--setting {' '.join(given.setting)} is none of --paper {' '.join(given.paper)}")
    print(machine.one_line())
    print(budget.summary(parts))
    try:
        for number, part in enumerate(parts, 1):
            own = experiment(part.name)
            setting = own.settings[part.setting]
            left = [each.left for each in parts]
            print(
                f"part {number} of {len(parts)}, {part.name}, {part.setting}: {span(left[number - 1])}; "
                f"{span(sum(left))} left in all\n", flush=True,
            )  # fmt: skip
            rows = runner.measure(own, setting, profile, out, given.seed)
            print(runner.show(own, setting, rows), flush=True)
        written = write(out, out)
    except ResultError as error:
        parser.error(str(error))
    _tell(written)
    return 0


def _tell(written: Sequence[Path]) -> None:
    for path in written:
        print(f"page {path}")


def main(arguments: Sequence[str]) -> int:
    """Write the pages of a folder; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments report",
        description="Draw the pictures and write the pages from the numbers in a folder.",
    )
    parser.add_argument("folder", type=Path, help="folder with numbers of the experiments")
    parser.add_argument("--to", type=Path, help="folder for the pages (the same folder)")
    given = parser.parse_args(arguments)
    try:
        written = write(given.folder, given.to or given.folder)
    except ResultError as error:
        parser.error(str(error))
    _tell(written)
    return 0
