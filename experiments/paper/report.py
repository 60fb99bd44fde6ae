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

from experiments import ResultError
from experiments.output import content
from experiments.paper import page, runner
from experiments.paper.page import Result, claims_page
from experiments.paper.papers import MODULES, PAPERS, WANG, Paper
from experiments.paper.runner import Experiment
from experiments.paper.settings import PROFILES, Profile
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
    print(summary(parts))
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


FULL: dict[str, dict[str, float]] = {
    "times": {"paper": 1900, "modern": 150, "flights": 250, "flights-modern": 150, "weather": 400,
              "weather-modern": 200},
    "fig4a": {"paper": 330, "transform": 260, "modern": 90, "flights": 90, "flights-modern": 90,
              "weather": 40, "weather-modern": 30},
    "fig4b": {"paper": 1600, "transform": 50, "modern": 100, "flights": 250, "flights-modern": 120,
              "weather": 300, "weather-modern": 150},
    "fig4c": {"paper": 370, "transform": 50, "modern": 40, "flights": 90, "flights-modern": 60,
              "weather": 120, "weather-modern": 60},
    "fig4d": {"paper": 2500, "transform": 180, "modern": 160, "flights": 180, "flights-modern": 120,
              "weather": 200, "weather-modern": 100},
    "counting": {"paper": 1100},
    "generators": {"paper": 1200},
    "thesis": {"less-than": 1700},
    "day": {"own": 1000},
    "alerting": {"own": 310},
    "forwarding": {"own": 240},
    "hybrid": {"own": 640},
    "survey": {"own": 580},
    "newer": {"own": 330},
}  # fmt: skip
"""Seconds of the profile ``full``, by experiment and setting."""
SHARE = {"full": 1.0, "medium": 0.1, "ci": 0.01}
"""Part of these seconds that each profile takes."""
LEAST = 3.0
"""Seconds that any part takes."""
OTHER = 120.0
"""Seconds of an experiment that is not known here."""


class Part:
    """An experiment on a setting, as a part of a long run."""

    def __init__(self, name: str, setting: str, profile: Profile, folder: Path, revision: object) -> None:
        self.name, self.setting = name, setting
        self._revision = revision
        self.path = folder / f"{name}-{setting}.json"
        known = FULL.get(name, {}).get(setting, OTHER)
        self.seconds = max(known * SHARE.get(profile.name, 1.0), LEAST)
        """About how long all of it takes."""

    @property
    def left(self) -> float:
        """About how long the rest of it takes."""
        if not self.path.exists():
            return self.seconds
        try:
            kept = content(self.path)
        except ResultError:  # the experiment itself says what is wrong
            return self.seconds
        same = kept["machine"].get("revision") == self._revision  # otherwise it starts again
        return self.seconds * float(kept.get("left", 1.0)) if same else self.seconds


def summary(parts: Sequence[Part]) -> str:
    """Return a summary of the work ahead in a long run, in a single line."""
    total, left = (sum(seconds) for seconds in zip(*((p.seconds, p.left) for p in parts), strict=True))
    return (
        f"{len(parts)} parts, about {span(total)} in all, {span(left)} left. "
        "Ctrl-C keeps what is done; the same command goes on."
    )


def span(seconds: float) -> str:
    """Return a time as text, in hours and minutes."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute" if seconds > 0 else "nothing"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
