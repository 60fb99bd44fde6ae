"""A server under attack goes on for others: the slowest answer of a second client, and the memory."""

from collections import Counter
from typing import Any

from proofs.attacks import strangers, users
from proofs.attacks.measuring import KEPT, PART, measured
from rtfilter.replay.machine import describe

ATTACKS = [*strangers.ATTACKS, *users.ATTACKS]
SHORT = {**strangers.ATTACKS, **users.ATTACKS}
SLOWEST = 0.5
"""Seconds that an answer to a second client takes at most."""
MEMORY = 600
"""MB above those of the server at rest, at most."""
_rows: list[dict[str, Any]] = []


def run(seed: int) -> Counter[str]:
    """Attack a new server in one way."""
    attack = ATTACKS[seed]
    found = measured(attack)
    name = attack.__name__.replace("_", " ")
    _rows.append({"attack": name, **found, "revision": describe()["revision"]})
    slowest, most, left, _ = found.values()
    assert slowest < SLOWEST, f"{name}: a second client waits for {slowest} s"
    assert most < MEMORY, f"{name}: {most} MB"
    assert left < KEPT + PART * most + 1, f"{name}: {left} MB stay"  # both are rounded
    return Counter(attacks=1)


def rows() -> list[dict[str, Any]]:
    """What was measured of each attack."""
    return _rows
