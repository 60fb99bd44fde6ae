"""Workloads: subscriptions without end, and the events that they wait for, reproducible from a seed."""

from rtfilter.replay.workloads.base import Bounds, Workload
from rtfilter.replay.workloads.boxes import BoxWorkload
from rtfilter.replay.workloads.files import FileWorkload, file_workload
from rtfilter.replay.workloads.registry import BOXES, WORKLOADS, workload

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
