"""Strategies of routing: one file each, and their names here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtfilter.overlay.strategies.event_forwarding import EventForwarding
from rtfilter.overlay.strategies.hierarchical import Hierarchical
from rtfilter.overlay.strategies.hybrid import Hybrid
from rtfilter.overlay.strategies.profile_forwarding import ProfileForwarding
from rtfilter.overlay.strategies.rendezvous import Rendezvous
from rtfilter.overlay.strategies.strategy import Strategy

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    strategy.name: strategy
    for strategy in (ProfileForwarding, EventForwarding, Rendezvous, Hybrid, Hierarchical)
}
"""Each strategy by its name."""


def strategy_of(given: str | Strategy, assigned: Mapping[str, str] | None = None) -> Strategy:
    """Return the strategy of a name, or the given object itself. Raises `ValueError` for an unknown name.

    `assigned` are the rendezvous clusters for `Rendezvous`.
    """
    if isinstance(given, Strategy):
        return given
    if given == Rendezvous.name:
        return Rendezvous(assigned)
    try:
        return STRATEGIES[given]()
    except KeyError:
        known = ", ".join(STRATEGIES)
        raise ValueError(f"unknown strategy {given!r:.60}; choose one of {known}") from None
