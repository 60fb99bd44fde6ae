"""Matchers: the indexes that an `EventFilter` can use, each in a file of its own.

`Matcher` is the port, `Resumable` has the additional methods of the R*-tree; `check_matcher` tests a matcher
of your own. A matcher receives `Filters`, with `boxes()` and `predicates()`, and events as an `EventTable`,
with `points` and `values(attribute)`. Matchers of papers, for comparison, are in `rtfilter.matchers.papers`.
"""

from typing import TYPE_CHECKING

from rtfilter.basics.lazy import at_first_use
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Matcher, Resumable, Savable, Takes
from rtfilter.matchers.registry import MATCHERS, Factory, make_matcher

if TYPE_CHECKING:
    from rtfilter.matchers.check import check_matcher
else:
    # Programs that match events do not need the check.
    __getattr__, __dir__ = at_first_use(globals(), {"check_matcher": "check"})

__all__ = [
    "MATCHERS",
    "BoxColumns",
    "Factory",
    "Filters",
    "Matcher",
    "Resumable",
    "Savable",
    "Takes",
    "check_matcher",
    "make_matcher",
]
