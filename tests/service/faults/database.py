"""A database of PostgreSQL that goes and comes back, or does not answer for a while."""

import random
import signal
import time
from collections import Counter

from service.faults.load import Fault, Load, until
from service.faults.world import serving


class Stopped(Fault):
    """It crashes, and is started again."""

    def __init__(self, database, *given):
        super().__init__(*given)
        self.begin, self.end = database.stop, database.start

    def meanwhile(self):
        until(lambda: self.publish() == 503, "events are refused")
        self.require_works()
        time.sleep(self.random.uniform(0.0, 1.0))


class Frozen(Fault):
    """It answers nothing for a while, and nobody is told why."""

    def __init__(self, database, *given):
        super().__init__(*given)
        self._database = database

    def begin(self):
        self._database.signal(signal.SIGSTOP)

    def end(self):
        self._database.signal(signal.SIGCONT)

    def meanwhile(self):
        self.require_works()
        time.sleep(self.random.uniform(0.2, 2.0))


def run(folder, seed, database, seconds=4.0):
    """Have a database crash or freeze, by turns of seeds; then compare everything."""
    load = Load(seed)
    fault = (Frozen if seed % 2 else Stopped)(database, load.known, random.Random(seed))
    with serving(folder, database.url) as server:
        load.run(server, fault, seconds)
        load.finish(server)
    name = type(fault).__name__.lower()
    return Counter({f"database {name}": fault.times, "told to try again": load.refused})
