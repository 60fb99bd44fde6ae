"""Ten minutes of a server at work."""

import tempfile
from collections import Counter
from pathlib import Path

from service.soak import run as soak

HALF = 300.0
"""Seconds of restarts, and then of one life."""


def run(seed: int) -> Counter[str]:
    """Ten minutes."""
    with tempfile.TemporaryDirectory() as folder:
        return soak(Path(folder), seed, HALF, HALF)
