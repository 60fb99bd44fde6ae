"""``rtfilter warm``: compile all kernels, so that later processes need not."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from rtfilter.cli.terminal import CommandError, say
from rtfilter.filter import inside
from rtfilter.index.kernels import counts

KERNELS = 50
"""Kernels that the command loads or compiles."""
SAY_EVERY = 5.0
"""Seconds between two lines of progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile all kernels into numba's cache, in one or two minutes, so that no later process must.\n"
        "For an image: run it as one step of the build, and set NUMBA_CACHE_DIR to the same folder then and\n"
        "when the image runs. The cache serves machines with the same kind of processor."
    )
    parser.epilog = "examples:\n  rtfilter warm\n  NUMBA_CACHE_DIR=/var/cache/rtfilter rtfilter warm\n"


def run(arguments: argparse.Namespace) -> int:
    from rtfilter import RStarTree  # noqa: F401  # imports the kernels
    from rtfilter.index.kernels.cache import cache_of
    from rtfilter.index.kernels.jit import Kernel

    begun = perf_counter()
    with warnings.catch_warnings(record=True) as complaints, _progress():
        warnings.simplefilter("always")
        cache_of(Kernel.known[0].py_func)  # warns early if nothing can be cached
        if not complaints:
            compile_tree()
            compile_matchers()
    if complaints:
        raise CommandError(str(complaints[0].message))
    used = [kernel for kernel in Kernel.known if kernel.overloads]
    compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in used)
    loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in used)
    folders = sorted({str(kernel.stats.cache_path) for kernel in used})
    say(
        f"{compiled} kernels compiled in {perf_counter() - begun:.0f} s, {loaded} were there; "
        f"kept in {', '.join(folders)}"
    )
    return 0


@contextmanager
def _progress() -> Iterator[None]:
    """Report the number of ready kernels every few seconds, if some are compiled."""
    compiled, done, said = counts.compiled, 0, perf_counter()

    def watch() -> None:
        nonlocal done, said
        done = min(done + 1, KERNELS)
        if counts.compiled > compiled and perf_counter() >= said + SAY_EVERY:
            said = perf_counter()
            say(f"{done} of {KERNELS} kernels")

    log, quiet = logging.getLogger("rtfilter"), logging.NullHandler()  # `say` reports instead
    log.addHandler(quiet)
    counts.watchers.append(watch)
    try:
        yield
    finally:
        counts.watchers.remove(watch)
        log.removeHandler(quiet)


def compile_tree() -> None:
    """Compile the kernels of every filter with an R*-tree."""
    import rtfilter.filter  # noqa: F401  # imports all kernels
    from rtfilter.index import ready

    ready.load()


def compile_matchers() -> None:
    """Compile the kernels of the other matchers by matching and changing with each."""
    from rtfilter import EventFilter, RStarTree, Schema
    from rtfilter.adaptive import FixedPlan
    from rtfilter.filter import part_of
    from rtfilter.matchers.equal_sides import EqualSides
    from rtfilter.matching.verify import COMPILED

    rules = ["x > 1 OR s LIKE 'long-prefix-%'", "x < 5", "x BETWEEN 1 AND 2", "x = 1.5", "x IN (1.5, 2)"]
    events = [{"x": 1.5}, {"s": "long-prefix-1"}]
    for matcher in ("split", "masks", "counting", "rein", "hem", "tama", "be-tree"):
        filter = EventFilter(Schema({"x": float, "s": str}), matcher=matcher)
        filter.subscribe_many(rules)
        for group in (None, 1):  # an adaptive controller tries one of them first, at random
            filter.configure(controller=FixedPlan(0, group))
            list(filter.stream(events))
        inside(filter).matcher.workload(filter.schema.read(events))
        part_of(filter, [0, 3, 4])
        filter.unsubscribe(3)
    EqualSides(2).pack()
    RStarTree.bulk_load([[0.0]], [[1.0]]).check()
    filter = EventFilter(Schema({"s": str}), matcher="rtree")
    filter.subscribe_many(["s LIKE 'long-prefix-%'"] * COMPILED)
    filter.match({"s": "long-prefix-1"})  # causes many exact checks
    filter.unsubscribe(0)
