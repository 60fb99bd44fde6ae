"""Running one figure of one setting: piece by piece, resumable, with progress; then its table and pictures.

The pieces of a run are kept in one JSON file as soon as they are done, so that an interrupted run goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from tqdm import tqdm

from experiments.output import ResultError, content, keep, natural, require_same
from experiments.paper.settings import PROFILES, SETTINGS, Profile, Setting
from experiments.timing import one_core
from rtfilter.index.kernels.jit import compilation_announced
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture

#: Significant digits of kept numbers.
DIGITS = 5
#: Resolution of pictures.
DPI = 80


class Claim(NamedTuple):
    """What the paper (or we) said, what was found, and what became of it."""

    claim: str
    paper: str
    ours: str
    verdict: str
    """``holds``, ``partly``, ``fails`` or ``does not apply``; ``observed`` if there is nothing to judge."""


class Experiment(NamedTuple):
    """One figure."""

    name: str
    title: str
    measure: Callable[[Run], None]
    text: Callable[[Sequence[Row]], str]
    """Its rows as tables."""
    claims: Callable[[Sequence[Row]], list[Claim]]
    draw: Callable[[Sequence[Row], str], Figure]
    """Its rows as a picture with a title."""


@dataclass
class Run:
    """One experiment on one setting: what is asked, and what is done of it.

    Attributes
    ----------
    path : Path
        JSON file of the pieces that are done.
    """

    experiment: str
    setting: Setting
    profile: Profile
    seed: int
    path: Path
    rows: list[Row] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine.describe)
    _bar: tqdm[Any] | None = None
    _cost: float = 0.0
    _last: str = ""

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        kept = content(self.path)
        revision, earlier = self.machine["revision"], kept["machine"].get("revision")
        # Hours of measuring outlive a commit: the revisions are noted, not required to be one.
        same = self.machine | {"revision": earlier}
        require_same(self.path, kept, experiment=self.experiment, machine=same, settings=self._settings)
        known = str(earlier).split(", ")
        self.machine["revision"] = ", ".join([*known, *({str(revision)} - set(known))])
        self.rows = kept["rows"]

    @property
    def _settings(self) -> dict[str, Any]:
        return {"setting": self.setting.name, "profile": self.profile._asdict(), "seed": self.seed}

    def pieces(self, costs: Mapping[str, float]) -> Iterator[str]:
        """The pieces that are not done, in order; `costs` are relative times, for the progress bar."""
        done = {row["piece"] for row in self.rows}
        self._last = list(costs)[-1]
        waiting = {piece: cost for piece, cost in costs.items() if piece not in done}
        name = f"{self.experiment}, {self.setting.name}"
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, left {remaining}{postfix}"
        with tqdm(total=sum(waiting.values()), desc=name, bar_format=form, leave=False, disable=None) as bar:
            self._bar = bar
            before = 0.0
            for piece, cost in waiting.items():
                self._cost = cost
                self.tell(piece)
                yield piece
                before += cost
                bar.update(before - bar.n)
            self._bar = None

    def advance(self, share: float) -> None:
        """A share of the piece under way is done."""
        if self._bar is not None:
            self._bar.update(share * self._cost)

    def tell(self, what: str) -> None:
        """Say what comes next."""
        if self._bar is not None:
            self._bar.set_postfix_str(what)

    def keep(self, piece: str, rows: Sequence[Row]) -> None:
        """Keep the rows of a piece that is done."""
        self.rows += [{"piece": piece, **{key: _brief(value) for key, value in row.items()}} for row in rows]
        complete = piece == self._last  # pieces are done in order
        keep(self.path, self.experiment, self._settings, self.rows, self.machine, complete=complete)

    def of(self, piece: str) -> list[Row]:
        """The rows of a piece, none when it is not done."""
        return [row for row in self.rows if row["piece"] == piece]


def _brief(value: Any) -> Any:
    """A value as it is kept: floats with few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _brief(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_brief(item) for item in value]
    return value


def percent(share: float, digits: int = 0) -> str:
    """A share for people; never "-0 %"."""
    text = f"{100 * share:.{digits}f}"
    return f"{text.removeprefix('-') if float(text) == 0 else text} %"


def measure(experiment: Experiment, setting: Setting, profile: Profile, out: Path, seed: int) -> list[Row]:
    """Run an experiment and write its numbers into a folder; its rows.

    Raises
    ------
    ResultError
        The folder holds a result of another profile, seed, machine or version.
    """
    path = out / f"{experiment.name}-{setting.name}.json"
    own = Run(experiment.name, setting, profile.divided(setting.divisor), seed, path)
    with one_core(), compilation_announced(lambda text: tqdm.write(text, file=sys.stderr)):
        experiment.measure(own)
    return own.rows


def picture(experiment: Experiment, setting: Setting, rows: Sequence[Row], out: Path) -> None:
    """Write the pictures of an experiment into a folder."""
    figure = experiment.draw(rows, f"{experiment.title}: {setting.title}")
    for suffix in (".png", ".svg"):
        save_picture(figure, out / f"{experiment.name}-{setting.name}{suffix}", DPI)


def show(experiment: Experiment, setting: Setting, rows: Sequence[Row]) -> str:
    """Tables and claims as text."""
    claims = [f"- {c.claim}: {c.paper} | {c.ours} | {c.verdict}" for c in experiment.claims(rows)]
    heading = f"{experiment.name}, {experiment.title}: {setting.title}"
    return "\n".join([heading, "=" * len(heading), experiment.text(rows), "", *claims, ""])


def arguments(parser: argparse.ArgumentParser, settings: Sequence[str], default: Sequence[str]) -> None:
    """What all experiments of the paper take."""
    parser.add_argument("--profile", choices=PROFILES, default="ci", help="how much (%(default)s)")
    parser.add_argument(
        "--setting", nargs="+", choices=settings, default=default,
        help=f"of {', '.join(settings)}; by default {', '.join(default)}", metavar="NAME",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder of numbers and pictures (out/paper/PROFILE)")
    parser.add_argument("--seed", type=natural, default=1, help="of subscriptions and events (%(default)s)")


def main(experiment: Experiment, settings: Sequence[str], given_arguments: Sequence[str]) -> int:
    """Run one experiment from the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {experiment.name}",
        description=f"{experiment.title}. A run that was interrupted goes on where it stopped.",
    )
    arguments(parser, settings, settings[:1])
    given = parser.parse_args(given_arguments)
    profile, out = PROFILES[given.profile], folder(parser, given)
    print(machine.one_line())
    for name in given.setting:
        try:
            rows = measure(experiment, SETTINGS[name], profile, out, given.seed)
        except ResultError as error:
            parser.error(str(error))
        picture(experiment, SETTINGS[name], rows, out)
        print(show(experiment, SETTINGS[name], rows))
        print(f"kept in {out}")
    return 0


def folder(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Path:
    """The folder for results, made before anything is measured."""
    out: Path = given.out or Path("out") / "paper" / given.profile
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out} is no folder to write to: {error.strerror}")
    return out
