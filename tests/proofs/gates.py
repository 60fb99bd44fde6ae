"""The gate under random schedules of threads."""

import threading
import time
from collections import Counter

import numpy as np

from rtfilter.matching.gate import Gate

PATIENCE = 30.0
"""Seconds after which a thread counts as one that waits for ever."""


class _House:
    """Who is inside, and whether they may be there together."""

    def __init__(self) -> None:
        self.gate, self.lock = Gate(), threading.Lock()
        self.batches = self.changes = 0
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, batches: int, changes: int) -> None:
        """Count who comes and goes, and complain where a change is not alone."""
        with self.lock:
            self.batches += batches
            self.changes += changes
            if self.changes > 1 or (self.changes and self.batches):
                self.wrong.append(f"{self.changes} changes beside {self.batches} batches")

    def batch(self, pause: float) -> None:
        """A batch that is over at once."""
        with self.gate.reading():
            self.note(1, 0)
            time.sleep(pause)
            self.note(-1, 0)
        self.counts["batches"] += 1

    def change(self, pause: float) -> None:
        """A change."""
        with self.gate.writing():
            self.note(0, 1)
            time.sleep(pause)
            self.note(0, -1)
        self.counts["changes"] += 1

    def stream(self, pause: float) -> None:
        """A stream that its consumer leaves open for a while; a change may finish it."""
        with self.gate.reading():
            self.note(1, 0)
            done = threading.Event()

            def finish() -> None:
                if not done.is_set():
                    done.set()
                    self.note(-1, 0)

            guarded = threading.Lock()

            def finish_once() -> None:
                with guarded:
                    finish()

            hold = self.gate.open_stream(finish_once, Gate())
        time.sleep(pause)
        finish_once()
        hold.close()
        self.counts["streams"] += 1


def run(seed: int) -> Counter[str]:
    """Some threads, each with its own sequence of batches, changes and streams."""
    rng = np.random.default_rng(seed)
    house = _House()
    share = rng.dirichlet([1, 1, 1])

    def live(plan: list[tuple[str, float]]) -> None:
        for kind, pause in plan:
            getattr(house, kind)(pause)

    threads = []
    for _ in range(rng.integers(2, 9)):
        kinds = rng.choice(["batch", "change", "stream"], 12, p=share).tolist()
        pauses = rng.choice([0.0, 0.0, 1e-4, 5e-4], 12).tolist()
        plan = list(zip(kinds, pauses, strict=True))
        threads.append(threading.Thread(target=live, args=(plan,), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"seed {seed}: a thread waits for ever"
    assert not house.wrong, f"seed {seed}: {house.wrong[0]}"
    assert house.gate.readers == 0, f"seed {seed}: the gate thinks that somebody is inside"
    return house.counts
