"""Replay a workload: bursts of events against subscriptions that come and go.

:func:`replay` runs the bursts and returns a :class:`ReplayReport`; :func:`draw` makes a picture of reports.
Events and subscriptions come from :mod:`rtfilter.replay.workloads`.

The extra ``rtree-filter[replay]`` is needed only for pictures, for the comparison with `rtree` and for
workloads of real data.
"""

from rtfilter.replay.picture import draw
from rtfilter.replay.report import PEER, Contender, ReplayInterrupted, ReplayReport, ReplaySettings
from rtfilter.replay.run import replay

__all__ = ["PEER", "Contender", "ReplayInterrupted", "ReplayReport", "ReplaySettings", "draw", "replay"]
