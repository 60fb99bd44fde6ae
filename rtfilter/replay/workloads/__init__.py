"""Workloads: endless sequences of subscriptions and of events, the same for the same seed.

:func:`workload` makes one by its name, of :data:`WORKLOADS`; those of :data:`BOXES` are random boxes and
points. :func:`file_workload` makes one of data that were read from files.
"""

from rtfilter.replay.workloads.base import Bounds, FileWorkload, Workload, file_workload
from rtfilter.replay.workloads.random_boxes import BOXES, BoxWorkload
from rtfilter.replay.workloads.workload_registry import WORKLOADS, workload

__all__ = [
    "BOXES",
    "WORKLOADS",
    "Bounds",
    "BoxWorkload",
    "FileWorkload",
    "Workload",
    "file_workload",
    "workload",
]
