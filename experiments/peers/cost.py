"""Time and memory that a peer will need, estimated from few boxes, so that no trial takes hours."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter

from experiments.peers.peer import Peer, Way
from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.workloads import Bounds

SAMPLE, LEAST = 1 / 50, 1000
"""Costs are estimated from this share of the boxes, but at least from this number of them."""


def seconds(call: Callable[[], object]) -> float:
    """Return seconds that one call takes."""
    begun = perf_counter()
    call()
    return perf_counter() - begun


def memory() -> int | None:
    """Return bytes that this process alone holds, after it has given back free memory; None if unknown."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):  # fails unless the C library is GNU's
        ctypes.CDLL(None).malloc_trim(0)
    return _status("RssAnon")


def peak_memory() -> int | None:
    """Return the most bytes that this process has held; None if the system does not report it."""
    return _status("VmHWM")


def _status(field: str) -> int | None:
    listing = Path("/proc/self/status")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def available_memory() -> int | None:
    """Return bytes of free memory; None if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def too_much(
    peer: type[Peer], boxes: Bounds, points: FloatArray, build_seconds: float, event_seconds: float
) -> str:
    """Return why a peer is not tried on these boxes; empty if it is.

    The peer is compiled, and built on a sample. The time to build, the time of an event and the memory are
    extrapolated linearly. The memory may be at most 90 % of what is free.
    """
    tiny = peer(Bounds(boxes.low[:50], boxes.high[:50]))
    for ask in tiny.ways.values():
        ask(points[:2])
    sample = max(LEAST, int(len(boxes.low) * SAMPLE))
    times = len(boxes.low) / sample
    if times <= 1:
        return ""
    few = Bounds(boxes.low[:sample], boxes.high[:sample])
    before = memory()
    begun = perf_counter()
    index = peer(few)
    build = (perf_counter() - begun) * times
    after, room = memory(), available_memory()
    if build > build_seconds:
        return f"building would take {build:,.0f} s"
    if before is not None and after is not None and room is not None:
        need = (after - before) * times
        if need > 0.9 * room:
            return f"it would need {need / 2**30:,.0f} GiB of {room / 2**30:,.0f}"
    event = times * min(seconds(partial(ask, points[:1])) for ask in index.ways.values())
    return f"an event would take {event:,.0f} s" if event > event_seconds else ""


def affordable(ask: Way, points: FloatArray, budget: float) -> int:
    """Return the number of points, at least 1, that can be asked for in about `budget` seconds.

    It is estimated from asking for one point and, if that is quick, for ten.
    """
    count = 1
    for few in (1, 10):
        count = int(budget / max(seconds(partial(ask, points[:few])) / few, 1e-9))
        if count < 10:
            break
    return min(max(count, 1), len(points))
