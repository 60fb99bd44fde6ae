"""What was asked of the server, what it answered, and so what may and what must be delivered.

Everything that is asked has a time when it began and, once it is answered, one when it ended, both counted by
one counter. Of two things that overlap the order is not known: then both are allowed.
"""

import threading
import time
from dataclasses import dataclass, field
from math import inf

LONG = 1000.0
"""Seconds to live that no run of the checker takes."""
SLACK = 0.05
"""Seconds around the end of a subscription."""


class FaultError(AssertionError):
    """The server breaks a promise."""


@dataclass
class Publish:
    """One request."""

    user: str
    key: str | None
    events: dict  # price by serial
    how: str
    began: int
    at: float
    ended: float = inf
    places: list | None = None


@dataclass
class Version:
    """A subscription as it is asked for."""

    low: int
    high: int
    ttl: float | None
    manner: dict = field(default_factory=dict)
    """How it is to be delivered."""
    began: int = 0
    ended: float = inf
    first_at: float = inf
    """When it was asked for first, in seconds since 1970."""
    last_at: float = inf
    """When it was answered."""

    @property
    def wish(self):
        wish = {"where": f"price >= {self.low} AND price < {self.high}", **self.manner}
        return wish if self.ttl is None else {**wish, "ttl": self.ttl}

    def has(self, price):
        return self.low <= price < self.high


@dataclass
class Subscription:
    """One, with all its versions; `gone` says when its removal was asked for, and confirmed."""

    user: str
    versions: list = field(default_factory=list)
    id: int | None = None
    gone_began: float = inf
    gone: bool = False
    told: bool = False
    """Whether its user was told that it ended."""

    @property
    def brief(self):
        """Whether it ends by itself before the checker does."""
        return (self.versions[-1].ttl or inf) < LONG

    @property
    def lives(self):
        return self.gone_began == inf and not self.brief


