"""Whole brokers: after any faults, and the time to heal, events are delivered exactly once."""

from itertools import count
from random import Random

import pytest

from experiments.simulation.event_messages import EventId
from lengths import each_once
from overlay.test_routes import TOLD
from overlay.whole_network import Network
from rtfilter.overlay.strategies import STRATEGIES

BROKERS = ["a1", "a2", "b1", "b2", "b3", "c1", "d1", "e1", "e2"]
BOUND = 60


class History:
    """Brokers that crash, start, lose each other and find each other, while clients come and go."""

    def __init__(self, number, strategy, **told):
        self.chance = Random(number)
        self.network = Network(*BROKERS, strategy=strategy, **told)
        self.wants = {}  # client: (broker, lower end, id)
        self.numbers = count(1)

    def subscribe(self):
        broker, client = self.chance.choice(sorted(self.network.brokers)), f"client {next(self.numbers)}"
        low = self.chance.randrange(6)
        self.wants[client] = (broker, low, self.network.subscribe(broker, client, f"x > {low}"))

    def unsubscribe(self):
        broker, _, id = self.wants.pop(self.chance.choice(sorted(self.wants)))
        self.network.do(broker, self.network.brokers[broker].unsubscribe(id, self.network.now))

    def crash(self, name):
        self.network.crash(name)
        self.wants = {client: want for client, want in self.wants.items() if want[0] != name}

    def step(self):
        kind = self.chance.random()
        live = sorted(self.network.brokers)
        dead = sorted(set(BROKERS) - set(live))
        if kind < 0.3 and len(live) > 1:
            self.crash(self.chance.choice(live))
        elif kind < 0.5 and dead:
            self.network.start(self.chance.choice(dead))
        elif kind < 0.65:
            self.network.separate(*self.chance.sample(BROKERS, 2))
        elif kind < 0.75:
            self.network.cut.clear()
        elif kind < 0.9 or not self.wants:
            self.subscribe()
        else:
            self.unsubscribe()
        self.network.run(self.chance.choice([0, 0.01, 1, 5]))

    def live(self):
        """Let it happen, and then heal."""
        self.network.run(self.chance.uniform(0, 15))
        for _ in range(4):
            self.subscribe()
        for _ in range(self.chance.randrange(1, 8)):
            self.step()
        self.network.cut.clear()
        self.network.run(BOUND)
        self.network.alerts()

    def check(self):
        """Publish at each broker."""
        for broker in sorted(self.network.brokers):
            for x in (0.5, 2.5, 9.0):
                self.network.publish(broker, x, EventId("publisher", 1, next(self.numbers)))
            self.network.run(1)
            expected = {
                (client, x): 1
                for client, (_, low, _) in self.wants.items()
                for x in (0.5, 2.5, 9.0)
                if x > low
            }
            assert self.network.alerts() == expected


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "told"), each_once(list(STRATEGIES), list(TOLD)))
def test_each_event_reaches_who_wants_it_once(strategy, told):
    history = History(list(TOLD).index(told), strategy, **TOLD[told])
    history.live()
    history.check()
