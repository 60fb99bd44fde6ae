"""Five minutes of sites that are killed and held, while all publish and subscribe."""

import tempfile
from collections import Counter
from pathlib import Path

from service.sites.network import run as kill

SECONDS = 60.0
"""Of a case."""
CASES = (
    ("hybrid", {f"s{k}": f"s{k}" for k in range(5)}),
    ("profile_forwarding", {f"s{k}": f"s{k}" for k in range(5)}),
    ("event_forwarding", {f"s{k}": f"s{k}" for k in range(5)}),
    ("hybrid", {"s0": "a", "s1": "a", "s2": "b", "s3": "b", "s4": "c"}),
    ("rendezvous", {"s0": "a", "s1": "a", "s2": "b", "s3": "b", "s4": "c"}),
)
"""Strategies, and the clusters of sites."""


def run(seed: int) -> Counter[str]:
    """Kill for a minute."""
    strategy, clusters = CASES[seed]
    with tempfile.TemporaryDirectory() as folder:
        return kill(Path(folder), SECONDS, seed, clusters, strategy)
