"""Runs one experiment on one setting, in pieces, and then makes its tables and pictures.

Each piece is kept in a JSON file as soon as it is done. So an interrupted run can be continued, by the same
revision: a file has numbers of one revision only.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from tqdm import tqdm

from experiments import ResultError
from experiments.arguments import natural
from experiments.output import content, keep, require_same
from experiments.paper.settings import PROFILES, SETTINGS, Profile, Setting
from experiments.paper.verdicts import Claim
from experiments.timing import one_core
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture

DIGITS = 5
"""Significant digits of kept numbers."""
DPI = 150
"""Resolution of pictures."""


class Experiment(NamedTuple):
    """An experiment: how it is measured, and how its rows are shown."""

    name: str
    title: str
    measure: Callable[[Run], None]
    text: Callable[[Sequence[Row]], str]
    """Makes tables of its rows."""
    claims: Callable[[Sequence[Row]], list[Claim]]
    draw: Callable[[Sequence[Row], str], Figure]
    """Makes a picture of its rows, with a title."""
    settings: Mapping[str, Setting] = SETTINGS
    """The available settings, by name."""
    sizes: Mapping[str, Mapping[str, Any]] = {}
    """Its own numbers by name of the profile, if those of `Profile` are not the ones it runs with."""


@dataclass
class Run:
    """A run of an experiment on a setting, with its finished pieces.

    Attributes
    ----------
    experiment : str
        Its name.
    setting : Setting
    profile : Profile
        The size of the run.
    sizes : mapping
        The numbers of the profile, for an experiment that has its own numbers.
    seed : int
    path : Path
        JSON file of the pieces that are done. A file of another revision starts again, with a message.
    rows : list of Row
        The rows of these pieces.
    machine : dict
        The machine, see `rtfilter.replay.machine.describe`.

    Raises
    ------
    ResultError
        The file is damaged, or of another profile, seed, machine or version.
    """

    experiment: str
    setting: Setting
    profile: Profile
    seed: int
    path: Path
    rows: list[Row] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine.describe)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    _bar: tqdm[Any] | None = None
    _cost: float = 0.0
    _costs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        kept = content(self.path)
        revision, earlier = self.machine["revision"], kept["machine"].get("revision")
        same = self.machine | {"revision": earlier}
        require_same(self.path, kept, experiment=self.experiment, machine=same, settings=self._settings)
        if earlier == revision:
            self.rows = kept["rows"]
        else:
            print(f"{self.path} is of revision {earlier}: it begins anew, by {revision}", file=sys.stderr)

    @property
    def _settings(self) -> dict[str, Any]:
        sizes = {"name": self.profile.name, **self.sizes} if self.sizes else self.profile._asdict()
        return {"setting": self.setting.name, "profile": sizes, "seed": self.seed}

    def pieces(self, costs: Mapping[str, float]) -> Iterator[str]:
        """Yield the pieces that are not done, in order.

        `costs` are the relative times of all pieces, for the progress bar.
        """
        done = {row["piece"] for row in self.rows}
        self._costs = costs
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

    def close(self) -> None:
        """Remove the progress bar, so that a message of an interrupted run has a line of its own."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def advance(self, share: float) -> None:
        """Show that a share of the current piece is done."""
        if self._bar is not None:
            self._bar.update(share * self._cost)

    def tell(self, what: str) -> None:
        """Show what comes next."""
        if self._bar is not None:
            self._bar.set_postfix_str(what)

    def keep(self, piece: str, rows: Sequence[Row]) -> None:
        """Keep the rows of a piece that is done, in the file."""
        self.rows += [{"piece": piece, **{key: _brief(value) for key, value in row.items()}} for row in rows]
        costs, done = self._costs, {row["piece"] for row in self.rows} | {piece}
        left = sum(cost for name, cost in costs.items() if name not in done) / sum(costs.values())
        complete = piece == list(costs)[-1]  # pieces are done in order
        keep(
            self.path, self.experiment, self._settings, self.rows, self.machine,
            complete=complete, left=round(left, 3),
        )  # fmt: skip

    def of(self, piece: str) -> list[Row]:
        """Return the rows of a piece; none if it is not done."""
        return [row for row in self.rows if row["piece"] == piece]


