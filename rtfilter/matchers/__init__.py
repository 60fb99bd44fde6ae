"""Matchers: what may stand behind an `EventFilter`, each in a file of its own.

`Matcher` is the port, `Resumable` what more the R*-tree can do; `check_matcher` tests one of your own. A
matcher receives `Filters`, with `boxes()` and `constraints()`, and events as an `EventTable`, with `points`
and `values(attribute)`. Those of papers, for comparison, are in `rtfilter.matchers.papers`.
"""

from typing import TYPE_CHECKING

from rtfilter.lazy import at_first_use
from rtfilter.matchers.filters import BoxColumns, ConstraintColumns, Filters
from rtfilter.matchers.port import Matcher, Resumable, Savable, Takes
from rtfilter.matchers.registry import MATCHERS, Factory, make_matcher

if TYPE_CHECKING:
    from rtfilter.matchers.check import check_matcher
else:
    # Programs that match events do without.
    __getattr__, __dir__ = at_first_use(globals(), {"check_matcher": "check"})

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
