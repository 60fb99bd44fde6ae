"""The join of a cluster that has no parent: a new cluster, or a cluster that was cut off.

After Xue and Feng 2005. The cluster asks the rendezvous point for the root, finds the root's designated
broker, and walks down from it (`walk`). Distances are round trips. If the root does not answer, it waits a
random time and claims to be the root. If no cluster accepts it, it waits, longer each time, and begins again.
If the rendezvous point does not answer, it walks down from its former parent, if it had one: the paper needs
the rendezvous point for each join.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from enum import Enum, auto
from math import inf
from random import Random
from typing import NamedTuple

from rtfilter.overlay.broker_names import Whole
from rtfilter.overlay.membership.contacts import (
    TO_RENDEZVOUS,
    Contact,
    Dispatch,
    MembershipMessage,
    MembershipSettings,
    Neighbour,
    to_broker,
)
from rtfilter.overlay.membership.recovery import Probed, Search
from rtfilter.overlay.membership.rendezvous_point import ClaimRoot, Root, ask


class Look(NamedTuple):
    """A question of the walk: how far are this cluster and its children? The answer is a mapping.

    Its keys are the cluster and its children, its values their distances, in any unit. Unreachable clusters
    are absent; without the cluster itself, its children are absent, too.
    """

    cluster: str


class WalkRequest(NamedTuple):
    """A question of the walk: does this cluster accept the walking one as a child? The answer is a bool."""

    cluster: str


Walk = Generator[Look | WalkRequest, Mapping[str, float] | bool, str]


def walk(root: str, avoided: Iterable[str] = ()) -> Walk:
    """Look for a parent, from the root down, always to the nearest cluster (CMTP, corrected).

    The printed form pushes a node and then its children, but pops them in the same order, does not define an
    empty stack, and lets a node join below itself. Here the marks are stored by name, a walk ends when the
    root is exhausted, and the walking cluster is never a candidate; a cluster that is asked refuses its own
    ancestors.

    The walk ends after at most one request to each cluster. It finds a parent exactly if an accepting cluster
    can be reached from the root over clusters that answer. This is not always the nearest of all, because the
    walk looks only at some.

    Parameters
    ----------
    root : str
        The root cluster.
    avoided : iterable of str
        Clusters that are neither asked nor walked through: the walking cluster, and a former parent that is
        silent.

    Yields
    ------
    Look or WalkRequest
        A question; send its answer into the generator.

    Returns
    -------
    str
        The parent; empty: no cluster accepts.
    """
    exhausted = set(avoided)  # neither these clusters nor those below them are of use
    refused: set[str] = set()
    above: list[str] = []
    current = root
    while True:
        distances = {} if current in exhausted else (yield Look(current))
        assert isinstance(distances, Mapping)
        near = [
            (distance, cluster)
            for cluster, distance in distances.items()
            if cluster not in (refused if cluster == current else exhausted)
        ]
        if not near:
            exhausted.add(current)
            if not above:
                return ""
            current = above.pop()
            continue
        nearest = min(near)[1]
        if nearest != current:
            above.append(current)
            current = nearest
        elif (yield WalkRequest(current)):
            return current
        else:
            refused.add(current)


class Ping(MembershipMessage, frozen=True):
    """A question to a designated broker for its child clusters; the time to answer is the distance."""

    contact: Contact
    walk: Whole
    """Number of the sender's walk: a late answer to an earlier walk is no distance."""


class Pong(MembershipMessage, frozen=True):
    """The answer of a designated broker to a ping; other members do not answer."""

    contact: Contact
    walk: Whole
    children: tuple[Contact, ...]
    """The designated brokers of its children."""


class JoinRequest(MembershipMessage, frozen=True):
    """The request of a cluster to become a child."""

    cluster: Neighbour
    attempt: Whole
    """Number of the request; an answer to an earlier one does not count."""


class JoinAnswer(MembershipMessage, frozen=True):
    """The answer to a request to join."""

    attempt: Whole
    reason: str = ""
    """The reason for a refusal; empty if the request is accepted."""
    again: bool = False
    """True if it was refused because of an earlier link, now removed: ask again at once."""
    parent: Neighbour | None = None
    """The cluster that has accepted."""
    path: tuple[str, ...] = ()
    """The clusters from the root to the parent, both included."""


class JoinStep(Enum):
    """The steps of a join."""

    IDLE = auto()
    ASKING = auto()
    """It asks the rendezvous point for the root."""
    SEARCHING = auto()
    """It searches the designated broker of the root."""
    HESITATING = auto()
    """It waits a random time before it claims to be the root."""
    CLAIMING = auto()
    """It waits for the answer to its claim."""
    LOOKING = auto()
    """It measures distances."""
    REQUESTING = auto()
    """It waits for an answer to a request."""
    RESTING = auto()
    """It waits to begin again."""


