"""Every workload by its name. A new one is a module beside this, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from rtfilter.replay.workloads.base import Workload
from rtfilter.replay.workloads.boxes import BoxWorkload, dense, geo, narrow, nested, sparse, wide

BOXES: Mapping[str, Callable[..., BoxWorkload]] = {
    "wide": wide,
    "narrow": narrow,
    "dense": dense,
    "sparse": sparse,
    "nested": nested,
    "geo": geo,
}
"""Workloads of boxes, by name: (seed, dimensions) to workload. Each has its own number of dimensions, the
default; `sparse` and `nested` have infinite sides."""
REAL: Mapping[str, str] = {
    "flights": "rtfilter.replay.workloads.flights",
    "weather": "rtfilter.replay.workloads.weather",
}
"""Workloads of real events, by name: the module that has `make(seed)`, imported only when wanted."""
WORKLOADS: Sequence[str] = (*BOXES, *REAL)
"""Names that `workload` knows."""


def workload(name: str, seed: int = 1, dimensions: int | None = None) -> Workload:
    """The workload of a name.

    Parameters
    ----------
    name : str
        One of `WORKLOADS`.
    seed : int
        Not negative.
    dimensions : int, optional
        Of the workloads of boxes; each has its own by default.

    Raises
    ------
    ValueError
        Unknown name, or dimensions for a workload that has a schema of its own.
    """
    if name in BOXES:
        return BOXES[name](seed) if dimensions is None else BOXES[name](seed, dimensions)
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    if dimensions is not None:
        raise ValueError(f"the workload {name!r} has a schema of its own; leave dimensions out")
    made: Workload = import_module(REAL[name]).make(seed)
    return made
