"""`python -m experiments NAME ...`: run one experiment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Experiment(NamedTuple):
    """Where an experiment lives; imported only when it is run."""

    module: str
    help: str
    function: str = "main"
    """``(arguments: list[str]) -> int``, which parses its own arguments and returns an exit code."""


EXPERIMENTS = {
    "demo": Experiment("experiments.demo", "bursts of 12-d events and of flights, matched four ways"),
    "bench": Experiment("experiments.bench", "speed beside all peers: search, updates, bulk loading"),
    "peers": Experiment("experiments.survey", "all peers by subscriptions, dimensions, batch size and side"),
    "compare": Experiment("experiments.compare", "two kept results of bench or peers: faster or slower"),
    "bursts": Experiment("experiments.bursts", "mean response of a burst by level and group, and as adapted"),
    "mixed": Experiment("experiments.mixed", "response times under Poisson arrivals and changes at once"),
    "scale": Experiment("experiments.scale", "two threads beside one, and indexes of millions of boxes"),
    "spark": Experiment("experiments.spark", "on Spark, beside Spark's join and one process without it"),
    "fig4a": Experiment("experiments.paper.fig4a", "the paper: best level while the index grows"),
    "fig4b": Experiment("experiments.paper.fig4b", "the paper: mean response by batch size, and its gain"),
    "fig4c": Experiment("experiments.paper.fig4c", "the paper: mean response by level, and loop counters"),
    "fig4d": Experiment("experiments.paper.fig4d", "the paper: adaptive while the index grows"),
    "counting": Experiment("experiments.paper.counting", "the paper's motivation: R*-tree or counting"),
    "regret": Experiment("experiments.paper.regret", "controllers while the data shift: what they lose"),
    "all": Experiment("experiments.paper.report", "the paper: everything, and the page", "everything"),
    "report": Experiment("experiments.paper.report", "the paper: the page anew, from kept numbers"),
    "overheads": Experiment("experiments.overheads", "starting a process, and the cost of metrics"),
    "capacity": Experiment("experiments.capacity", "time per event by leaf capacity, to choose the default"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment that the first argument names; exit code 0 when it succeeded."""
    names = "\n".join(f"  {name:<12}{experiment.help}" for name, experiment in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Run one experiment. Each has its own --help.",
        epilog=f"experiments:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME", help="one of the experiments below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its own arguments")
    given = parser.parse_args(arguments)
    chosen = EXPERIMENTS[given.name]
    try:
        run: Callable[[list[str]], int] = getattr(import_module(chosen.module), chosen.function)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("experiments", "rtfilter", "scheduler", "adaptive"):
            raise
        extras = "experiments,spark" if given.name == "spark" else "experiments"
        print(f"{given.name} needs {error.name}: pip install 'rtfilter[{extras}]'", file=sys.stderr)
        return 1
    return run(given.arguments)


if __name__ == "__main__":
    sys.exit(main())
