"""The election of the designated broker: registration, heartbeats with terms, elections after a time-out.

After Xue and Feng 2005, with additions: terms, so that a designated broker that was only slow steps down;
time-outs; and a rule for simultaneous claims. A claim is the pair of term and name, and the greater claim
wins. A member that misses heartbeats waits for all members with a higher name, one heartbeat each, before it
claims.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import NamedTuple

from rtfilter.overlay.broker_names import Whole
from rtfilter.overlay.membership.contacts import (
    TO_CLUSTER,
    Contact,
    Dispatch,
    MembershipMessage,
    MembershipSettings,
    Standing,
    require_honest,
    to_broker,
)


class Member(NamedTuple):
    """A member of a cluster, as registered."""

    contact: Contact
    incarnation: Whole
    """Each start of a broker has a higher one."""
    number: Whole = 0
    """Number of its last multicast; 0: none."""


class Registration(MembershipMessage, frozen=True):
    """A sign of life of a member: to its designated broker, or to all while it knows none."""

    member: Member


class Heartbeat(MembershipMessage, frozen=True):
    """The designated broker's sign of life to all members, with the state of the cluster."""

    contact: Contact
    term: Whole
    members: tuple[Member, ...]
    standing: Standing


class ClusterView(NamedTuple):
    """The knowledge of a member about its cluster: the whole state of an election except times."""

    term: Whole
    """The greatest known term."""
    designated: str
    """The designated broker that it follows; empty: it knows none."""
    members: tuple[Member, ...]
    """All members, sorted by name, including itself."""
    silent: frozenset[str] = frozenset()
    """Members that are thought dead since its last received heartbeat."""
    awaited: str = ""
    """The member that should claim now; empty: none."""

    @property
    def claim(self) -> tuple[int, str]:
        """The claim of this view. The greater of two claims wins."""
        return self.term, self.designated

    def having(self, *members: Member) -> ClusterView:
        """Return the view with these members, in place of earlier ones of the same names."""
        all_of_them = {member.contact.name: member for member in (*self.members, *members)}
        return self._replace(members=tuple(all_of_them[name] for name in sorted(all_of_them)))

    def without(self, *names: str) -> ClusterView:
        """Return the view without the members of these names."""
        return self._replace(members=tuple(m for m in self.members if m.contact.name not in names))

    def member(self, name: str) -> Member | None:
        """Return the member of this name, or None if it is unknown."""
        return next((member for member in self.members if member.contact.name == name), None)


