"""``rtfilter replay``: bursts of a workload or of files, timed, with an adaptive or a fixed plan."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtfilter.cli.arguments import natural, port, positive, row, some_path
from rtfilter.cli.schemas import add_strict, read_definition, read_named
from rtfilter.cli.terminal import CommandError, say, show

if TYPE_CHECKING:
    from rtfilter.adaptive import Controller
    from rtfilter.basics.options import Named
    from rtfilter.definition import Definition
    from rtfilter.replay import Contender, ReplayReport
    from rtfilter.replay.workloads import Workload

BATCH = 10_000
RANDOM = ("wide", "narrow", "clustered", "dense", "sparse", "equal", "nested", "geo")
OTHERS = ("bits", "strings", "suffixes")
REAL = ("flights", "weather")
"""With `RANDOM` and `OTHERS`, the names in `workload_registry`, which is slow to load."""
EXAMPLES = """\
examples:
  rtfilter replay wide --subscriptions 100000 --figure replay.png
  rtfilter replay narrow --poisson 200 --insert 100 --delete 100 --metrics-port 17464
  rtfilter replay flights --level 1 --group 16 --json replay.json
  rtfilter replay wide --controller wang --insert 2000 --log decisions.jsonl
  rtfilter replay wide --matcher counting
  rtfilter replay subscriptions.jsonl events.parquet --sizes 64,512
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Replay bursts of events against subscriptions that come and go, and report mean response times.\n"
        f"Workloads of random subscriptions: {', '.join(RANDOM)},\n{', '.join(OTHERS)};\n"
        f"of data about New York in 2013, which need the extra replay: {', '.join(REAL)}.\n"
        "Interrupted, it writes the results of the bursts so far."
    )
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("workload", help="the name of a workload, or a file of subscriptions")
    add("events", nargs="?", help="with a file of subscriptions: the file of events")
    add(
        "--schema",
        help="with files: attribute types, JSON or a file of it (default: inferred); or a definition as of "
        "rtfilter serve, which holds where no flag says another thing",
    )
    add_strict(parser)
    add("--subscriptions", type=natural, help="in the index at the start (default 10000, or the file)")
    add("--dimensions", type=positive, help="of the workloads of boxes (default 12)")
    add("--bursts", type=positive, default=200, help="(default 200)")
    sizes = parser.add_mutually_exclusive_group().add_argument
    sizes("--sizes", type=_sizes, default=(16, 128, 1024), help="events of a burst (16,128,1024)")
    sizes("--poisson", type=_mean, metavar="MEAN", help="draw burst sizes from a Poisson law instead")
    add("--insert", type=natural, default=0, metavar="N", help="new subscriptions between bursts")
    add("--delete", type=natural, default=0, metavar="N", help="old ones removed between bursts")
    add("--level", default="adaptive", help="a level, 0 the root, or 'adaptive' (default)")
    add("--group", default="adaptive", help="events per group, 'all', or 'adaptive' (default)")
    add("--order", choices=["shortest", "fifo", "longest"], help="order of events (default shortest)")
    add(
        "--matcher",
        type=read_named,
        metavar="NAME",
        help="the index (default rtree); or JSON with options, such as "
        '{"name": "filter-nodes", "bit_lists": 0.1}',
    )
    add(
        "--controller",
        type=read_named,
        metavar="NAME",
        help="what chooses level and group: cost (default), wang (the paper's, groups of one), level, plan; "
        "or JSON with options",
    )
    add("--rounds", type=positive, help="of wang, level and plan: samples of each (16)")
    add("--threshold", type=positive, help="of the same: updates until it doubts (300000)")
    add("--capacity", type=positive, nargs=2, metavar=("INNER", "LEAF"), help="of index nodes")
    add("--check", type=natural, default=1, metavar="N", help="events per burst checked by brute force")
    add("--rtree-every", type=natural, default=0, metavar="N", help="let rtree run every Nth burst too")
    add("--seed", type=row, default=1)
    add("--json", type=some_path, metavar="FILE", help="write everything as JSON")
    add("--csv", type=some_path, metavar="FILE", help="write one line per burst as CSV")
    add("--figure", type=some_path, metavar="FILE", help="write a picture (PNG, SVG, PDF)")
    add("--log", type=some_path, metavar="FILE", help="write the controller's decisions as JSON lines")
    add("--metrics-port", type=port, metavar="PORT", help="serve Prometheus metrics meanwhile")
    add("--push", metavar="HOST:PORT", help="send metrics to a Pushgateway at the end")
    add("--progress", action="store_true", help="show progress even if this is no terminal")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; after an interrupt, write the results of the complete bursts."""
    from rtfilter import EventFilter, replay
    from rtfilter.basics.extras import needed
    from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
    from rtfilter.replay.workloads import WORKLOADS, workload
    from rtfilter.watch.metrics import Metrics

    # Report errors before the replay, which takes minutes.
    if arguments.figure is not None:
        with needed("replay", "--figure"):
            import matplotlib  # noqa: F401
    if arguments.rtree_every:
        with needed("replay", "--rtree-every"):
            import rtree  # noqa: F401
    if arguments.figure is not None and arguments.figure.suffix not in (".png", ".svg", ".pdf"):
        raise CommandError(f"{arguments.figure}: a figure is a .png, .svg or .pdf")
    for path in (arguments.json, arguments.csv, arguments.figure, arguments.log):
        if path is not None and not path.parent.is_dir():
            raise CommandError(f"{path}: there is no folder {path.parent}")
    entries: list[dict[str, Any]] = []
    most = MAX_UNBOUNDED if arguments.schema is None else _take_definition(arguments).max_unbounded
    try:
        controller = _controller(arguments, entries.append if arguments.log else None)
        if arguments.workload in WORKLOADS:
            _refuse_files(arguments)
            source: Workload = workload(arguments.workload, arguments.seed, arguments.dimensions)
            count = 10_000 if arguments.subscriptions is None else arguments.subscriptions
        else:
            source, there = _from_files(arguments)
            count = there if arguments.subscriptions is None else arguments.subscriptions
        metrics = Metrics() if arguments.metrics_port is not None or arguments.push is not None else None
        # Plans are about levels of a tree.
        matcher = "rtree" if arguments.matcher is None else arguments.matcher
        if arguments.capacity:
            if matcher != "rtree":
                raise CommandError("--capacity is only for the R*-tree; leave out --matcher")
            matcher = {"name": "rtree", "capacity": tuple(arguments.capacity)}
        filter = EventFilter(source.schema, metrics=metrics, matcher=matcher, max_unbounded=most)
        if arguments.rtree_every and filter.stats()["matcher"]["name"] != "rtree":
            raise CommandError("--rtree-every compares trees; leave out --matcher")
        settings = replay.ReplaySettings(
            subscriptions=count,
            bursts=arguments.bursts,
            sizes=arguments.sizes,
            poisson=arguments.poisson,
            insert=arguments.insert,
            delete=arguments.delete,
            check=arguments.check,
            peer_every=arguments.rtree_every,
            seed=arguments.seed,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None
    with contextlib.ExitStack() as stack:
        if metrics and arguments.metrics_port is not None:
            stack.callback(metrics.serve(arguments.metrics_port))
            say(f"metrics on http://127.0.0.1:{arguments.metrics_port}/metrics")
        contenders = [_contender(arguments, controller)]
        interrupt = None
        try:
            report = replay.replay(
                source, settings, contenders, filter, progress=arguments.progress or sys.stderr.isatty()
            )
        except replay.ReplayInterrupted as stopped:
            report, interrupt = stopped.report, stopped
    _write(arguments, report, entries)
    if metrics and arguments.push is not None:
        try:
            metrics.push(arguments.push, "rtfilter")
        except OSError as error:
            raise CommandError(str(error)) from None
    if interrupt is not None:
        raise interrupt
    return 0


def _take_definition(arguments: argparse.Namespace) -> Definition:
    """Return the definition, and set the arguments from it that no flag sets."""
    definition = read_definition(arguments.schema)
    if arguments.matcher is None and arguments.capacity is None:
        arguments.matcher = definition.matcher
    if arguments.controller is None and (arguments.level, arguments.group) == ("adaptive", "adaptive"):
        arguments.controller = definition.controller
    arguments.order = arguments.order or definition.order
    return definition


def _refuse_files(arguments: argparse.Namespace) -> None:
    name = arguments.workload
    for given in (arguments.events, arguments.schema):
        if given is not None:
            raise CommandError(
                f"the workload {name!r} has events and a schema of its own; leave out {given!r}, "
                f"or write ./{name} for a file of this name"
            )


def _write(arguments: argparse.Namespace, report: ReplayReport, entries: Sequence[dict[str, Any]]) -> None:
    from rtfilter.replay import draw

    show(report.text())
    if arguments.json:
        arguments.json.write_text(json.dumps(report.to_json(), indent=1))
    if arguments.csv:
        report.write_csv(arguments.csv)
    if arguments.log:
        arguments.log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    if arguments.figure:
        draw([report], arguments.figure)


def _contender(arguments: argparse.Namespace, controller: Controller) -> Contender:
    from rtfilter.replay import Contender

    adaptive = "adaptive" in (arguments.level, arguments.group)
    return Contender("adaptive" if adaptive else "fixed plan", arguments.order or "shortest", controller)


def _controller(arguments: argparse.Namespace, log: Any) -> Controller:
    """Return the controller for the given level and group."""
    from rtfilter.adaptive import make_controller
    from rtfilter.basics.options import whole

    level = None if arguments.level == "adaptive" else _number("--level", arguments.level, natural)
    words = ("adaptive", "all")
    group = None if arguments.group in words else _number("--group", arguments.group, positive)
    grouped = arguments.group != "adaptive"
    if level is not None and not grouped:
        raise CommandError("a fixed --level needs a fixed --group too: a number or 'all'")
    asked: Named | None = arguments.controller
    options = dict(whole(asked) or {})
    name = options.pop("name", None)
    if asked is not None and (level is not None or (grouped and name != "level")):
        raise CommandError(f"--controller {name} chooses itself; leave out --level and --group")
    if asked is None:
        name = "fixed" if level is not None else "level" if grouped else "cost"
    tuned = {key: value for key in ("rounds", "threshold") if (value := getattr(arguments, key)) is not None}
    if tuned and name in ("fixed", "cost"):
        raise CommandError("--rounds and --threshold tune a search: give --controller wang, level or plan")
    if name == "fixed" and level is not None:
        options = {"level": level, "group": group}
    elif name in ("wang", "plan", "level"):
        options = {"rounds": 16, **options, **tuned}
        if name == "level" and grouped:
            options["group"] = group
    return make_controller({**options, "name": name}, log)


def _from_files(arguments: argparse.Namespace) -> tuple[Workload, int]:
    """Return a workload that repeats subscriptions and events in the order of the files, and its size."""
    from rtfilter import UnknownSubscriptionError
    from rtfilter.cli.inputs import open_inputs
    from rtfilter.replay.workloads import WORKLOADS, file_workload

    path = arguments.workload
    if arguments.dimensions is not None:
        raise CommandError(
            "--dimensions is for workloads of boxes; files have the attributes of their schema"
        )
    if arguments.events is None:
        raise CommandError(f"{path!r}: give a file of events too, or name a workload: {', '.join(WORKLOADS)}")
    known, batches, tables = open_inputs(
        path,
        arguments.events,
        arguments.schema,
        batch=BATCH,
        progress=arguments.progress,
        strict=arguments.strict,
    )
    predicates = []
    for id in known.ids().tolist():
        with contextlib.suppress(UnknownSubscriptionError):  # its time to live may end meanwhile
            predicates.append(known[id].predicate)
    rows = []
    for batch in batches:
        table = tables.read(batch)
        rows += [table.row(i) for i in range(len(table))]
    if not rows or not predicates:
        raise CommandError("there is nothing to replay: no events, or no subscriptions")
    return file_workload(Path(path).name, known.schema, predicates, rows), len(predicates)


def _number(option: str, text: str, read: Callable[[str], int]) -> int:
    try:
        return read(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise CommandError(f"{option} must be a number or a word, see --help: {error}") from None


def _mean(text: str) -> float:
    try:
        mean = float(text)
    except ValueError:
        mean = -1.0
    if not 0 < mean < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a mean size above 0")
    return mean


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))
