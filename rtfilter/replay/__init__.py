"""Replaying workloads: bursts of events against subscriptions that come and go."""

from rtfilter.replay.bursts import Contender, replay
from rtfilter.replay.report import PEER, Report, Settings, draw

__all__ = ["PEER", "Contender", "Report", "Settings", "draw", "replay"]
