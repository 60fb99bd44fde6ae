"""The plan of the measurement: sizes, series and steps."""

from __future__ import annotations

from typing import Final, NamedTuple

P99: Final = 20.0
"""Most milliseconds of p99 at half of a target."""


class Target(NamedTuple):
    """A target.

    Attributes
    ----------
    name : str
    doors : tuple of str
    rate : int
        Events a second.
    """

    name: str
    doors: tuple[str, ...]
    rate: int


TARGETS: Final = (
    Target("match, JSON lines", ("match, JSON lines",), 100_000),
    Target("match, Arrow", ("match, Arrow",), 500_000),
    Target("publish, one match an event", ("publish, HTTP", "publish, TCP", "publish, WebSocket"), 20_000),
)


def target_of(door: str) -> Target | None:
    """Return the target of a door, if it has one."""
    return next((one for one in TARGETS if door in one.doors), None)


class Size(NamedTuple):
    """The size of a measurement.

    Attributes
    ----------
    subscriptions : int
    events : int
        Different events; they come again and again.
    seconds : float
        Of a step.
    connections : int
    shares : tuple of float
        Steps, as shares of the capacity that a closed loop finds.
    few : tuple of float
        The same, where something else is varied.
    lines, arrow : tuple of int
        Frames of `match`, in events.
    users, matches : tuple of int
        Numbers of subscribers, and of matches an event.
    """

    subscriptions: int = 100_000
    events: int = 20_000
    seconds: float = 3.0
    connections: int = 16
    shares: tuple[float, ...] = (0.1, 0.3, 0.5, 0.75, 0.9, 1.1)
    few: tuple[float, ...] = (0.5, 0.8, 1.0)
    lines: tuple[int, ...] = (1, 100, 1000)
    arrow: tuple[int, ...] = (100, 1000, 10_000)
    users: tuple[int, ...] = (1, 10, 100, 1000)
    matches: tuple[int, ...] = (1, 10, 100)


FULL: Final = Size()
QUICK: Final = Size(
    subscriptions=10_000,
    events=10_000,
    seconds=0.7,
    shares=(0.5, 0.9),
    few=(0.5,),
    lines=(1, 100),
    arrow=(1000,),
    users=(10,),
    matches=(10,),
)
USERS: Final = 100
"""Subscribers, where their number is not varied."""
FRAME: Final = 100
"""Events of a frame, where its size is not varied."""
