"""A change of the strategy of a running network, without loss or duplicates.

The root sends waves through the tree. Each broker passes a wave on to the clusters below and to its own
members, and answers when all of those have answered; an answer never overtakes an earlier message.

Each event has the number of its strategy, and all brokers route it by that one. First, all brokers send
neighbours the subscriptions for both strategies (in two waves, because subscriptions need the place of the
rendezvous to find their way). When the next wave reaches a broker, its tables are complete for the new
strategy, and it routes new events of clients by it. The answers to that wave follow all events that still
rise by the old strategy. The last wave removes the old strategy: removals of subscriptions come behind that
wave, and an event that still descends does so by the new strategy.

During a wave, new neighbours after a change of the tree get it, too; after the death of the root, the next
root begins it again. With acknowledgements, lost events are sent again, as always.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from rtfilter.overlay.broker_names import CLUSTER, BrokerPlace, Connection, link
from rtfilter.overlay.core import Core
from rtfilter.overlay.routing_messages import Answer, Wave
from rtfilter.overlay.spreading import Spreading
from rtfilter.overlay.strategies import STRATEGIES, strategy_of

UNSTORED: Final = 1000
"""More than the number of waves that a broker can begin before one is stored."""


class Stage(IntEnum):
    """The stages of a change of strategy, which a wave announces."""

    REST = 0
    """There is one strategy."""
    PREPARE = 1
    """There are two strategies; the old one routes events."""
    SETTLE = 2
    """The same, in a second wave."""
    USE = 3
    """From here on the new one routes events."""


class Switched(NamedTuple):
    """The progress of a change of strategy."""

    first: str
    """The strategy at the start of the broker."""
    wave: Wave
    """The last wave."""
    used: str
    """The strategy for new events of clients."""


class Switching:
    """Passes waves on; at the root it begins them."""

    def __init__(self, core: Core, spreading: Spreading) -> None:
        self._core, self._spreading = core, spreading
        self.wave = Wave(0, 0, core.strategy.name)
        self._answers: dict[Connection, Answer] = {}
        self._answered = True
        self._first = core.strategy.name
        self.former: Switched | None = None

    @property
    def switched(self) -> Switched:
        """The state that the next incarnation needs if it becomes the root at once."""
        if self.former is not None and not self.wave.number:
            return self.former
        return Switched(self._first, self.wave, self._core.strategy.name)

    # -- at the root ---------------------------------------------------------------------------------

    def require(self, name: str) -> None:
        """Raise `ValueError` if a change to a strategy is impossible now."""
        if name not in STRATEGIES:
            raise ValueError(f"unknown strategy {name!r:.60}; choose one of {', '.join(STRATEGIES)}")
        if not self._core.at.root or not self._core.at.leads:
            raise ValueError("only the root's designated broker can change the strategy; ask it")
        if self.wave.stage or not self._answered:
            raise ValueError("the strategy is being changed; try again soon")

    def switch(self, name: str) -> None:
        """Begin a change of the strategy. Raises as `require` does."""
        self.require(name)
        if name != self._core.strategy.name:
            self._begin(Stage.PREPARE, self.wave.epoch + 1, name)

    def _begin(self, stage: Stage, epoch: int, name: str) -> None:
        self._apply(Wave(self.wave.number + 1, epoch, name, stage))

    def _go_on(self) -> None:
        """Begin the next wave, if there is one, after all brokers have answered one."""
        wave = self.wave
        if wave.stage != Stage.REST:
            self._begin(Stage((wave.stage + 1) % len(Stage)), wave.epoch, wave.strategy)

    # -- everywhere ----------------------------------------------------------------------------------

    def take(self, wave: Wave, source: Connection) -> None:
        """Process a wave from above; repeat the answer to a known one."""
        core = self._core
        above = link(core.at.parent) if core.at.leads else core.designated
        if source == above and wave.number > self.wave.number:
            self._apply(wave)
        elif source == above and wave.number == self.wave.number and not self._open():
            self._answer()

    def hear(self, answer: Answer, source: Connection) -> None:
        """Process an answer from below."""
        if answer.number == self.wave.number:
            self._answers[source] = answer
            self._look()

    def moved(self, old: BrokerPlace) -> None:
        """Pass the wave on to new brokers below, after a change of the place."""
        core, wave = self._core, self.wave
        if not core.at.leads:
            return
        if core.at.root and not wave.number and self.former is not None:
            self._resume(self.former)
            return
        took_over = not old.leads
        if core.at.root and not (old.root and old.leads) and (wave.stage or not self._answered):
            self._begin(Stage(wave.stage), wave.epoch, wave.strategy)
            return
        if wave.number:
            links = {} if took_over else old.links
            for cluster, broker in core.at.links.items():
                if cluster != core.at.parent and links.get(cluster) != broker:
                    self._answers.pop(link(cluster), None)
                    core.send(link(cluster), wave)
            if core.fellows and (took_over or core.at.members - old.members):
                core.send(CLUSTER, wave)
        self._answered = self._answered and old.parent == core.at.parent
        self._look()

    def _resume(self, former: Switched) -> None:
        """Continue as the root a change of a former incarnation, before another broker takes the role.

        New numbers are above those of all waves that it can have begun since it stored one.
        """
        if former.first != self._first:
            return  # the brokers were started with another strategy since
        core, wave = self._core, former.wave
        core.strategies, core.epoch = {wave.epoch: strategy_of(wave.strategy, core.assigned)}, wave.epoch
        if wave.stage in (Stage.PREPARE, Stage.SETTLE):
            core.epoch -= 1
            core.strategies[core.epoch] = strategy_of(former.used, core.assigned)
        self.wave = msgspec.structs.replace(wave, number=wave.number + UNSTORED)
        self._begin(Stage(wave.stage), wave.epoch, wave.strategy)

    def _apply(self, wave: Wave) -> None:
        core = self._core
        shared = core.shared
        self.wave, self._answers, self._answered = wave, {}, False
        if wave.epoch not in core.strategies:
            core.strategies[wave.epoch] = strategy_of(wave.strategy, core.assigned)
        if wave.stage in (Stage.REST, Stage.USE):
            core.epoch = wave.epoch
        if wave.stage == Stage.REST:
            core.strategies = {core.epoch: core.strategy}
        if core.at.leads:
            for cluster in core.at.links:
                if cluster != core.at.parent:
                    core.send(link(cluster), wave)
            if core.fellows:
                core.send(CLUSTER, wave)
            self._spreading.greet_all()
            self._spreading.refresh(core.at.links, certain=True)
        elif core.shared != shared:
            self._spreading.announce(certain=True)
        self._look()

    def _open(self) -> set[Connection]:
        """Return the connections that have not answered yet."""
        core = self._core
        if not core.at.leads:
            return set()
        below = {link(cluster) for cluster in core.at.links if cluster != core.at.parent} | core.fellows
        return below - self._answers.keys()

    def _look(self) -> None:
        """Answer, or at the root begin the next wave, once all have answered."""
        if self._answered or self._open() or not self.wave.number:
            return
        if self._core.at.leads and self._core.at.root:
            self._answered = True
            self._go_on()
        elif not self._core.at.leads or self._core.at.parent in self._core.at.links:
            self._answered = True
            self._answer()

    def _answer(self) -> None:
        self._core.send(link(self._core.at.parent) if self._core.at.leads else CLUSTER, self._new_answer())

    def _new_answer(self) -> Answer:
        return Answer(self.wave.number)
