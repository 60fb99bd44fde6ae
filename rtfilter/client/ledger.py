"""The states of deliveries: waiting, with the program, or acknowledged. No I/O, no clock.

A delivery is known by its (position, subscription) pairs, because numbers are a connection's own: what comes
again after a reconnect has another number. Up to `Ledger.upto` all is done; what is done beyond it, while the
program still has an earlier one, is told by its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from rtfilter.client.errors import ProtocolError
from rtfilter.client.messages import Arrival, Digest, Ended, Event
from rtfilter.text import shown

MOST_KEPT: Final = 10_000
"""Acknowledgements of earlier connections that are remembered without the server's confirmation. It may have
them, and then it never says so; or it was killed, and what they are about comes again at any later time."""
Pair = tuple[int, int]
"""Position and subscription."""


def pairs_of(arrival: Arrival) -> frozenset[Pair]:
    """Return the (position, subscription) pairs that a message delivers."""
    match arrival:
        case Event():
            return frozenset((arrival.position, id) for id in arrival.subscriptions or (-1,))
        case Digest():
            return frozenset(
                (one.position, id)
                for one in arrival.events
                for id in one.subscriptions or arrival.subscriptions
            )
        case Ended():
            return frozenset({(arrival.position, arrival.subscription)})


class Item:
    """A delivery on its way to the program, or with it.

    Attributes
    ----------
    arrival : Event, Digest or Ended
    again : bool
        The program may have had it before.
    done : bool
        The program has acknowledged it.
    """

    def __init__(self, arrival: Arrival) -> None:
        self.arrival, self.pairs = arrival, pairs_of(arrival)
        self.again, self.done = arrival.redelivered > 0, False


class Ledger:
    """The deliveries of a client, over all its connections.

    Parameters
    ----------
    window : int
        Deliveries that may wait here, at most, with those on their way.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._queue: deque[Item] = deque()
        self._waiting: dict[Pair, Item] = {}  # the items in the queue
        self._given: set[Pair] = set()  # the program has them, and has not acknowledged them
        self._done: dict[Pair, int] = {}  # acknowledged, with the number that tells it; 0: none yet
        self._open: dict[int, set[Pair]] = {}  # numbers of this connection, with what is not acknowledged
        self._numbers: dict[Pair, list[int]] = {}  # the other way round
        self._apart: dict[int, set[int]] = {}  # numbers to tell beyond `upto`, with their positions
        self._last = self._told = self._returned = 0

    def __len__(self) -> int:
        return len(self._queue)

    def begin(self) -> int:
        """Another connection: what waits will come again. Returns the credit to give."""
        for left in (self._queue, self._waiting, self._open, self._numbers, self._apart):
            left.clear()
        self._done = dict.fromkeys(list(self._done)[-MOST_KEPT:], 0)
        self._last = self._told = self._returned = 0
        return self.window

    def arrive(self, arrival: Arrival) -> None:
        """Take a delivery. What is acknowledged, or waits already, is not kept twice.

        Raises
        ------
        ProtocolError
            Its number is not the next one. Acknowledging it would acknowledge what did not come.
        """
        if arrival.number != self._last + 1:
            raise ProtocolError(f"the server sent delivery {shown(arrival.number)} after {self._last}")
        number = self._last = arrival.number
        item = Item(arrival)
        self._done |= dict.fromkeys(item.pairs & self._done.keys(), number)
        left = item.pairs - self._done.keys()
        if left:
            self._open[number] = set(left)
            for pair in left:
                self._numbers.setdefault(pair, []).append(number)
        else:
            self._close(number, item)
        if left <= self._waiting.keys():
            self._returned += 1
        else:
            self._queue.append(item)
            self._waiting |= dict.fromkeys(item.pairs, item)

    def take(self) -> Item | None:
        """Hand out the next delivery, None if there is none."""
        if not self._queue:
            return None
        item = self._queue[0]
        self._leave(item)
        item.again = item.again or not self._given.isdisjoint(item.pairs)
        self._given |= item.pairs
        return item

    def acknowledge(self, item: Item) -> None:
        """The program has done with a delivery. If it waits a second time, it is not handed out again."""
        if item.done:
            return
        item.done = True
        self._given -= item.pairs
        for pair in item.pairs:
            numbers = self._numbers.pop(pair, [0])
            self._done[pair] = max(self._done.get(pair, 0), *numbers)
            for number in numbers:
                if number and self._open[number] == {pair}:
                    del self._open[number]
                    self._close(number, item)
                elif number:
                    self._open[number].discard(pair)
        for twin in {self._waiting[pair] for pair in item.pairs if pair in self._waiting}:
            if twin.pairs <= self._done.keys():
                self._leave(twin)

    def _close(self, number: int, item: Item) -> None:
        """All of a number is acknowledged: it is told by itself while an earlier one is not."""
        if next(iter(self._open), number) < number:
            self._apart[number] = {position for position, _ in item.pairs}

    def _leave(self, item: Item) -> None:
        """It leaves the queue: another may come."""
        self._queue.remove(item)
        self._returned += 1
        for pair in item.pairs:
            if self._waiting.get(pair) is item:
                del self._waiting[pair]

    @property
    def upto(self) -> int:
        """The number up to which all is acknowledged."""
        return next(iter(self._open), self._last + 1) - 1

    def due(self, least: int = 1) -> tuple[int, int]:
        """Return the number to send with ACK and the credit to send with CREDIT; 0 means nothing to send.

        Parameters
        ----------
        least : int
            Fewer than so many are not worth a message yet.
        """
        upto = self.upto if self.upto - self._told >= least else 0
        credit = self._returned if self._returned >= least else 0
        self._told = upto or self._told
        self._returned -= credit
        return upto, credit

    def apart(self, least: int = 1) -> list[int]:
        """Return the numbers to acknowledge above `upto`, or none if they are fewer than `least`.

        A delivery that came in several messages is told once all of them are acknowledged.
        """
        if len(self._apart) < least:
            return []
        open = {position for pairs in self._open.values() for position, _ in pairs}
        found = [number for number, positions in self._apart.items() if open.isdisjoint(positions)]
        for number in found:
            del self._apart[number]
        return [number for number in found if number > self.upto]

    @property
    def untold(self) -> bool:
        """True if `due` or `apart` has something to send."""
        return self.upto > self._told or self._returned > 0 or bool(self._apart)

    def confirmed(self, upto: int, numbers: Collection[int] = ()) -> None:
        """The server knows that all up to a number, and some beyond, is acknowledged: it comes no more."""
        self._done = {
            pair: number
            for pair, number in self._done.items()
            if not 0 < number <= upto and number not in numbers
        }
