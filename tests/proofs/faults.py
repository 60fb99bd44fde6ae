"""A server with a full disk, without its database, with a wrong clock, dead connections, hanging webhooks."""

import tempfile
from collections import Counter
from pathlib import Path

import postgresql
from service.faults import clock, connections, database, disk, webhooks


def run(seed: int) -> Counter[str]:
    """One of these faults, by turns; and of each one kind or the other."""
    fault, seed = (disk, clock, connections, database, webhooks)[seed % 5], seed // 5
    with tempfile.TemporaryDirectory() as folder:
        if fault is not database:
            return fault.run(Path(folder), seed)
        if not postgresql.HERE:
            return Counter()
        with postgresql.running() as there:
            return database.run(Path(folder), seed, there)
