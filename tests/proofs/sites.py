"""Ten minutes of sites that are killed and held, and whose links are cut, while all publish and subscribe."""

import tempfile
from collections import Counter
from pathlib import Path

from rtfilter.overlay.strategies import STRATEGIES
from service.sites.network import run as strike

SECONDS = 60.0
"""Of a case."""
ALONE = {f"s{k}": f"s{k}" for k in range(5)}
TOGETHER = {"s0": "a", "s1": "a", "s2": "b", "s3": "b", "s4": "c"}
CASES = [(strategy, clusters) for clusters in (ALONE, TOGETHER) for strategy in STRATEGIES]
"""Strategies at first, and the clusters of sites."""


def run(seed: int) -> Counter[str]:
    """Strike for a minute."""
    strategy, clusters = CASES[seed]
    with tempfile.TemporaryDirectory() as folder:
        return strike(Path(folder), SECONDS, seed, clusters, strategy)