class Joined(NamedTuple):
    """The result of a join: a parent, or the term as the root."""

    parent: Neighbour | None = None
    path: tuple[str, ...] = ()
    root_term: Whole = 0


class Joining:
    """The join of one cluster, by its designated broker.

    The incarnation of the broker numbers its requests, so that no answer to an earlier one counts.
    """

    def __init__(
        self, contact: Contact, settings: MembershipSettings, chance: Random, incarnation: int = 1
    ) -> None:
        self.step = JoinStep.IDLE
        self.due = inf
        """The time at which `tick` next has something to do."""
        self.joined: Joined | None = None
        """Set when the cluster has a parent, or is the root; the reader resets it to None."""
        self._attempt = incarnation << 32  # the number of the last request
        self._contact = contact
        self._settings = settings
        self._chance = chance
        self._failures = 0  # in a row
        self._silent = ""  # the former parent, if it is silent
        self._former: Neighbour | None = None  # the former parent
        self._asks = 0  # of the rendezvous point, without an answer
        self._root: Root | None = None
        self._search: Search | None = None
        self._walk: Walk | None = None
        self._walks = incarnation << 32  # the number of the walk
        self._question = ""  # the cluster that the walk asks about
        self._contacts: dict[str, Contact] = {}  # of the walk, by cluster
        self._pinged: dict[str, float] = {}  # the time of the ping, by cluster
        self._distances: dict[str, float] = {}
        self._children: dict[str, tuple[str, ...]] = {}

    @property
    def active(self) -> bool:
        """True if a join is under way."""
        return self.step is not JoinStep.IDLE

    @property
    def requested(self) -> str:
        """The cluster whose answer to a request is due; empty: none."""
        return self._question if self.step is JoinStep.REQUESTING else ""

    def begin(self, now: float, silent: str = "", former: Neighbour | None = None) -> None:
        """Begin a join at the next tick; `silent` is the former parent if it did not answer."""
        self._failures = 0
        self._silent, self._former = silent, former
        self._go(JoinStep.ASKING, now)

    def stop(self) -> None:
        """Stop the join, because the broker is no longer the designated one."""
        self._go(JoinStep.IDLE, inf)

    def tick(self, mine: Neighbour, now: float) -> list[Dispatch]:
        """Ask, repeat, or go on without an answer when it is due; `mine` is the own cluster."""
        if now < self.due:
            return []
        if self.step is JoinStep.RESTING:
            self._go(JoinStep.ASKING, now)
        elif self.step is JoinStep.HESITATING:
            self._go(JoinStep.CLAIMING, now)
        if self.step is JoinStep.ASKING and self._former and self._asks == self._settings.missed:
            self._silent = ""
            self._find(self._former, now)
        if self.step is JoinStep.ASKING:
            self._asks += 1
            self.due = now + self._settings.heartbeat
            return ask(self._contact)
        if self.step is JoinStep.SEARCHING and self._search:
            sends = self._search.tick(now)
            self.due = self._search.due
            if self._search.failed and self._root:
                self._hesitate(now)
            elif self._search.failed:
                self._rest(now)
            return sends
        if self.step is JoinStep.CLAIMING:
            self.due = now + self._settings.heartbeat
            failed, term = (self._root.cluster.cluster, self._root.term) if self._root else ("", 0)
            return [Dispatch(TO_RENDEZVOUS, ClaimRoot(mine, failed, term))]
        if self.step is JoinStep.LOOKING:  # a cluster without an answer is unreachable
            return self._go_on(self._near(), mine, now)
        if self.step is JoinStep.REQUESTING:
            return self._go_on(False, mine, now)
        return []

    def root_is(self, root: Root | None, mine: Neighbour, now: float) -> list[Dispatch]:
        """Process the answer of the rendezvous point."""
        if self.step not in (JoinStep.ASKING, JoinStep.HESITATING, JoinStep.CLAIMING):
            return []
        former, self._root = self._root, root
        if root is None:
            self._go(JoinStep.CLAIMING, now)
            return self.tick(mine, now)
        name = root.cluster.cluster
        if name == self._contact.cluster:  # by our claim, or registered before a restart of ours
            self._done(Joined(root_term=root.term))
            return []
        if former and (former.cluster.cluster, former.term) == (name, root.term):
            if self.step is JoinStep.CLAIMING:
                self._rest(now)  # the root lives, but does not answer us
            return []
        if name == self._silent:  # its members did not answer before
            self._silent = ""
            self._hesitate(now)
            return []
        self._find(root.cluster, now)
        return self.tick(mine, now)

    def probed(
        self, message: Probed, mine: Neighbour, children: Iterable[Neighbour], now: float
    ) -> list[Dispatch]:
        """Process the answer of a member of the root; the own children are excluded as parents."""
        search = self._search
        if self.step is not JoinStep.SEARCHING or not search or message.contact.cluster != search.cluster:
            return []
        if message.designated is None:
            search.not_yet(message.contact, now)
            self.due = search.due
            return self.tick(mine, now)
        self._contacts = {search.cluster: message.designated.designated}
        self._pinged, self._distances, self._children = {}, {}, {}
        self._walks += 1
        below = {child.cluster for child in children}
        self._walk = walk(search.cluster, below | {mine.cluster, self._silent})
        try:
            self._ask(next(self._walk))
        except StopIteration:  # the root itself is excluded
            self._rest(now)
        return self._go_on(None, mine, now)

    def pong(self, message: Pong, mine: Neighbour, now: float) -> list[Dispatch]:
        """Process the answer to a ping."""
        cluster = message.contact.cluster
        if message.walk != self._walks or cluster not in self._pinged or cluster in self._distances:
            return []
        self._distances[cluster] = now - self._pinged[cluster]
        self._children[cluster] = tuple(child.cluster for child in message.children)
        for child in message.children:
            self._contacts.setdefault(child.cluster, child)
        return self._go_on(None, mine, now) if self.step is JoinStep.LOOKING else []

    def answer(self, message: JoinAnswer, mine: Neighbour, now: float) -> list[Dispatch]:
        """Process the answer to a request."""
        if self.step is not JoinStep.REQUESTING or message.attempt != self._attempt:
            return []
        if message.again:
            return self._request(mine, now)
        if message.parent is None:
            return self._go_on(False, mine, now)
        self._done(Joined(message.parent, message.path))
        return []

    def _find(self, cluster: Neighbour, now: float) -> None:
        self._search = Search(cluster.cluster, cluster.members, self._settings, self._contact)
        self._go(JoinStep.SEARCHING, now)

    def _go(self, step: JoinStep, due: float) -> None:
        self.step, self.due, self._asks = step, due, 0
        if step in (JoinStep.IDLE, JoinStep.ASKING, JoinStep.RESTING):
            self._walk = self._search = self._root = None

    def _done(self, joined: Joined) -> None:
        self.joined = joined
        self._go(JoinStep.IDLE, inf)

    def _rest(self, now: float) -> None:
        longest = min(2.0**self._failures, self._settings.longest_wait)
        self._failures = min(self._failures + 1, 60)
        self._silent = ""  # it may live again
        self._go(JoinStep.RESTING, now + self._chance.uniform(0.5, 1) * longest * self._settings.heartbeat)

    def _hesitate(self, now: float) -> None:
        self._go(JoinStep.HESITATING, now + self._chance.uniform(0, self._settings.heartbeat))

    def _go_on(
        self, answer: Mapping[str, float] | bool | None, mine: Neighbour, now: float
    ) -> list[Dispatch]:
        """Send the answer to the walk's question, None: not known yet, and ask its next question."""
        while self._walk:
            if answer is not None:
                try:
                    self._ask(self._walk.send(answer))
                except StopIteration:
                    self._rest(now)
                    return []
            if self.step is JoinStep.REQUESTING:
                return self._request(mine, now)
            if pings := self._measure(now):
                return pings
            if now < self.due:
                return []
            answer = self._near()
        return []

    def _ask(self, question: Look | WalkRequest) -> None:
        self._question = question.cluster
        self.step = JoinStep.LOOKING if isinstance(question, Look) else JoinStep.REQUESTING

    def _measure(self, now: float) -> list[Dispatch]:
        """Ping each cluster of the question once; the step is due when the last answer is late."""
        wanted = [cluster for cluster in self._asked_about if cluster != self._contact.cluster]
        new = [cluster for cluster in wanted if cluster not in self._pinged]
        self._pinged |= dict.fromkeys(new, now)
        waits = [self._pinged[c] + self._settings.answer for c in wanted if c not in self._distances]
        self.due = max(waits, default=now)
        ping = Ping(self._contact, self._walks)
        return [Dispatch(to_broker(self._contacts[cluster]), ping) for cluster in new]

    def _near(self) -> Mapping[str, float]:
        return {c: self._distances[c] for c in self._asked_about if c in self._distances}

    @property
    def _asked_about(self) -> tuple[str, ...]:
        return self._question, *self._children.get(self._question, ())

    def _request(self, mine: Neighbour, now: float) -> list[Dispatch]:
        self._attempt += 1
        self._go(JoinStep.REQUESTING, now + self._settings.heartbeat)
        return [Dispatch(to_broker(self._contacts[self._question]), JoinRequest(mine, self._attempt))]
