"""`python -m experiments NAME ...`: run one experiment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Experiment(NamedTuple):
    """Where an experiment lives, below `experiments`; imported only when it is run."""

    module: str
    help: str
    function: str = "main"
    """``(arguments: list[str]) -> int``, which parses its own arguments and returns an exit code."""


EXPERIMENTS = {
    "demo": Experiment("demo", "bursts of 12-d events and of flights, matched four ways"),
    "bench": Experiment("speed.bench", "speed beside all peers: search, updates, bulk loading"),
    "peers": Experiment("speed.survey", "all peers by number, dimensions, batch size and side"),
    "compare": Experiment("speed.compare", "two kept results of bench or peers: faster or slower"),
    "bursts": Experiment("response.bursts", "mean response of a burst by plan, and as adapted"),
    "mixed": Experiment("load.mixed", "response times under Poisson arrivals and changes at once"),
    "scale": Experiment("load.scale", "two threads beside one, and indexes of millions of boxes"),
    "spark": Experiment("spark.throughput", "on Spark, beside Spark's join and one process without it"),
    "fig4a": Experiment("paper.fig4a", "the paper: best level while the index grows"),
    "fig4b": Experiment("paper.fig4b", "the paper: mean response by batch size, and its gain"),
    "fig4c": Experiment("paper.fig4c", "the paper: mean response by level, and loop counters"),
    "fig4d": Experiment("paper.fig4d", "the paper: adaptive while the index grows"),
    "counting": Experiment("paper.counting", "the paper's motivation: R*-tree or counting"),
    "regret": Experiment("paper.regret", "controllers while the data shift: what they lose"),
    "all": Experiment("paper.report", "the paper: everything, and the page", "everything"),
    "report": Experiment("paper.report", "the paper: the page anew, from kept numbers"),
    "overheads": Experiment("speed.overheads", "starting a process, and the cost of metrics"),
    "capacity": Experiment("speed.capacity", "time per event by leaf capacity, to choose the default"),
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
        module = import_module(f"experiments.{chosen.module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("experiments", "rtfilter"):
            raise
        extras = "replay,spark" if given.name == "spark" else "replay"
        print(f"{given.name} needs {error.name}: pip install 'rtree-filter[{extras}]'", file=sys.stderr)
        return 1
    run: Callable[[list[str]], int] = getattr(module, chosen.function)
    return run(given.arguments)


if __name__ == "__main__":
    sys.exit(main())
