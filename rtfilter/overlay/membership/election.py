"""The election of the designated broker: registration, heartbeats with terms, elections after a time-out.

After Xue and Feng 2005, with what they leave open: terms, so that an old designated broker that was only
slow steps down; time-outs; who is meant when two claim at once. A claim is the pair of term and name, and
the greater claim wins. A member that misses heartbeats waits for all members above itself, one heartbeat
each, before it claims.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import NamedTuple

from rtfilter.overlay.membership.contacts import (
    TO_CLUSTER,
    Contact,
    Dispatch,
    Standing,
    require_honest,
    to_broker,
)
from rtfilter.overlay.membership.settings import Settings
from rtfilter.overlay.names import Whole
from rtfilter.overlay.sending import Message


class Member(NamedTuple):
    """A member of a cluster, as it has registered.

    Attributes
    ----------
    contact : Contact
    incarnation : int
        Each start of a broker has a higher one.
    number : int
        Of its last numbered multicast; 0: none.
    """

    contact: Contact
    incarnation: Whole
    number: Whole = 0


class Registration(Message, frozen=True):
    """A member says that it lives: to its designated broker, or to all while it knows of none."""

    member: Member


class Heartbeat(Message, frozen=True):
    """The designated broker says to all members that it lives, and what the cluster is."""

    contact: Contact
    term: Whole
    members: tuple[Member, ...]
    standing: Standing


class View(NamedTuple):
    """The knowledge of a member about its cluster: the whole state of an election except times.

    Attributes
    ----------
    term : int
        The greatest known.
    designated : str
        Whom it follows; empty: it knows of none.
    members : tuple of Member
        Sorted by name, itself among them.
    silent : frozenset of str
        Whom it takes for dead since it heard a heartbeat last.
    awaited : str
        Who should claim now; empty: nobody.
    """

    term: Whole
    designated: str
    members: tuple[Member, ...]
    silent: frozenset[str] = frozenset()
    awaited: str = ""

    @property
    def claim(self) -> tuple[int, str]:
        """Of two claims, the greater one wins."""
        return self.term, self.designated

    def having(self, *members: Member) -> View:
        """With these members, in place of earlier ones of the same names."""
        all_of_them = {member.contact.name: member for member in (*self.members, *members)}
        return self._replace(members=tuple(all_of_them[name] for name in sorted(all_of_them)))

    def without(self, *names: str) -> View:
        """Without the members of these names."""
        return self._replace(members=tuple(m for m in self.members if m.contact.name not in names))

    def member(self, name: str) -> Member | None:
        """The member of this name, if it is known."""
        return next((member for member in self.members if member.contact.name == name), None)


class Election:
    """The part of a single member in the elections of its cluster.

    Parameters
    ----------
    contact : Contact
        Of this broker.
    settings : Settings
    chance : random.Random
        For time-outs.
    incarnation : int
    term : int
        The greatest that earlier incarnations knew. Who keeps it over restarts never makes one claim twice.
    """

    def __init__(
        self, contact: Contact, settings: Settings, chance: Random, incarnation: int = 1, term: int = 0
    ) -> None:
        self.contact = contact
        self.incarnation = incarnation
        self.standing = Standing()
        """Of the cluster: the designated broker writes it, and members have it from heartbeats."""
        self.number = 0
        """Of this broker's last multicast."""
        self.view = View(term, "", (Member(contact, incarnation),))
        self.kept = inf
        """The greatest term that a restart would not lose: no claim is made under a greater one."""
        self.wanted = 0
        """A term to be kept, since this broker is to claim under it."""
        self._settings = settings
        self._chance = chance
        self._begun = False
        self._beat_at = -inf
        self._time_out_at = inf
        self._heard: dict[str, float] = {}  # of the designated broker: when members registered last

    @property
    def leads(self) -> bool:
        """True if this broker is the designated one."""
        return self.view.designated == self.contact.name

    @property
    def due(self) -> float:
        """The time at which `tick` next has something to do."""
        return self._beat_at if self.leads else min(self._beat_at, self._time_out_at)

    def tick(self, now: float) -> list[Dispatch]:
        """Say that this broker lives, when it is time; claim, when others have been silent for too long."""
        if not self._begun:
            self._begun = True
            self._await(now, self._settings.time_out(self._chance))
        sends = []
        if now >= self._beat_at:
            if self.leads:
                self.drop(*(name for name, heard in self._heard.items() if now - heard > self._patience))
            sends += self.beat(now)
        if not self.leads and now >= self._time_out_at:
            sends += self.time_out(now)
        return sends

    def receive(self, message: Registration | Heartbeat, now: float) -> list[Dispatch]:
        """Take what another member of the cluster says. Raises `ValueError` for a term that cannot be."""
        if isinstance(message, Heartbeat):
            require_honest(message.contact.name, message.term, self.view.term)
            return self._heartbeat(message, now)
        return self._registration(message.member, now)

    def beat(self, now: float) -> list[Dispatch]:
        """A sign of life: the designated broker's heartbeat to all, a member's registration."""
        self._beat_at = now + self._settings.heartbeat
        self.view = self.view.having(self._itself)
        if self.leads:
            return [Dispatch(TO_CLUSTER, self._my_heartbeat())]
        designated = self.view.member(self.view.designated)
        to = to_broker(designated.contact) if designated else TO_CLUSTER
        return [Dispatch(to, Registration(self._itself))]

    def time_out(self, now: float) -> list[Dispatch]:
        """Nobody has been heard for long: give up the designated broker, or whoever was to follow it."""
        gone = {self.view.designated, self.view.awaited} - {""}
        return self._claim_or_wait(self.view.silent | gone, now)

    def drop(self, *names: str) -> None:
        """Forget members that have been silent; only of use to the designated broker."""
        for name in names:
            self._heard.pop(name, None)
        self.view = self.view.without(*names)

    @property
    def _patience(self) -> float:
        # a member registers each T; one heartbeat more, since its registration may cross our election
        return self._settings.silence + self._settings.heartbeat

    @property
    def _itself(self) -> Member:
        return Member(self.contact, self.incarnation, self.number)

    def _my_heartbeat(self) -> Heartbeat:
        return Heartbeat(self.contact, self.view.term, self.view.members, self.standing)

    def _await(self, now: float, wait: float) -> None:
        self._time_out_at = now + wait

    def _claim_or_wait(self, silent: frozenset[str], now: float) -> list[Dispatch]:
        living = self.view.without(*silent)
        first = living.members[-1].contact.name  # itself is among them
        if first != self.contact.name:
            self.view = self.view._replace(designated="", silent=silent, awaited=first)
            self._await(now, self._settings.heartbeat)
            return []
        self.wanted = self.view.term + 1
        if self.wanted > self.kept:
            self.view = self.view._replace(designated="", silent=silent, awaited="")
            self._await(now, 0.0)  # as soon as it is kept, unless another one has claimed
            return []
        self.view = View(self.wanted, self.contact.name, living.members)
        self._heard = {m.contact.name: now for m in living.members if m.contact.name != self.contact.name}
        return self.beat(now)

    def _heartbeat(self, heartbeat: Heartbeat, now: float) -> list[Dispatch]:
        if heartbeat.contact.name == self.contact.name:  # of a former life
            self.view = self.view._replace(term=max(self.view.term, heartbeat.term))
            return []
        if (heartbeat.term, heartbeat.contact.name) < self.view.claim:
            if not self.leads:
                return []
            # the members that its sender knows are ours; it will step down when it hears us
            others = [m for m in heartbeat.members if self.view.member(m.contact.name) is None]
            self.view = self.view.having(*others)
            self._heard |= {member.contact.name: now for member in others}
            return [Dispatch(to_broker(heartbeat.contact), self._my_heartbeat())]
        known = Member(self.contact, self.incarnation) in (m._replace(number=0) for m in heartbeat.members)
        news = heartbeat.contact.name != self.view.designated
        self.view = View(heartbeat.term, heartbeat.contact.name, heartbeat.members).having(self._itself)
        self.standing = heartbeat.standing
        self._heard = {}
        self._await(now, self._settings.time_out(self._chance))
        return [] if known and not news else self.beat(now)

    def _registration(self, member: Member, now: float) -> list[Dispatch]:
        name = member.contact.name
        before = self.view.member(name)
        if name == self.contact.name or (before and member.incarnation < before.incarnation):
            return []
        again = before is not None and member.incarnation > before.incarnation
        if self.leads:
            if again:
                # its earlier state is gone: it leaves, and joins again when it registers
                self.drop(name)
                return self.beat(now)
            self.view = self.view.having(member)
            self._heard[name] = now
            return [] if before else self.beat(now)
        if again and name == self.view.designated:  # it has lost what it led: do not wait for its silence
            self.view = self.view.having(member)
            return self._claim_or_wait(self.view.silent | {name}, now)
        if not self.view.designated:
            self.view = self.view.having(member)
        return []
