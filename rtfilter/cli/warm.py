"""``rtfilter warm``: compile all kernels, so that no later process must."""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter

from rtfilter.cli.terminal import CommandError, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compile all kernels into numba's cache, in one or two minutes, so that no later process must.\n"
        "For an image: run it as one step of the build, and set NUMBA_CACHE_DIR to the same folder then and\n"
        "when the image runs. The cache serves machines with the same kind of processor."
    )
    parser.epilog = "examples:\n  rtfilter warm\n  NUMBA_CACHE_DIR=/var/cache/rtfilter rtfilter warm\n"


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    from rtfilter import RStarTree  # noqa: F401  # imports the kernels
    from rtfilter.index.kernels.cache import cache_of
    from rtfilter.index.kernels.jit import Kernel

    begun = perf_counter()
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        cache_of(Kernel.known[0].py_func)  # warns where nothing can be kept, before it takes a minute
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


def compile_tree() -> None:
    """Change and search a small tree in every way."""
    import numpy as np

    from rtfilter import RStarTree

    low = np.random.default_rng(0).random((5000, 2))
    tree = RStarTree.bulk_load(low[:200], low[:200] + 0.1, capacity=(4, 8))
    tree.insert(200, low[0], low[0] + 0.5)
    tree.insert(200, low[1], low[1] + 0.5)  # an id with two boxes
    tree.insert_many(np.arange(201, 241), low[:40], low[:40] + 0.2)
    tree.replace(201, low[:2], low[:2] + 0.3)
    tree.delete(202)
    tree.delete_many(np.arange(0, 200, 2))
    for points in (low[:200], low[:1]):
        tree.any(points)
        frontier = tree.frontier(points, 1)
        tree.resume(frontier)
        tree.resume_part(frontier.split(np.arange(len(points)), np.array([0, len(points)])), 0)
    tree.search_boxes(low[:9], low[:9] + 0.2, "within")
    tree.boxes_of(201)
    tree.check()
    tree.repack()
    large = RStarTree.bulk_load(low[:4096], low[:4096] + 0.1)
    large.insert(5000, low[4096], low[4096] + 0.1)  # hash tables grow, and are saved while both are there
    RStarTree.from_arrays(large.to_arrays())


def compile_matchers() -> None:
    """Match with those that have kernels of their own, and change them."""
    from rtfilter import EventFilter, Schema
    from rtfilter.matchers.equal_sides import EqualSides
    from rtfilter.matching.refine import MANY

    rules = ["x > 1 OR s LIKE 'long-prefix-%'", "x < 5", "x BETWEEN 1 AND 2", "x = 1.5", "x IN (1.5, 2)"]
    events = [{"x": 1.5}, {"s": "long-prefix-1"}]
    for matcher in ("split", "masks", "counting", "rein", "hem", "tama", "be-tree"):
        filter = EventFilter(Schema({"x": float, "s": str}), matcher=matcher)
        filter.subscribe_many(rules)
        list(filter.stream(events))
        filter.workload(events)
        filter.part([0, 3, 4])
        filter.unsubscribe(3)
    EqualSides(2).pack()
    filter = EventFilter(Schema({"s": str}))
    filter.subscribe_many(["s LIKE 'long-prefix-%'"] * MANY)
    filter.match({"s": "long-prefix-1"})  # many exact checks at once
    filter.unsubscribe(0)
