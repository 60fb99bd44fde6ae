"""Consumers that are not like the others, and a publisher of much that concerns nobody."""

import time

from service.kills.knowledge import FaultError
from service.kills.links import over_tcp, over_websocket
from service.kills.workers import Publisher, Subscriber

FEW = 3
"""Dead connections of one consumer at a time."""


class OverTcp(Subscriber):
    """One whose sessions are over TCP."""

    def open_session(self, take):
        return self.server.session(self.name, take, over_tcp, self.server.tcp_port)


class Digested(OverTcp):
    """One who wants some deliveries together."""

    def manner(self):
        return self.random.choice([{}, {"digest": 1}, {"digest": 2}])


class Ordered(Subscriber):
    """One who wants the events of one price in published order."""

    def manner(self):
        return {"order": "key"}

    def _connect(self):
        self._place_of = {}  # the last one, by price
        super()._connect()

    def _take(self, message):
        super()._take(message)
        if message["directive"] == "EVENT" and message["redelivered"] == 0:
            price, place = message["event"]["price"], message["position"]
            if place < self._place_of.get(price, 0):
                raise FaultError(f"{message} comes after {self._place_of[price]}, and order was asked for")
            self._place_of[price] = place


class Slow(OverTcp):
    """One who takes one delivery a second."""

    def _receive(self):
        self._session.say("CREDIT", more=0)
        super()._receive()

    def step(self):
        if not self._ready:
            self._receive()
        if not self.mine():
            self._subscribe()
            return
        begun = time.monotonic()
        self._session.say("CREDIT", more=1)
        if self._session.listen(1.0, most=1):
            self._acknowledge_numbers()
        time.sleep(max(0.0, begun + 1.0 - time.monotonic()))


class Vanishing(Subscriber):
    """One whose connection is dead now and then, though nobody closes it. `relay` is between.

    It comes again with another connection, and then pulls for a while what it has not read.
    """

    def __init__(self, *given):
        super().__init__(*given)
        self.relay, self._dead = None, []

    def open_session(self, take):
        return self.server.session(self.name, take, over_websocket, self.relay and self.relay.port)

    def step(self):
        if self.random.random() < 0.01:
            self._vanish()
            return
        super().step()

    def _vanish(self):
        self.relay.stall()
        self._session, dead = None, self._session
        self._dead.append(dead)  # its socket stays open
        while len(self._dead) > FEW:
            self._dead.pop(0).close()
        time.sleep(self.random.choice([0.1, 0.5, 1.0]))
        for _ in range(self.random.randrange(5)):
            self._check_page()
        self._connect()

    def _check_page(self):
        for message in self.backlog(20):
            if ended := self.known.check(self.name, message):
                ended.told = True

    def leave(self):
        super().leave()
        for dead in self._dead:
            dead.close()
        self._dead.clear()


class VanishingOverTcp(Vanishing):
    """The same, over TCP."""

    def open_session(self, take):
        port = self.relay.port if self.relay else self.server.tcp_port
        return self.server.session(self.name, take, over_tcp, port)


class Puller(Subscriber):
    """One who only ever asks over HTTP."""

    def _connect(self):
        """It has no session."""

    def _receive(self):
        """It has no session."""

    def _barrier(self):
        """It has no session."""

    def step(self):
        steps = {
            self._pull: 3,
            self._acknowledge_places: 3,
            self._post_new: 1,
            self._replace: 1,
            self._unsubscribe: 1,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()
        time.sleep(0.02)

    def _post_new(self):
        if len(self.mine()) <= 6:
            self._subscribe_many()


class Paced(Publisher):
    """One who leaves the others time."""

    def step(self):
        super().step()
        time.sleep(0.1)


class Bulk(Publisher):
    """One who publishes much that nobody has subscribed to."""

    def step(self):
        prices = [1000 + self.random.randrange(100) for _ in range(100)]
        one = self.known.publishing(self.name, None, prices, "lines")
        self._ask(one)
        time.sleep(0.1)
