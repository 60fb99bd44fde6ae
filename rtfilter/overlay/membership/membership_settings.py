"""The times that brokers wait for each other, and the most children of a cluster."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple


class MembershipSettings(NamedTuple):
    """The settings that all brokers of a network should share. Times are in seconds.

    Attributes
    ----------
    heartbeat : float
        Seconds between two heartbeats (T). A message should need less than a quarter of it.
    missed : int
        Number of missed heartbeats after which a broker counts as dead: after 3T, as the others suggest.
    retries : int
        Number of probes of each member of a silent cluster.
    children : int
        Most child clusters of a cluster (in the paper: its degree). Members of the own cluster, and the
        parent, do not count.
    repairs : int
        Number of last multicasts that a broker stores, to send them again.
    longest_wait : float
        Longest wait between two attempts to join, in heartbeats.
    """

    heartbeat: float = 1.0
    missed: int = 3
    retries: int = 3
    children: int = 8
    repairs: int = 1024
    longest_wait: float = 8.0

    @property
    def silence(self) -> float:
        """The longest silence of a live broker, in seconds."""
        return self.missed * self.heartbeat

    @property
    def answer(self) -> float:
        """The time to wait for an answer, in seconds."""
        return self.heartbeat / 2

    def time_out(self, chance: Random) -> float:
        """Return a time-out: 3T and up to T/4 more, so that not all members act at once."""
        return self.silence + chance.uniform(0, self.heartbeat / 4)


DEFAULT: Final = MembershipSettings()
