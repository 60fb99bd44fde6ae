"""The states of deliveries: waiting, with the program, or acknowledged. No I/O, no clock.

A delivery is identified by its (position, subscription) pairs, because its number is only valid in one
connection: after a reconnect, the same delivery has another number. All numbers up to `Ledger.upto` are
acknowledged; a later number is acknowledged separately while the program still has an earlier delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from rtfilter.basics.text import shown
from rtfilter.client.client_errors import ProtocolError
from rtfilter.client.protocol import Arrival, Digest, Ended

MOST_KEPT: Final = 10_000
"""Most acknowledgements of earlier connections to remember without the server's confirmation. If the server
has them, it will not confirm them; if it was killed, it may send their deliveries again at any later time."""
Pair = tuple[int, int]
"""Position and subscription."""


def pairs_of(arrival: Arrival) -> frozenset[Pair]:
    """Return the (position, subscription) pairs of a delivery."""
    if isinstance(arrival, Ended):
        return frozenset({(arrival.position, arrival.subscription)})
    none = arrival.subscriptions if isinstance(arrival, Digest) else (-1,)
    return frozenset((one.position, id) for one in arrival.events for id in one.subscriptions or none)


class Item:
    """A delivery that waits for the program, or that the program has."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival, self.pairs = arrival, pairs_of(arrival)
        self.again = arrival.redelivered > 0  # the program may have had it before
        self.done = False  # the program has acknowledged it


class Ledger:
    """The deliveries of a client, over all its connections.

    At most `window` of them may wait here, including those on their way.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._queue: deque[Item] = deque()
        self._waiting: dict[Pair, Item] = {}  # the items in the queue
        self._given: set[Pair] = set()  # the program has them, without acknowledgement
        self._done: dict[Pair, int] = {}  # acknowledged, with the number to send; 0 for none
        self._open: dict[int, set[Pair]] = {}  # unacknowledged pairs by number of this connection
        self._numbers: dict[Pair, list[int]] = {}  # numbers by pair
        self._apart: dict[int, set[int]] = {}  # numbers above `upto` to send, with their positions
        self._last = self._told = self._returned = 0

    def __len__(self) -> int:
        return len(self._queue)

    def begin(self) -> int:
        """Start a new connection, on which unacknowledged deliveries come again; return the first credit."""
        for left in (self._queue, self._waiting, self._open, self._numbers, self._apart):
            left.clear()
        self._done = dict.fromkeys(list(self._done)[-MOST_KEPT:], 0)
        self._last = self._told = self._returned = 0
        return self.window

    def arrive(self, arrival: Arrival) -> None:
        """Add a delivery, unless it is acknowledged or waits already.

        Raises `ProtocolError` if its number is not the next one: others would be acknowledged with it.
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
        """Remove and return the next delivery; None if there is none."""
        if not self._queue:
            return None
        item = self._queue[0]
        self._leave(item)
        item.again = item.again or not self._given.isdisjoint(item.pairs)
        self._given |= item.pairs
        return item

    def acknowledge(self, item: Item) -> None:
        """Acknowledge a delivery; if the same one waits again, remove it from the queue."""
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
        """Note that all pairs of a number are acknowledged, while an earlier number is not."""
        if next(iter(self._open), number) < number:
            self._apart[number] = {position for position, _ in item.pairs}

    def _leave(self, item: Item) -> None:
        """Remove a delivery from the queue, so that the server may send another one."""
        self._queue.remove(item)
        self._returned += 1
        for pair in item.pairs:
            if self._waiting.get(pair) is item:
                del self._waiting[pair]

    @property
    def upto(self) -> int:
        """The number up to which all deliveries are acknowledged."""
        return next(iter(self._open), self._last + 1) - 1

    def due(self, least: int = 1) -> tuple[int, int]:
        """Return the number to send with ACK and the credit to send with CREDIT; 0 means nothing to send.

        `least` is the fewest acknowledgements, and the least credit, that are worth a message.
        """
        upto = self.upto if self.upto - self._told >= least else 0
        credit = self._returned if self._returned >= least else 0
        self._told = upto or self._told
        self._returned -= credit
        return upto, credit

    def apart(self, least: int = 1) -> list[int]:
        """Return the numbers to acknowledge above `upto`, or none if they are fewer than `least`.

        A delivery that came in several messages is included once all of them are acknowledged.
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
        """Remove acknowledgements that the server has confirmed: up to a number, and some above it."""
        self._done = {
            pair: number
            for pair, number in self._done.items()
            if not 0 < number <= upto and number not in numbers
        }