def _brief(value: Any) -> Any:
    """Return a value as it is kept, with few digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _brief(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_brief(item) for item in value]
    return value


def percent(share: float, digits: int = 0) -> str:
    """Return a share as text in percent, but never "-0 %"."""
    text = f"{100 * share:.{digits}f}"
    return f"{text.removeprefix('-') if float(text) == 0 else text} %"


def measure(experiment: Experiment, setting: Setting, profile: Profile, out: Path, seed: int) -> list[Row]:
    """Run an experiment, and keep its numbers in a folder; its rows.

    Raises
    ------
    ResultError
        The folder holds a damaged result, or one of another profile, seed, machine or version.
    """
    path = out / f"{experiment.name}-{setting.name}.json"
    sizes = experiment.sizes.get(profile.name, {})
    own = Run(experiment.name, setting, profile.divided(setting.divisor), seed, path, sizes=sizes)
    with one_core():
        try:
            experiment.measure(own)
        finally:
            own.close()
            gc.unfreeze()  # `timing.calls` freezes objects, and what stays frozen is not freed at exit either
    return own.rows


def picture(experiment: Experiment, setting: Setting, rows: Sequence[Row], out: Path) -> None:
    """Draw an experiment into a folder, as PNG and SVG."""
    figure = experiment.draw(rows, f"{experiment.title}: {setting.title}")
    for suffix in (".png", ".svg"):
        save_picture(figure, out / f"{experiment.name}-{setting.name}{suffix}", DPI)


def show(experiment: Experiment, setting: Setting, rows: Sequence[Row]) -> str:
    """Return the tables and claims of an experiment as text."""
    claims = [line for claim in experiment.claims(rows) for line in claim_lines(claim)]
    heading = f"{experiment.name}, {experiment.title}: {setting.title}"
    return "\n".join([heading, "=" * len(heading), experiment.text(rows), "", *claims, ""])


def claim_lines(claim: Claim) -> list[str]:
    """Return a claim as text: what the paper says, and what was found in units and in time."""
    paper = f" (the paper: {claim.paper})" if claim.paper else ""
    return [
        f"- {claim.claim}{paper}",
        f"  - units: {claim.units.ours}: **{claim.units.verdict}**",
        f"  - time: {claim.time.ours}: **{claim.time.verdict}**",
    ]


def arguments(parser: argparse.ArgumentParser, settings: Sequence[str], default: Sequence[str]) -> None:
    """Add the arguments that all experiments of the paper have."""
    add = parser.add_argument
    add("--profile", choices=PROFILES, default="ci", help="how much is run (%(default)s)")
    add(
        "--setting", nargs="+", choices=settings, default=default,
        help=f"one or more of {', '.join(settings)} ({' '.join(default)})", metavar="NAME",
    )  # fmt: skip
    add("--out", type=Path, help="folder for numbers and pictures (out/paper/PROFILE)")
    add("--seed", type=natural, default=1, help="seed of subscriptions and events (%(default)s)")


def main(experiment: Experiment, settings: Sequence[str], given_arguments: Sequence[str]) -> int:
    """Run one experiment from the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {experiment.name}",
        description=f"{experiment.title[0].upper()}{experiment.title[1:]}. An interrupted run is continued.",
    )
    arguments(parser, settings, settings[:1])
    given = parser.parse_args(given_arguments)
    profile, out = PROFILES[given.profile], folder(parser, given)
    print(machine.one_line())
    for name in given.setting:
        try:
            rows = measure(experiment, experiment.settings[name], profile, out, given.seed)
        except ResultError as error:
            parser.error(str(error))
        picture(experiment, experiment.settings[name], rows, out)
        print(show(experiment, experiment.settings[name], rows))
        if given.profile == "ci":
            print("A short run: the pages' verdicts are of longer ones, and may be others.")
        print(f"kept in {out}")
    return 0


def folder(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Path:
    """Return the folder for results. It is made before anything is measured."""
    out: Path = given.out or Path("out") / "paper" / given.profile
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out} is no folder to write to: {error.strerror}")
    return out
