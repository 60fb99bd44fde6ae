"""Ten minutes of the stage on NATS, while servers and workers are killed."""

from collections import Counter

import nats_kills

SECONDS = 600.0


def run(seed: int) -> Counter[str]:
    """Kill for ten minutes."""
    return nats_kills.run(SECONDS, seed)
