"""Links between clusters: heartbeats, and the search for the designated broker of a silent neighbour.

After Xue and Feng 2005. Heartbeats have the contacts of all members, so that a neighbour can be found again
after its designated broker has died. Its members are probed, the highest first, until one answers *as
designated*: so a search finds the broker that the cluster has elected, however late the election is. The
printed form takes the first member that answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rtfilter.overlay.membership.contacts import (
    Contact,
    Dispatch,
    MembershipMessage,
    MembershipSettings,
    Neighbour,
    Standing,
    require_honest,
    to_broker,
)


class LinkHeartbeat(MembershipMessage, frozen=True):
    """A sign of life from one designated broker to another one, with the sender's view of the link."""

    neighbour: Neighbour
    """Its own cluster."""
    parent: str
    children: tuple[str, ...]
    path: tuple[str, ...]


class Unlinked(MembershipMessage, frozen=True):
    """The answer to a heartbeat of a cluster that wrongly assumes a link."""

    cluster: str
    """The cluster of the designated broker that sends this."""


class Probe(MembershipMessage, frozen=True):
    """The question to a broker whether it is the designated one of its cluster."""

    contact: Contact
    """The broker that asks."""


class Probed(MembershipMessage, frozen=True):
    """The answer to a probe."""

    contact: Contact
    """The broker that answers."""
    designated: Neighbour | None
    """Its cluster, if it is the designated broker; None: it is not, or not yet."""


class Search:
    """The search for the designated broker of a cluster among its members.

    A pass asks each member, the highest first, until one answers as designated. An answer "not yet" shows
    that the cluster lives and is about to elect: then another pass follows, up to the number of retries.
    `contact` is that of this broker.
    """

    def __init__(
        self, cluster: str, members: Iterable[Contact], settings: MembershipSettings, contact: Contact
    ) -> None:
        self.cluster = cluster
        self.failed = False
        """True if no member is left to ask: the cluster is dead, or cannot be reached."""
        self.due = float("-inf")
        """The time at which `tick` next has something to do."""
        self._members = sorted(set(members), reverse=True)
        self._settings = settings
        self._contact = contact
        self._at = 0  # the place of the asked member
        self._tries = 0
        self._passes = 1
        self._lives = False

    def tick(self, now: float) -> list[Dispatch]:
        """Ask a member, or the next one, when it is due."""
        if self.failed or now < self.due:
            return []
        if self._tries == self._settings.retries:
            self._next()
        if self._at == len(self._members):
            if not self._lives or self._passes > self._settings.retries:
                self.failed = True
                return []
            self._at, self._lives = 0, False
            self._passes += 1
        self._tries += 1
        self.due = now + self._settings.answer
        return [Dispatch(to_broker(self._members[self._at]), Probe(self._contact))]

    def not_yet(self, contact: Contact, now: float) -> None:
        """Note that a member has answered, but not as designated, and go on with the next one."""
        self._lives = True
        if self._at < len(self._members) and contact.name == self._members[self._at].name:
            self._next()
            # after a pass, the election gets some time
            self.due = now if self._at < len(self._members) else now + self._settings.heartbeat

    def _next(self) -> None:
        self._at += 1
        self._tries = 0


class _Link(NamedTuple):
    neighbour: Neighbour
    heard: float
    search: Search | None = None


