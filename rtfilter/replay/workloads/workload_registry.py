"""All workloads by name.

A new workload is a module of this package with a function `make(seed)`, and a line in :data:`MODULES`. A new
kind of boxes is a function of `boxes` and a line in its table `BOXES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from rtfilter.basics.extras import needed
from rtfilter.replay.workloads.base import Workload
from rtfilter.replay.workloads.random_boxes import BOXES

MODULES: Mapping[str, str] = {
    "bits": "rtfilter.replay.workloads.bit_vectors",
    "strings": "rtfilter.replay.workloads.strings",
    "suffixes": "rtfilter.replay.workloads.suffixes",
    "flights": "rtfilter.replay.workloads.flights",
    "weather": "rtfilter.replay.workloads.weather",
}
"""The module of each workload that is not in `BOXES`. It is imported only when its workload is made."""
WORKLOADS: Sequence[str] = (*BOXES, *MODULES)
"""Names that `workload` knows."""


def workload(name: str, seed: int = 1, dimensions: int | None = None) -> Workload:
    """Make the workload of a name.

    Parameters
    ----------
    name : str
        A name of `WORKLOADS`.
    seed : int
        At least 0.
    dimensions : int, optional
        Number of attributes of a workload of boxes; each of these has a default of its own.

    Raises
    ------
    ValueError
        The name is unknown, or the workload has a fixed schema and takes no dimensions.
    ModuleNotFoundError
        The workload needs a package that is not installed.
    """
    if name in BOXES:
        return BOXES[name](seed) if dimensions is None else BOXES[name](seed, dimensions)
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    if dimensions is not None:
        raise ValueError(f"the workload {name!r} has a schema of its own; leave dimensions out")
    with needed("replay", f"the workload {name!r}"):
        made: Workload = import_module(MODULES[name]).make(seed)
    return made