class Election:
    """The part of a single member in the elections of its cluster; for its parameters see `Membership`."""

    def __init__(
        self,
        contact: Contact,
        settings: MembershipSettings,
        chance: Random,
        incarnation: int = 1,
        term: int = 0,
    ) -> None:
        self.contact = contact
        self.incarnation = incarnation
        self.standing = Standing()
        """Standing of the cluster: the designated broker sets it, and members get it from heartbeats."""
        self.number = 0
        """Number of this broker's last multicast."""
        self.view = ClusterView(term, "", (Member(contact, incarnation),))
        self.stored_term = inf
        """The greatest stored term: the broker claims under no greater one. Instead it stays without a
        designated broker, or follows another. Infinite if `Membership.term` is stored at once."""
        self.wanted = 0
        """A term to store, because this broker is to claim under it."""
        self._settings = settings
        self._chance = chance
        self._beat_at = -inf
        self._time_out_at = inf
        self._heard: dict[str, float] = {}  # by member: time of the last registration

    @property
    def leads(self) -> bool:
        """True if this broker is the designated one."""
        return self.view.designated == self.contact.name

    @property
    def due(self) -> float:
        """The time at which `tick` next has something to do."""
        return self._beat_at if self.leads else min(self._beat_at, self._time_out_at)

    def tick(self, now: float) -> list[Dispatch]:
        """Send a sign of life when it is due; claim if other members were silent for too long."""
        if self._time_out_at == inf:  # the first tick
            self._await(now, self._settings.time_out(self._chance))
        sends = []
        if now >= self._beat_at:
            if self.leads:
                # a member registers each T; one more, because its registration may cross our election
                most = self._settings.silence + self._settings.heartbeat
                self.drop(*(name for name, heard in self._heard.items() if now - heard > most))
            sends += self.beat(now)
        if not self.leads and now >= self._time_out_at:
            sends += self.time_out(now)
        return sends

    def receive(self, message: Registration | Heartbeat, now: float) -> list[Dispatch]:
        """Process a message of another member of the cluster. Raises `ValueError` for an impossible term."""
        if isinstance(message, Heartbeat):
            require_honest(message.contact.name, message.term, self.view.term)
            return self._heartbeat(message, now)
        return self._registration(message.member, now)

    def beat(self, now: float) -> list[Dispatch]:
        """Return a sign of life: the designated broker's heartbeat to all, or a member's registration."""
        self._beat_at = now + self._settings.heartbeat
        self.view = self.view.having(self._itself)
        if self.leads:
            return [Dispatch(TO_CLUSTER, self._my_heartbeat())]
        designated = self.view.member(self.view.designated)
        to = to_broker(designated.contact) if designated else TO_CLUSTER
        return [Dispatch(to, Registration(self._itself))]

    def time_out(self, now: float) -> list[Dispatch]:
        """Count the designated broker, or the awaited one, as dead; claim, or wait for the next."""
        gone = {self.view.designated, self.view.awaited} - {""}
        return self._claim_or_wait(self.view.silent | gone, now)

    def drop(self, *names: str) -> None:
        """Remove silent members; only the designated broker does this."""
        for name in names:
            self._heard.pop(name, None)
        self.view = self.view.without(*names)

    @property
    def _itself(self) -> Member:
        return Member(self.contact, self.incarnation, self.number)

    def _my_heartbeat(self) -> Heartbeat:
        return Heartbeat(self.contact, self.view.term, self.view.members, self.standing)

    def _await(self, now: float, wait: float) -> None:
        self._time_out_at = now + wait

    def _claim_or_wait(self, silent: frozenset[str], now: float) -> list[Dispatch]:
        living = self.view.without(*silent)
        first = living.members[-1].contact.name  # the broker itself is among them
        if first != self.contact.name:
            self.view = self.view._replace(designated="", silent=silent, awaited=first)
            self._await(now, self._settings.heartbeat)
            return []
        self.wanted = self.view.term + 1
        if self.wanted > self.stored_term:
            self.view = self.view._replace(designated="", silent=silent, awaited="")
            self._await(now, 0.0)  # once it is stored, unless another member has claimed
            return []
        self.view = ClusterView(self.wanted, self.contact.name, living.members)
        self._heard = {m.contact.name: now for m in living.members if m.contact.name != self.contact.name}
        return self.beat(now)

    def _heartbeat(self, heartbeat: Heartbeat, now: float) -> list[Dispatch]:
        if heartbeat.contact.name == self.contact.name:  # from an earlier incarnation
            self.view = self.view._replace(term=max(self.view.term, heartbeat.term))
            return []
        if (heartbeat.term, heartbeat.contact.name) < self.view.claim:
            if not self.leads:
                return []
            # the members that its sender knows are ours; it steps down when it receives our heartbeat
            others = [m for m in heartbeat.members if self.view.member(m.contact.name) is None]
            self.view = self.view.having(*others)
            self._heard |= {member.contact.name: now for member in others}
            return [Dispatch(to_broker(heartbeat.contact), self._my_heartbeat())]
        known = Member(self.contact, self.incarnation) in (m._replace(number=0) for m in heartbeat.members)
        news = heartbeat.contact.name != self.view.designated
        self.view = ClusterView(heartbeat.term, heartbeat.contact.name, heartbeat.members).having(
            self._itself
        )
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
                # its earlier state is lost: it leaves, and joins again when it registers
                self.drop(name)
                return self.beat(now)
            self.view = self.view.having(member)
            self._heard[name] = now
            return [] if before else self.beat(now)
        if again and name == self.view.designated:  # it has lost its state: do not wait for its silence
            self.view = self.view.having(member)
            return self._claim_or_wait(self.view.silent | {name}, now)
        if not self.view.designated:
            self.view = self.view.having(member)
        return []
