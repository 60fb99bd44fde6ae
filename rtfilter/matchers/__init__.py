"""Matchers: what may stand behind an `EventFilter`, each in a file of its own.

`Matcher` is the port, `Resumable` what more the R*-tree can do; `check_matcher` tests one of your own. A
matcher receives `Filters`, with `boxes()` and `constraints()`, and events as an `EventTable`, with `points`
and `values(attribute)`.
"""

from rtfilter.matchers.check import check_matcher
from rtfilter.matchers.filters import BoxColumns, ConstraintColumns, Filters
from rtfilter.matchers.port import Matcher, Resumable, Savable, Takes
from rtfilter.matchers.registry import MATCHERS, Factory, make_matcher

__all__ = [
    "MATCHERS",
    "BoxColumns",
    "ConstraintColumns",
    "Factory",
    "Filters",
    "Matcher",
    "Resumable",
    "Savable",
    "Takes",
    "check_matcher",
    "make_matcher",
]
