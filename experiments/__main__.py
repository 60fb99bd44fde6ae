"""The command `python -m experiments NAME ...`: run one experiment."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from experiments import ResultError
from experiments.paper.papers import MODULES


class Experiment(NamedTuple):
    """An experiment of the command line.

    Attributes
    ----------
    module : str
        Its module, below `experiments`. It is imported only when the experiment is run.
    help : str
        One line for ``--help``.
    function : str
        Name of its function ``(arguments: list[str]) -> int``, which parses the arguments of the experiment
        and returns an exit code.
    """

    module: str
    help: str
    function: str = "main"

    @property
    def goes_on(self) -> bool:
        """True if an interrupted run continues where it stopped."""
        long = ("paper.", "service.", "contest.", "ruler.")
        return self.module.startswith(long) or self.module in MODULES.values()


EXPERIMENTS = {
    "demo": Experiment("demo", "a short replay of boxes and of flights, with a picture"),
    "minutes": Experiment("minutes.run", "a newcomer's first minutes: first steps in a fresh environment"),
    "bench": Experiment("speed.bench", "speed of search, updates and loading, compared with peers"),
    "peers": Experiment("speed.survey", "time per event of all peers, by size and shape of the index"),
    "auto": Experiment("speed.choice", "a filter that chooses its matcher, beside each fixed one"),
    "compare": Experiment("speed.compare", "compare two kept results of bench or of peers"),
    "bursts": Experiment("response.bursts", "mean response of a burst: fixed plans and the adaptive one"),
    "mixed": Experiment("load.mixed", "response times while other threads change subscriptions"),
    "stalls": Experiment("load.stalls", "the longest change of the index, and memory after many"),
    "callers": Experiment("load.callers", "coroutines that each ask for one event, by how they ask"),
    "scale": Experiment("load.scale", "two threads, and indexes of millions of boxes"),
    "service": Experiment("service.run", "the service under load, to saturation, with peers"),
    "spark": Experiment("spark.throughput", "events per second and memory on Spark"),
    "spark-shards": Experiment("spark.sharded", "memory of Spark's workers with millions of boxes in shards"),
    "nats": Experiment("nats.run", "events per second on NATS JetStream, and response times"),
    "nats-simulation": Experiment("nats.simulation", "a hundred workers on NATS, from measured costs"),
    "times": Experiment("paper.times", "the paper: times of all plans while the index grows"),
    "fig4a": Experiment("paper.fig4a", "the paper, Fig. 4-a: the best level while the index grows"),
    "fig4b": Experiment("paper.fig4b", "the paper, Fig. 4-b: the mean response by batch size"),
    "fig4c": Experiment("paper.fig4c", "the paper, Fig. 4-c: the mean response by level"),
    "fig4d": Experiment("paper.fig4d", "the paper, Fig. 4-d: the controller while the index grows"),
    "generators": Experiment("paper.generators", "the paper's gain, by how boxes are drawn and indexed"),
    "counting": Experiment("paper.counting", "the R*-tree compared with counting"),
    "survey": Experiment("survey.heuristics", "matchers over 0, 1 and *, by subscriptions and by ones"),
    "alerting": Experiment("alerting.alerting", "Bittner's comparison: filter nodes beside other methods"),
    "forwarding": Experiment("forwarding.forwarding", "Bittner's ways of forwarding in a network of brokers"),
    "tables": Experiment("forwarding.tables", "a table of a broker: one index, or one for each connection"),
    "day": Experiment("forwarding.day", "a day of changing load: a strategy that is chosen, and fixed ones"),
    "hybrid": Experiment("hybrid.hybrid", "Xue and Feng: hybrid and hierarchical routing of events"),
    "newer": Experiment("newer.newer", "REIN, TAMA, BE-Tree and HEM, beside counting and the R*-tree"),
    "thesis": Experiment("thesis.thesis", "Novák's thesis: trees of tests and ways to count"),
    "contest": Experiment("contest.run", "every matcher on every workload, from few to many subscriptions"),
    "record": Experiment("controllers.logs", "logs of batches that every plan has run, for `controllers`"),
    "controllers": Experiment("controllers.contest", "controllers compared on the logs of `record`"),
    "all": Experiment("paper.report", "all experiments of the papers, and their pages", "everything"),
    "report": Experiment("paper.report", "write the pages of the papers again, from kept numbers"),
    "overheads": Experiment("speed.overheads", "the time to start a process, and the cost of metrics"),
    "spark-files": Experiment("spark.files", "the overhead of Spark, with and without Java between"),
    "ruler": Experiment("ruler.run", "JSON events and patterns, beside event-ruler and quamina"),
    "rules": Experiment("speed.rules", "loading SQL rules: microseconds a rule, and what they go to"),
    "capacity": Experiment("speed.capacity", "time per event by leaf capacity"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment that the first argument names; its exit code, 0 if it succeeded."""
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
    try:
        return _run(EXPERIMENTS[given.name], given.arguments)
    except KeyboardInterrupt:
        again = shlex.join(["python", "-m", "experiments", given.name, *given.arguments])
        how = "goes on from here" if EXPERIMENTS[given.name].goes_on else "begins again"
        print(f"{given.name}: interrupted; {again} {how}", file=sys.stderr)
        return 130  # the status that a shell reports for SIGINT
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "experiments", "rtfilter"):
            raise
        from rtfilter.basics.extras import install

        extras = "peers,spark" if given.name.startswith("spark") else "peers"
        print(f"{given.name} needs {package}: {install(extras)}", file=sys.stderr)
        return 1
    except (OSError, ResultError) as error:
        print(f"{given.name}: {error}", file=sys.stderr)
        return 1


def _run(chosen: Experiment, arguments: list[str]) -> int:
    run: Callable[[list[str]], int] = getattr(import_module(f"experiments.{chosen.module}"), chosen.function)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