class Knowledge:
    """All of it. Workers use it from their threads.

    Attributes
    ----------
    age : float
        Seconds that the server keeps events, deliveries and keys.
    """

    def __init__(self, users):
        self.lock = threading.RLock()
        self.users = users
        self.age = inf
        self._time = 0
        self.publish_of, self.position_of, self.serial_at = {}, {}, {}
        self.subscriptions = {user: [] for user in users}
        self.by_id = {}
        self.acknowledged = {user: set() for user in users}
        self.perhaps = {user: set() for user in users}
        self.pending = {user: set() for user in users}  # delivered, and surely not acknowledged
        self._living = {user: [] for user in users}
        self.delivered = 0

    def now(self):
        with self.lock:
            self._time += 1
            return self._time

    # -- what was asked --------------------------------------------------------------------------------------

    def publishing(self, user, key, prices, how):
        with self.lock:
            first = len(self.publish_of) + 1
            events = dict(enumerate(prices, first))
            made = Publish(user, key, events, how, self.now(), time.time())
            self.publish_of |= dict.fromkeys(events, made)
            return made

    def published(self, one, places):
        with self.lock:
            if len(places) != len(one.events) or places != sorted(set(places)):
                raise FaultError(f"{len(one.events)} events were published, and their positions are {places}")
            if one.places is None:
                one.ended = self.now()
            elif one.places != places:
                raise FaultError(f"a publish has the positions {one.places}, and repeated {places}")
            one.places = places
            for serial, place in zip(one.events, places, strict=True):
                self._bind(serial, place)

    def _bind(self, serial, place):
        if self.position_of.setdefault(serial, place) != place:
            raise FaultError(f"event {serial} is at {self.position_of[serial]} and at {place}")
        if self.serial_at.setdefault(place, serial) != serial:
            raise FaultError(f"at {place} are the events {self.serial_at[place]} and {serial}")

    def asking(self, version):
        with self.lock:
            if not version.began:
                version.began, version.first_at = self.now(), time.time()

    def subscribed(self, subscription, id):
        with self.lock:
            if id in self.by_id:
                raise FaultError(f"the subscription {id} was made twice")
            subscription.id = id
            self.by_id[id] = subscription
            self.subscriptions[subscription.user].append(subscription)
            self._living[subscription.user].append(subscription)
            self.answered(subscription.versions[0])

    def answered(self, version):
        with self.lock:
            version.ended, version.last_at = self.now(), time.time()

    def acknowledge(self, user, places):
        with self.lock:
            self.acknowledged[user].update(places)
            self.pending[user].difference_update(places)

    # -- what is right ---------------------------------------------------------------------------------------

    def living(self, user):
        """The subscriptions of a user that are there for ever; once one is not, it never is again."""
        with self.lock:
            self._living[user] = [one for one in self._living[user] if one.lives]
            return list(self._living[user])

    def possible(self, publish, one):
        """The versions of a subscription that a publish may have met."""
        for place, version in enumerate(one.versions):
            following = one.versions[place + 1] if place + 1 < len(one.versions) else None
            if version.began < publish.ended and (following is None or following.ended > publish.began):
                yield version

    def may(self, serial, one):
        publish = self.publish_of[serial]
        return any(
            version.has(publish.events[serial])
            and (version.ttl is None or publish.at < version.last_at + version.ttl + SLACK)
            for version in self.possible(publish, one)
        )

    def must(self, serial, one):
        publish = self.publish_of[serial]
        return (
            one.lives
            and publish.ended < inf
            and one.versions[0].ended < publish.began
            and all(version.has(publish.events[serial]) for version in self.possible(publish, one))
        )

    def kept(self, publish):
        """Whether the server still has to keep what was published."""
        return time.time() < publish.at + self.age

    # -- what is delivered -----------------------------------------------------------------------------------

    def check(self, user, message):
        """Hold a delivery, or the end of a subscription, against all that is known.

        Returns the subscription that has ended, or None. Once all that was sent before has been taken, it
        is to be marked as `told`.
        """
        with self.lock:
            place = message["position"]
            if place in self.acknowledged[user]:
                raise FaultError(f"{place} was acknowledged by {user}, and is delivered: {message}")
            self.pending[user].add(place)
            if "reason" in message:
                id = message.get("ended", message.get("subscription"))
                return self._check_end(user, id, message["reason"])
            serial = message["event"]["serial"]
            if serial not in self.publish_of:
                raise FaultError(f"{message} was never published")
            if message["event"] != {"price": self.publish_of[serial].events[serial], "serial": serial}:
                raise FaultError(f"{message} was published otherwise")
            self._bind(serial, place)
            ids = message["subscriptions"]
            for id in ids:
                self._check_pair(user, id, serial, message)
            for one in self.living(user):
                if one.id not in ids and self.must(serial, one):
                    raise FaultError(f"{message} leaves out subscription {one}")
            return None

    def _check_pair(self, user, id, serial, message):
        one = self.by_id.get(id)
        if one is None and any(
            other.versions[0].ttl is not None and self.may(serial, other)
            for other in self.subscriptions[user]
        ):
            return  # as in `_check_end`; what it matched before it ended is delivered
        if one is None:
            raise FaultError(f"{message} is for {id}, which nobody has")
        if one.user != user:
            raise FaultError(f"{message} is for {id} of {one.user}, and is delivered to {user}")
        if one.gone or (one.told and one.gone_began < inf):  # what it matched before it expired is delivered
            raise FaultError(f"{message} is for {id}, which has ended")
        if not self.may(serial, one):
            raise FaultError(f"{message} is no match of {one}, published {self.publish_of[serial]}")
        self.delivered += 1

    def _check_end(self, user, id, reason):
        one = self.by_id.get(id)
        if one is None and reason == "expired":
            # Its answer was lost, and it ended before it was asked for again: now there is another one.
            return None
        if one is None or one.user != user:
            raise FaultError(f"{user} is told of the end of {id}, which is no subscription of theirs")
        if reason == "removed":
            if one.gone_began == inf:
                raise FaultError(f"{id} is removed, and nobody asked for it")
        elif reason != "expired" or all(
            version.ttl is None or time.time() < version.first_at + version.ttl - SLACK
            for version in one.versions
        ):
            raise FaultError(f"{id} has ended too early, being {reason}: {one}")
        return one

    def check_backlog(self, user, there):
        """Hold all that is left against all that must be; `there` are the messages."""
        with self.lock:
            found = {(one["position"], id) for one in there for id in one.get("subscriptions", ())}
            for ended in [self.check(user, message) for message in there]:
                if ended:
                    ended.told = True
            done = self.acknowledged[user] | self.perhaps[user]
            kept = [
                serial
                for serial, publish in self.publish_of.items()
                if publish.places and self.kept(publish) and self.position_of[serial] not in done
            ]
            living = self.living(user)
            due = {
                (self.position_of[serial], one.id)
                for serial in kept
                for one in living
                if self.must(serial, one)
            }
            if due - found:
                raise FaultError(f"lost for {user}: {sorted(due - found)[:5]}, {len(due - found)} in all")

    def expected(self, user):
        """Ids of the subscriptions that are there for ever."""
        return {one.id for one in self.living(user)}
