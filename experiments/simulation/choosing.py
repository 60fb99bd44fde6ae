"""The choice of the cheapest strategy by the load of the network, which waves measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from experiments.simulation.event_messages import LoadAnswer, NetworkLoad
from rtfilter.overlay.broker_names import ConnectionKind
from rtfilter.overlay.core import Core
from rtfilter.overlay.routing_messages import Answer
from rtfilter.overlay.spreading import Spreading
from rtfilter.overlay.switching import Stage, Switching

MATCH: Final = 0.25
"""The cost of matching an event against others' subscriptions, as a share of the cost of a message."""
MARGIN: Final = 0.1
"""Share of the current cost that another strategy must save to be chosen."""


def costs(load: NetworkLoad) -> Mapping[str, float]:
    """Return the cost of an event by strategy, in messages between clusters.

    The messages are those of Bittner's strategies in the present tree: all links; the smallest subtree with
    the publisher and all matching clusters; or the way to the root and the smallest subtree with it. The
    estimate assumes that all clusters publish equally, and want an event with the same probability. Two costs
    are added: `MATCH` at each cluster that matches the event against others' subscriptions (none with event
    forwarding), and the event's share of the messages that spread subscriptions.

    Parameters
    ----------
    load : NetworkLoad
        The load of the whole network, with at least one event.
    """
    total = load.clusters
    unserved = 1 - min(load.served / load.events / total, 1)
    below = load.sizes[:-1]
    up = sum(size / total for size in below)
    reached = sum(1 - unserved**size for size in below)
    returned = sum(size / total * (1 - unserved**size) for size in below)
    left = sum(size / total * (1 - unserved ** (total - size)) for size in below)
    either = left + reached - returned
    changes = load.changes / load.events
    rooted = up + reached + MATCH * (up + reached + 1) + changes * up
    return {
        "event_forwarding": float(total - 1),
        "profile_forwarding": either + MATCH * (either + 1) + changes * (total - 1),
        "rendezvous": rooted,
        "hybrid": rooted - returned,
    }


def choose(load: NetworkLoad, current: str) -> str:
    """Return the cheapest strategy if it saves `MARGIN` of the current cost, else the current one."""
    if not load.events:
        return current
    found = costs(load)
    best = min(found, key=lambda name: found[name])
    if current in found and found[best] > (1 - MARGIN) * found[current]:
        return current
    return best


class Choosing(Switching):
    """Measures the load by waves in the stage `REST`; at the root it then chooses a strategy.

    With `every`, a measurement begins each so many seconds. Without it, nothing is chosen.
    """

    def __init__(self, core: Core, spreading: Spreading, every: float | None) -> None:
        super().__init__(core, spreading)
        self._every = every
        self._load = NetworkLoad()  # of this broker since it was last read
        self._begun = float("-inf")

    def note(self, events: int = 0, served: int = 0, changes: int = 0) -> None:
        """Add to the load of this broker."""
        self._load = self._load.plus([NetworkLoad((), events, served, changes)])

    def tick(self) -> None:
        """Begin a measurement, if it is due."""
        core = self._core
        if self._every is None or not (core.at.root and core.at.leads):
            return
        if self._answered and core.now >= self._begun + self._every:
            self._begin(Stage.REST, self.wave.epoch, core.strategy.name)

    def _begin(self, stage: Stage, epoch: int, name: str) -> None:
        self._begun = self._core.now
        super()._begin(stage, epoch, name)

    def _go_on(self) -> None:
        wave = self.wave
        if wave.stage != Stage.REST or self._every is None:
            super()._go_on()
        elif (best := choose(self._sum(), wave.strategy)) != wave.strategy:
            self._begin(Stage.PREPARE, wave.epoch + 1, best)

    def _new_answer(self) -> Answer:
        return LoadAnswer(self.wave.number, self._sum() if self._core.at.leads else self._taken())

    def _sum(self) -> NetworkLoad:
        """Return the load of all clusters below, and of this one."""
        answers = [(c.kind, one.load) for c, one in self._answers.items() if isinstance(one, LoadAnswer)]
        members = [load for kind, load in answers if kind is ConnectionKind.MEMBER]
        below = [load for kind, load in answers if kind is ConnectionKind.LINK]
        return NetworkLoad.of(self._taken().plus(members), below)

    def _taken(self) -> NetworkLoad:
        """Return the load of this broker since the last call, and reset it."""
        if self.wave.stage != Stage.REST:
            return NetworkLoad()
        load, self._load = self._load, NetworkLoad()
        return load
