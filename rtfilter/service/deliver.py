"""Stage 5: to the users whose subscriptions match, now or when they ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rtfilter.service.backlog import Backlog, Delivery
from rtfilter.service.log import Logged, Mark


class Receiver(Protocol):
    """Where the deliveries of a user go at once."""

    def send(self, delivery: Delivery) -> None:
        """Send it, or leave it in the backlog where the receiver is slow. Never waits."""


class Deliver:
    """The backlog of each user, and who receives.

    Of several receivers of a user, the last that became ready has the deliveries.

    Parameters
    ----------
    owners : mapping of str to str
        The user of each subscription that is there; others change it.
    marks : mapping of str to Mark
        What was acknowledged before a restart.
    """

    def __init__(self, owners: Mapping[str, str], marks: Mapping[str, Mark]) -> None:
        self._owners = owners
        self._backlogs: defaultdict[str, Backlog] = defaultdict(Backlog)
        self._backlogs.update({user: Backlog(mark) for user, mark in marks.items()})
        self._receivers: dict[str, list[Receiver]] = {}

    def tell(self, event: Logged, ids: Iterable[str]) -> None:
        """Keep and send what an event matches."""
        of: defaultdict[str, list[str]] = defaultdict(list)
        for id in ids:
            if id in self._owners:  # or it was removed since
                of[self._owners[id]].append(id)
        for user, mine in of.items():
            delivery = Delivery(event.position, tuple(sorted(mine)), event.entry.body)
            if self._backlogs[user].add(delivery) and user in self._receivers:
                self._receivers[user][-1].send(delivery)

    def pending(self, user: str) -> Sequence[Delivery]:
        """What a user has not acknowledged, in the order in which it became known."""
        return list(self._backlogs[user].pending.values()) if user in self._backlogs else []

    def acknowledge(self, user: str, positions: Iterable[int], settled: int) -> Mark:
        """Take deliveries of a user away; what is then to be kept."""
        self._backlogs[user].acknowledge(positions)
        return self._backlogs[user].mark(settled)

    def forget(self, user: str, subscription: str) -> None:
        """A subscription was removed."""
        if user in self._backlogs:
            self._backlogs[user].forget(subscription)

    def begin(self, user: str, receiver: Receiver) -> None:
        """Send a user's deliveries there from now on."""
        self._receivers.setdefault(user, []).append(receiver)

    def end(self, user: str, receiver: Receiver) -> None:
        """Send no more there. Does nothing where that is so already."""
        left = [one for one in self._receivers.get(user, []) if one is not receiver]
        if left:
            self._receivers[user] = left
        else:
            self._receivers.pop(user, None)
