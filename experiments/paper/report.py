"""All experiments of the paper, and the page with its claims and our results.

``all`` runs all experiments and writes the page. ``report`` draws the pictures and writes the page from kept
numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from os.path import relpath
from pathlib import Path

from experiments.errors import ResultError
from experiments.output import content
from experiments.paper import budget, page, runner
from experiments.paper.budget import Part, span
from experiments.paper.page import Result
from experiments.paper.runner import Experiment
from experiments.paper.settings import PROFILES, SETTINGS
from rtfilter.replay import machine

NAMES = ("times", "fig4a", "fig4b", "fig4c", "fig4d", "counting", "generators")
"""The modules with experiments, in the order of the page."""
READING = "reading.md"
"""A text by hand in the folder of the pages, which becomes a part of the first one."""


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


def write(folder: Path, to: Path) -> Path:
    """Draw all results of a folder, and write the pages into the folder `to`; the path of the first.

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
    written, reading = to / page.FIRST, to / READING
    pictures = Path(relpath(folder, to)).as_posix()
    written.write_text(page.first_page(found, pictures, reading.read_text() if reading.exists() else ""))
    (to / page.DETAILS).write_text(page.details(found, pictures))
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
    parts = [
        Part(name, setting, profile, out)
        for setting in given.setting for name in NAMES if setting in settings(name)
    ]  # fmt: skip
    print(budget.told(parts))
    try:
        for number, part in enumerate(parts, 1):
            own, setting = experiment(part.name), SETTINGS[part.setting]
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
