"""The self-configuring half of a broker: its cluster, the designated broker, and the place in the tree.

`Membership` combines the parts: it passes messages to them, notes changes, and makes the `BrokerPlace` for
routing. If a cluster loses its parent and finds another one, its `BrokerPlace` changes in between, even if
both parents are the same cluster: so routing knows that the link is a new one.
"""

from __future__ import annotations

from math import inf
from random import Random

from rtfilter.overlay.broker_names import BrokerMessage, BrokerPlace
from rtfilter.overlay.membership.contacts import (
    DEFAULT,
    TO_RENDEZVOUS,
    Contact,
    Dispatch,
    MembershipSettings,
    Neighbour,
    Standing,
    most_incarnation,
    require_possible,
    to_broker,
)
from rtfilter.overlay.membership.election import Election, Heartbeat, Registration
from rtfilter.overlay.membership.joining import JoinAnswer, Joining, JoinRequest, Ping, Pong
from rtfilter.overlay.membership.multicast import GivenUp, Lacking, Multicast, Numbered
from rtfilter.overlay.membership.recovery import LinkHeartbeat, Links, Probe, Probed, Unlinked
from rtfilter.overlay.membership.rendezvous_point import RenewRoot, Root, RootIs, ask


class Membership:
    """The membership machine: messages and ticks go in, messages come out.

    Parameters
    ----------
    contact : Contact
        Contact of this broker.
    settings : MembershipSettings, optional
        The same for all brokers of a network.
    seed : int
        Seed of all random numbers.
    incarnation : int
        At least 1, and higher at each start of the broker, which stores it.
    term : int
        The last value of `term`, which the broker stores if possible: then it claims only once under a term.
    """

    def __init__(
        self,
        contact: Contact,
        settings: MembershipSettings = DEFAULT,
        seed: int = 0,
        incarnation: int = 1,
        term: int = 0,
    ) -> None:
        if incarnation < 1 or not contact.name or not contact.cluster:
            raise ValueError("a broker needs a name, a cluster, and an incarnation of at least 1")
        chance = Random(seed)
        self.contact = contact
        self.settings = settings
        self.accepts = True
        """True if the broker takes children; False while it is overloaded."""
        self.election = Election(contact, settings, chance, incarnation, term)
        self._links = Links(contact, settings)
        self._joining = Joining(contact, settings, chance, incarnation)
        self._incarnation = incarnation
        self._multicast = Multicast(contact, settings, incarnation)
        self._begun: float | None = None
        self._led = False
        self._told = Standing()  # the last standing sent to members and neighbours
        self._anchor_at = inf  # the time to ask or inform the rendezvous point about the root
        self.place = self._place()
        """The place of the broker. A change replaces it by a new value and never writes to the old one."""

    @property
    def term(self) -> int:
        """The greatest known term, or that of the next claim: to be stored for `Membership(term=...)`."""
        return max(self.election.view.term, self.election.wanted)

    @property
    def root(self) -> str:
        """The root cluster; empty while the way to it is unknown."""
        return next(iter(self.election.standing.path), "")

    @property
    def due(self) -> float:
        """The time at which `tick` next has something to do; earlier ticks do no harm."""
        parts = [self.election.due, self._multicast.due]
        if self.election.leads:
            parts += [self._links.due, self._joining.due, self._anchor_at]
        return min(parts)

    @property
    def contacts(self) -> dict[str, Contact]:
        """The brokers of the place, by name: members of the cluster, and designated brokers of its links."""
        known = [member.contact for member in self.election.view.members]
        known += [neighbour.designated for neighbour in self.election.standing.neighbours]
        return {contact.name: contact for contact in known}

    def tick(self, now: float) -> list[Dispatch]:
        """Run the ticks of all parts, and return the messages; `now` is in seconds, monotonic."""
        self.election.number = self._multicast.number
        sends = self.election.tick(now) + self._multicast.tick(now)
        if self.election.leads and self._led:
            sends += self._links.tick(self._mine, now)
            sends += self._joining.tick(self._mine, now)
            if now >= self._anchor_at:
                sends += self._anchor(now)
        return sends + self._settle(now)

    def receive(self, message: BrokerMessage, source: str, now: float) -> list[Dispatch]:
        """Process a message of another membership, or of the rendezvous point as `RENDEZVOUS_POINT`.

        Raises `ValueError` if its term is far above the known one, or an incarnation far above the clock, so
        that no elections or starts can have reached it.
        """
        if source == self.contact.name:
            return []  # its own multicast
        self._require_possible(message, now)
        self.election.number = self._multicast.number
        match message:
            case Heartbeat() | Registration():
                sends = self._of_the_cluster(message, now)
            case Numbered() | Lacking() | GivenUp():
                sends = self._multicast.receive(message, now)
            case Probe(contact=contact):
                mine = self._mine if self.election.leads else None
                sends = [Dispatch(to_broker(contact), Probed(self.contact, mine))]
            case JoinRequest():
                sends = [Dispatch(to_broker(message.cluster.designated), self._asked_to_join(message, now))]
            case _ if self._led:
                sends = self._of_others(message, now)
            case _:
                sends = []
        return sends + self._settle(now)

    def _require_possible(self, message: BrokerMessage, now: float) -> None:
        """Raise `ValueError` for impossible incarnations in a message."""
        self._begun = now if self._begun is None else self._begun
        most = most_incarnation(self._incarnation, now - self._begun)
        match message:
            case Heartbeat(members=members):
                for member in members:
                    require_possible(member.contact.name, member.incarnation, most)
            case Registration(member=member):
                require_possible(member.contact.name, member.incarnation, most)
            case Numbered(sender=sender, incarnation=incarnation):
                require_possible(sender, incarnation, most)

    def multicast(self, message: BrokerMessage, now: float) -> list[Dispatch]:
        """Send a message of the router to all others of the cluster, whole, once and in order."""
        return self._multicast.send(message)

    @property
    def _mine(self) -> Neighbour:
        view = self.election.view
        members = tuple(member.contact for member in view.members)
        return Neighbour(self.contact.cluster, self.contact, members, view.term)

    def _of_the_cluster(self, message: Heartbeat | Registration, now: float) -> list[Dispatch]:
        if isinstance(message, Heartbeat):
            sender, members = message.contact, message.members
        else:
            sender, members = message.member.contact, (message.member,)
        if sender.cluster != self.contact.cluster:
            return []
        sends = self.election.receive(message, now)
        for member in members:
            sends += self._multicast.note_number(member, now)
        return sends

    def _of_others(self, message: BrokerMessage, now: float) -> list[Dispatch]:
        """Process a message that is only for a designated broker."""
        links, joining = self._links, self._joining
        match message:
            case LinkHeartbeat(neighbour=neighbour) if neighbour.cluster == joining.requested:
                return []  # it may have accepted, with its answer still on the way
            case LinkHeartbeat():
                return links.heartbeat(message, now)
            case Unlinked():
                links.remove(message.cluster)
            case Probed():
                links.probed(message, now)
                return joining.probed(message, self._mine, links.standing.children, now)
            case Ping(contact=contact, walk=number):
                children = tuple(child.designated for child in links.standing.children)
                return [Dispatch(to_broker(contact), Pong(self.contact, number, children))]
            case Pong():
                return joining.pong(message, self._mine, now)
            case JoinAnswer():
                return joining.answer(message, self._mine, now)
            case RootIs(root=root):
                return self._root_is(root, now)
        return []

    def _asked_to_join(self, request: JoinRequest, now: float) -> JoinAnswer:
        standing = self._links.standing
        cluster = request.cluster.cluster
        if not self._led:
            return JoinAnswer(request.attempt, "not the designated broker")
        if self._links.linked(cluster) and cluster not in standing.path:
            self._links.remove(cluster)  # routing must see that the link is a new one
            return JoinAnswer(request.attempt, "linked before", again=True)
        if not standing.path:
            return JoinAnswer(request.attempt, "cut off")
        if cluster in standing.path:
            return JoinAnswer(request.attempt, "below the one that asks")
        if not self.accepts:
            return JoinAnswer(request.attempt, "overloaded")
        if len(standing.children) >= self.settings.children:
            return JoinAnswer(request.attempt, "has as many children as it takes")
        self._links.add_child(request.cluster, now)
        return JoinAnswer(request.attempt, parent=self._mine, path=standing.path)

    def _root_is(self, root: Root | None, now: float) -> list[Dispatch]:
        if self._joining.active:
            return self._joining.root_is(root, self._mine, now)
        if root and root.cluster.cluster == self.contact.cluster:
            self._links.be_root(root.term)
        elif root and self._links.standing.root:
            self._links.cut_off()
        return []

    def _anchor(self, now: float) -> list[Dispatch]:
        """Renew the registration of the root, or ask for the root if the way to it is unknown."""
        self._anchor_at = now + self.settings.heartbeat
        standing = self._links.standing
        if standing.root:
            return [Dispatch(TO_RENDEZVOUS, RenewRoot(Root(self._mine, standing.root_term)))]
        return ask(self.contact) if standing.parent and not standing.path else []

    def _settle(self, now: float) -> list[Dispatch]:
        """Apply what has changed: send it to members and neighbours, and replace `place`."""
        sends: list[Dispatch] = []
        election, links, joining = self.election, self._links, self._joining
        leads = election.leads
        news = leads and not self._led
        if news:
            links.adopt(election.standing, now)
            self._anchor_at = now
            self._told = election.standing
        elif self._led and not leads:
            joining.stop()
        self._led = leads
        if leads:
            joined, joining.joined = joining.joined, None
            if joined and joined.root_term:
                links.be_root(joined.root_term)
            elif joined and joined.parent and not links.linked(joined.parent.cluster):
                links.add_parent(joined.parent, joined.path, now)
            standing = links.standing
            if standing.parent is None and not standing.root and not joining.active:
                joining.begin(now, links.silent, links.former)
            elif joining.active and (standing.parent or standing.root):
                joining.stop()
            if news or standing.path != self._told.path:
                sends += links.beat(self._mine, now)
            if standing != self._told:
                election.standing = standing
                sends += election.beat(now)
            self._told = standing
        place = self._place()
        for name in self.place.members - place.members:
            sends += self._multicast.left(name)
        self.place = place
        return sends

    def _place(self) -> BrokerPlace:
        view, standing = self.election.view, self.election.standing
        links = {neighbour.cluster: neighbour.designated.name for neighbour in standing.neighbours}
        return BrokerPlace(
            self.contact.cluster,
            self.contact.name,
            view.designated,
            frozenset(member.contact.name for member in view.members),
            standing.parent.cluster if standing.parent else "",
            links if self.election.leads else {},
            standing.root,
        )
