"""Verdicts of an exact check of a hit. Imports no compiler, as `rtfilter.subscriptions.checks` does."""

from typing import Final

NO: Final = 0
"""The event does not satisfy the predicate."""
YES: Final = 1
"""The event satisfies the predicate."""
ASK: Final = 2
"""The predicate has to decide."""
UNKNOWN: Final = 3
"""Nothing is written down of the predicate yet."""