class Links:
    """The links of a designated broker to its parent and its children.

    It detects changes and shows them in `standing`; `Membership` acts on a lost parent.
    """

    def __init__(self, contact: Contact, settings: MembershipSettings) -> None:
        self.silent = ""
        """The former parent, if it was lost because none of its members answered."""
        self.former: Neighbour | None = None
        """The last parent that was lost."""
        self._contact = contact
        self._settings = settings
        self._links: dict[str, _Link] = {}
        self._parent = ""
        self._path: tuple[str, ...] = ()
        self._root_term = 0
        self._beat_at = float("-inf")

    @property
    def standing(self) -> Standing:
        """The standing of the cluster in the tree."""
        children = (self._links[name].neighbour for name in sorted(self._links) if name != self._parent)
        parent = self._links[self._parent].neighbour if self._parent else None
        return Standing(parent, tuple(children), self._path, self._root_term)

    @property
    def due(self) -> float:
        """The time at which `tick` next has something to do."""
        searches = (link.search.due for link in self._links.values() if link.search)
        silences = (link.heard + self._settings.silence for link in self._links.values() if not link.search)
        return min((self._beat_at, *searches, *silences))

    def linked(self, cluster: str) -> bool:
        """Return whether there is a link to a cluster."""
        return cluster in self._links

    def adopt(self, standing: Standing, now: float) -> None:
        """Take over the links of an earlier designated broker of the cluster."""
        self._links = {neighbour.cluster: _Link(neighbour, now) for neighbour in standing.neighbours}
        self._parent = standing.parent.cluster if standing.parent else ""
        self._path = standing.path
        self._root_term = standing.root_term
        self._beat_at = now

    def be_root(self, term: int) -> None:
        """Note that the cluster is registered as the root."""
        self.remove(self._parent)
        self._path, self._root_term = (self._contact.cluster,), term

    def cut_off(self) -> None:
        """Note that the cluster is no longer the root, or has lost its parent."""
        self.remove(self._parent)
        self._path, self._root_term = (), 0

    def add_parent(self, neighbour: Neighbour, path: tuple[str, ...], now: float) -> None:
        """Add a link to a parent; `path` is the parent's."""
        self._parent = neighbour.cluster
        self._links[neighbour.cluster] = _Link(neighbour, now)
        self._path, self._root_term = (*path, self._contact.cluster), 0
        self._beat_at = now
        self.silent = ""

    def add_child(self, neighbour: Neighbour, now: float) -> None:
        """Add a link to a child."""
        self._links[neighbour.cluster] = _Link(neighbour, now)

    def remove(self, cluster: str) -> None:
        """Drop a link, if there is one."""
        link = self._links.pop(cluster, None)
        if cluster == self._parent:
            self.former = link.neighbour if link else self.former
            self._parent = ""
            self._path = ()

    def tick(self, mine: Neighbour, now: float) -> list[Dispatch]:
        """Send heartbeats and probe silent neighbours when it is due; remove lost links."""
        sends: list[Dispatch] = []
        if now >= self._beat_at:
            sends += self.beat(mine, now)
        for cluster, link in list(self._links.items()):
            search = link.search
            if search is None and now >= link.heard + self._settings.silence:
                search = Search(cluster, link.neighbour.members, self._settings, self._contact)
                self._links[cluster] = link._replace(search=search)
            if search:
                sends += search.tick(now)
                if search.failed:
                    self.silent = cluster if cluster == self._parent else self.silent
                    self.remove(cluster)
        return sends

    def beat(self, mine: Neighbour, now: float) -> list[Dispatch]:
        """Return a heartbeat to each neighbour."""
        self._beat_at = now + self._settings.heartbeat
        children = tuple(name for name in self._links if name != self._parent)
        heartbeat = LinkHeartbeat(mine, self._parent, children, self._path)
        return [Dispatch(to_broker(link.neighbour.designated), heartbeat) for link in self._links.values()]

    def heartbeat(self, message: LinkHeartbeat, now: float) -> list[Dispatch]:
        """Process a neighbour's heartbeat; remove a link that the two do not agree on.

        Raises `ValueError` for an impossible term.
        """
        theirs = message.neighbour
        me = self._contact.cluster
        link = self._links.get(theirs.cluster)
        if link is None:
            return self.unlinked(message)
        require_honest(theirs.cluster, theirs.term, link.neighbour.term)
        if theirs.term < link.neighbour.term:
            return []  # from a broker that is no longer designated, and will learn it
        if theirs.cluster == self._parent:
            if me not in message.children or me in message.path:
                self.remove(theirs.cluster)  # it has removed us, or it is below us
                return self.unlinked(message)
            self._path = (*message.path, me) if message.path else ()
        elif message.parent != me:
            self.remove(theirs.cluster)
            return self.unlinked(message)
        self._links[theirs.cluster] = _Link(theirs, now)
        return []

    def unlinked(self, message: LinkHeartbeat) -> list[Dispatch]:
        """Answer a heartbeat of a cluster that wrongly assumes a link, with `Unlinked`."""
        me = self._contact.cluster
        if me != message.parent and me not in message.children:
            return []
        return [Dispatch(to_broker(message.neighbour.designated), Unlinked(me))]

    def probed(self, message: Probed, now: float) -> None:
        """Process the answer to a probe: end the search, or continue it."""
        link = self._links.get(message.contact.cluster)
        if link is None or link.search is None:
            return
        if message.designated is None:
            link.search.not_yet(message.contact, now)
        else:
            # it has answered now; its heartbeats will show whether it assumes a link
            self._links[message.contact.cluster] = _Link(message.designated, now)
            self._beat_at = now
