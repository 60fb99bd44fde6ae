"""Memberships in simulated time: delays, losses, duplicates, partitions, crashes, returns, by a seed."""

from heapq import heappop, heappush
from itertools import count
from random import Random

from rtfilter.overlay.membership import Contact, Membership, MembershipSettings, RendezvousPoint
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, Audience

SETTINGS = MembershipSettings()


class Network:
    """All brokers, each as `cluster` and a digit: "a2" is of cluster "a".

    Messages take up to `slowest` seconds each, in any order. `reaches` says which of two brokers hear each
    other.
    """

    def __init__(self, brokers, seed=0, settings=SETTINGS, loss=0.0, doubled=0.0, slowest=0.2):
        self.settings = settings
        self.chance = Random(seed)
        self.loss, self.doubled, self.slowest = loss, doubled, slowest
        self.now = 0.0
        self.point = RendezvousPoint(settings)
        self.brokers = {}
        self.incarnations = dict.fromkeys(brokers, 0)
        self.terms = dict.fromkeys(brokers, 0)
        self.handed_up = {}
        self.sent = []  # (time, from, to, message)
        self.places = {name: [] for name in brokers}
        self.reaches = lambda one, other: True
        self.swallows = lambda one, other, message: False
        self.cluster_of = lambda name: name.rstrip("0123456789")
        self.delay = lambda one, other: self.chance.uniform(0, self.slowest)
        self._due = {}
        self._queue = []
        self._count = count()
        for name in brokers:
            self.start(name)

    def start(self, name):
        """Start a broker, or start it again."""
        self.incarnations[name] += 1
        contact = Contact(name, self.cluster_of(name), f"at {name}")
        membership = Membership(
            contact,
            self.settings,
            seed=self.chance.randrange(2**32),
            incarnation=self.incarnations[name],
            term=self.terms[name],
        )
        self.brokers[name] = membership
        self.handed_up[name] = []
        self._do(name, membership.tick(self.now))

    def crash(self, name):
        """It is gone, with all that it knew but its incarnation and term."""
        self.brokers.pop(name, None)
        self._due.pop(name, None)

    def multicast(self, name, message):
        """A multicast of a live broker's router."""
        self._do(name, self.brokers[name].multicast(message, self.now))

    def run(self, seconds):
        """Let time pass."""
        until = self.now + seconds
        while True:
            arrives = self._queue[0][0] if self._queue else until
            due = min(self._due.values(), default=until)
            self.now = max(self.now, min(arrives, due))
            if self.now >= until:
                self.now = until
                return
            if arrives <= due:
                _, _, source, to, message = heappop(self._queue)
                self._arrive(source, to, message)
            else:
                for name in [name for name, at in self._due.items() if at <= self.now]:
                    self._do(name, self.brokers[name].tick(self.now))

    def _arrive(self, source, to, message):
        if not self.reaches(source, to) or self.swallows(source, to, message):
            return
        if to == RENDEZVOUS_POINT:
            self._do(to, self.point.receive(message, source, self.now))
        elif to in self.brokers:
            self._do(to, self.brokers[to].receive(message, source, self.now))

    def _do(self, source, dispatches):
        if source in self.brokers:
            broker = self.brokers[source]
            self._due[source] = broker.due
            assert broker.term >= self.terms[source]
            self.terms[source] = broker.term
            if not self.places[source] or self.places[source][-1][1] != broker.place:
                self.places[source].append((self.now, broker.place))
        for recipient, message in dispatches:
            if recipient.audience is Audience.BROKER:
                targets = [recipient.name]
                assert recipient.address == f"at {recipient.name}"
            elif recipient.audience is Audience.CLUSTER:
                cluster = self.cluster_of(source)
                targets = [n for n in self.brokers if self.cluster_of(n) == cluster and n != source]
            elif recipient.audience is Audience.RENDEZVOUS:
                targets = [RENDEZVOUS_POINT]
            else:
                self.handed_up[source].append((recipient.name, message))
                continue
            for to in targets:
                self.sent.append((self.now, source, to, message))
                for _ in range(1 + (self.chance.random() < self.doubled)):
                    if self.chance.random() >= self.loss:
                        arrives = self.now + self.delay(source, to)
                        heappush(self._queue, (arrives, next(self._count), source, to, message))

    def places_now(self):
        """The place of each live broker."""
        return {name: broker.place for name, broker in sorted(self.brokers.items())}

    def problems(self):
        """What is not as it should be after convergence, where all live brokers reach each other."""
        found = []
        places = self.places_now()
        clusters = {}
        for name, place in places.items():
            clusters.setdefault(place.cluster, {})[name] = place
        leaders = {}
        for cluster, members in clusters.items():
            for name, place in members.items():
                if place.members != set(members):
                    found.append(f"{name} takes {sorted(place.members)} for the members of {cluster}")
            designated = {place.designated for place in members.values()}
            if len(designated) != 1 or not designated <= set(members):
                found.append(f"{cluster} follows {sorted(designated)}")
            else:
                leaders[cluster] = places[designated.pop()]
            if len({(place.parent, place.root) for place in members.values()}) != 1:
                found.append(f"members of {cluster} do not agree on where it stands")
        roots = [cluster for cluster, place in leaders.items() if place.root]
        registered = self.point.root.cluster.cluster if self.point.root else ""
        if roots != [registered]:
            found.append(f"roots {roots}, registered {registered}")
        for cluster, place in leaders.items():
            if len(place.links) - bool(place.parent) > self.settings.children:
                found.append(f"{cluster} has too many children: {dict(place.links)}")
            if not place.root and not place.parent:
                found.append(f"{cluster} is cut off")
            for other, designated in place.links.items():
                theirs = leaders.get(other)
                if theirs is None or theirs.broker != designated or cluster not in theirs.links:
                    found.append(f"{cluster} thinks that it is linked to {designated} of {other}")
                elif (place.parent == other) == (theirs.parent == cluster):
                    found.append(f"{cluster} and {other} do not agree who is above")
            above, seen = cluster, set()
            while above in leaders and above not in seen:
                seen.add(above)
                above = leaders[above].parent
            if above:
                found.append(f"{cluster} is not below the root")
        return found
