"""About how long the experiments take, so that a long run can say what is ahead.

The seconds were computed from smaller runs on two cores of a cloud machine. Another machine may take half or
twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.errors import ResultError
from experiments.output import content
from experiments.paper.settings import Profile

FULL: dict[str, dict[str, float]] = {
    "times": {"paper": 1900, "modern": 150, "flights": 250, "flights-modern": 150, "weather": 400,
              "weather-modern": 200},
    "fig4a": {"paper": 330, "transform": 260, "modern": 90, "flights": 90, "flights-modern": 90,
              "weather": 40, "weather-modern": 30},
    "fig4b": {"paper": 1600, "transform": 50, "modern": 100, "flights": 250, "flights-modern": 120,
              "weather": 300, "weather-modern": 150},
    "fig4c": {"paper": 370, "transform": 50, "modern": 40, "flights": 90, "flights-modern": 60,
              "weather": 120, "weather-modern": 60},
    "fig4d": {"paper": 2500, "transform": 180, "modern": 160, "flights": 180, "flights-modern": 120,
              "weather": 200, "weather-modern": 100},
    "counting": {"paper": 1100},
    "generators": {"paper": 1200},
    "thesis": {"less-than": 1700},
    "day": {"own": 1000},
    "alerting": {"own": 310},
    "forwarding": {"own": 240},
    "hybrid": {"own": 640},
    "survey": {"own": 580},
    "newer": {"own": 330},
}  # fmt: skip
"""Seconds of the profile ``full``, by experiment and setting."""
SHARE = {"full": 1.0, "medium": 0.1, "ci": 0.01}
"""Part of these seconds that each profile takes."""
LEAST = 3.0
"""Seconds that any part takes."""
OTHER = 120.0
"""Seconds of an experiment that is not known here."""


class Part:
    """An experiment on a setting, as a part of a long run."""

    def __init__(self, name: str, setting: str, profile: Profile, folder: Path, revision: object) -> None:
        self.name, self.setting = name, setting
        self._revision = revision
        self.path = folder / f"{name}-{setting}.json"
        known = FULL.get(name, {}).get(setting, OTHER)
        self.seconds = max(known * SHARE.get(profile.name, 1.0), LEAST)
        """About how long all of it takes."""

    @property
    def left(self) -> float:
        """About how long the rest of it takes."""
        if not self.path.exists():
            return self.seconds
        try:
            kept = content(self.path)
        except ResultError:  # the experiment itself says what is wrong
            return self.seconds
        same = kept["machine"].get("revision") == self._revision  # otherwise it starts again
        return self.seconds * float(kept.get("left", 1.0)) if same else self.seconds


def summary(parts: Sequence[Part]) -> str:
    """Return a summary of the work ahead in a long run, in a single line."""
    total, left = (sum(seconds) for seconds in zip(*((p.seconds, p.left) for p in parts), strict=True))
    return (
        f"{len(parts)} parts, about {span(total)} in all, {span(left)} left. "
        "Ctrl-C keeps what is done; the same command goes on."
    )


def span(seconds: float) -> str:
    """Return a time as text, in hours and minutes."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute" if seconds > 0 else "nothing"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
