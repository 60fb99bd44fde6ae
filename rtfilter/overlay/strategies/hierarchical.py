"""Hierarchical routing: hybrid routing without multicast."""

from __future__ import annotations

from typing import ClassVar

from rtfilter.overlay.strategies.hybrid import Hybrid


class Hierarchical(Hybrid):
    """The baseline of Xue and Feng 2005: a designated broker sends to each interested member separately."""

    name: ClassVar[str] = "hierarchical"
    multicast: ClassVar[bool] = False
