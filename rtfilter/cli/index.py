"""``rtfilter index``: build, describe and verify saved indexes."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from math import log10
from typing import TYPE_CHECKING, Any

from rtfilter.basics.text import numbered
from rtfilter.cli import inputs
from rtfilter.cli.arguments import positive
from rtfilter.cli.schemas import add_strict, read_definition, to_line, with_strict
from rtfilter.cli.subscription_files import build_filter, is_index, open_index
from rtfilter.cli.terminal import CommandError, say, show
from rtfilter.filter import inside

if TYPE_CHECKING:
    from rtfilter.filter import EventFilter

DAMAGED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A saved index is a directory. It opens at once, however many subscriptions it holds, and all\n"
        "processes on a host share its memory."
    )
    parser.epilog = "example:\n  rtfilter index build alerts.jsonl --schema ticks.json --out alerts-index\n"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    build = action(
        "build",
        "build an index of subscriptions and save it",
        f"{inputs.SUBSCRIPTION_FILES}\n{inputs.SCHEMA_FILE}\nexample:\n"
        "  rtfilter index build alerts.jsonl --schema ticks.json --out alerts-index\n",
    )
    build.add_argument("subscriptions", metavar="SUBSCRIPTIONS", help="file of subscriptions")
    build.add_argument(
        "--schema", metavar="SCHEMA", required=True, help="types of the attributes: JSON, or a file of it"
    )
    add_strict(build)
    build.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="directory to save to; an index in it is replaced at the end",
    )
    build.add_argument(
        "--capacity",
        metavar=("INNER", "LEAF"),
        nargs=2,
        type=positive,
        help="most entries of an inner node and of a leaf, at least 4; the default is measured to be good",
    )
    inputs.add_on_error(build)
    inputs.add_progress(build)
    info = action(
        "info", "describe a saved index", "example:\n  rtfilter index info alerts-index --json | jq .height\n"
    )
    info.add_argument("index", metavar="DIR", help="a saved index")
    info.add_argument("--json", action="store_true", help="as one JSON object")
    check = action(
        "check",
        "verify the checksums of a saved index, and every invariant of its tree if it has one",
        "The exit code is 0 when all is well and 1 when the index is damaged.\n\n"
        "example:\n  rtfilter index check alerts-index && rtfilter match alerts-index ticks.csv\n",
    )
    check.add_argument("index", metavar="DIR", help="a saved index")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 if ``check`` finds damage."""
    return {"build": _build, "info": _info, "check": _check}[arguments.action](arguments)


def _build(arguments: argparse.Namespace) -> int:
    if is_index(arguments.subscriptions):
        raise CommandError(f"{arguments.subscriptions}: is a directory; build needs a file of subscriptions")
    _refuse_occupied(arguments.out)
    definition = read_definition(arguments.schema, max_unbounded=None)
    if arguments.strict:
        definition = with_strict(definition)
    if arguments.capacity:
        if definition.matcher is not None:
            raise CommandError("--capacity is only for the R*-tree; leave it out: --schema names a matcher")
        try:
            definition = replace(definition, matcher={"name": "rtree", "capacity": arguments.capacity})
        except ValueError as error:
            raise CommandError(str(error)) from None
    target = build_filter(
        arguments.subscriptions,
        definition,
        progress=arguments.progress,
        skip=arguments.on_error == "skip",
    )
    try:
        target.save(arguments.out)
    except OSError as error:
        raise CommandError(f"{arguments.out}: cannot be written: {error.strerror or error}") from None
    say(f"{numbered(len(target), 'subscription')} saved in {arguments.out}, {_size(_disk(arguments.out))}")
    return 0


def _refuse_occupied(path: str) -> None:
    """Refuse a path that `rtfilter.snapshots.arrays.write` would refuse, before the index is built."""
    from rtfilter.snapshots.manifest import MANIFEST

    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise CommandError(f"{path}: exists and is no directory; choose another")
    if os.listdir(path) and not os.path.exists(os.path.join(path, MANIFEST)):
        raise CommandError(f"{path}: has other files than those of an index; choose another directory")


def _info(arguments: argparse.Namespace) -> int:
    target = open_index(arguments.index)
    stats = target.stats()
    if arguments.json:
        show(json.dumps(_facts(arguments.index, target, stats), ensure_ascii=False))
        return 0
    lines = {"subscriptions": f"{stats['subscriptions']:,}"}
    lines["matcher"] = stats["matcher"]["name"]
    if "capacity" in stats:
        lines |= _tree_lines(stats)
    lines |= {
        "size": f"{_size(_disk(arguments.index))} on disk, {_size(stats['bytes'])} in memory",
        "schema": to_line(target.schema),
    }
    show(arguments.index)
    for name, text in lines.items():
        show(f"  {name:<14} {text}")
    return 0


def _tree_lines(stats: dict[str, Any]) -> dict[str, str]:
    inner, leaf = stats["capacity"]
    levels = stats["nodes_per_level"]
    return {
        "boxes": f"{stats['boxes']:,} distinct of {stats['links']:,}, in {stats['dimensions']} dimensions",
        "tree": f"height {stats['height']}, nodes from the root down {', '.join(f'{n:,}' for n in levels)}",
        "capacity": f"inner {inner}, leaf {leaf}; leaves are {stats['mean_leaf_fill']:.0%} full on average",
    }


def _facts(path: str, target: EventFilter, stats: dict[str, Any]) -> dict[str, Any]:
    described = {name: value for name, value in stats.items() if name != "in_flight_batches"}
    return {
        "path": path,
        **described,
        "disk_bytes": _disk(path),
        "schema": json.loads(to_line(target.schema)),
    }


def _check(arguments: argparse.Namespace) -> int:
    from rtfilter.basics.errors import SnapshotError
    from rtfilter.filter import EventFilter

    os.stat(arguments.index)  # a missing path is an error, not damage
    try:
        target = EventFilter.load(arguments.index)
        tree = "capacity" in target.stats()
        if tree:  # any other matcher was built while opening
            from rtfilter.matchers.rtree import tree_of  # which imports numba

            tree_of(inside(target).matcher).check()
    except SnapshotError as error:
        say(f"error: {error}")
        return DAMAGED
    except (AssertionError, LookupError, ValueError) as error:
        # The checksums match, so the index was damaged before it was saved.
        say(f"error: {arguments.index}: the tree is damaged: {error}; build it again")
        return DAMAGED
    sound = "checksums and tree are" if tree else "the checksums are"
    show(f"{arguments.index}: {numbered(len(target), 'subscription')}, {sound} in order")
    return 0


def _disk(path: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())


def _size(count: int) -> str:
    if count < 1000:
        return f"{count} bytes"
    power = min(int(log10(count) / 3), 4)
    return f"{count / 1000**power:.3g} {('kB', 'MB', 'GB', 'TB')[power - 1]}"
