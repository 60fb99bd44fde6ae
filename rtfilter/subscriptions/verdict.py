"""Verdicts of an exact check of a candidate. This module imports no compiler."""

from typing import Final

NO: Final = 0
"""The event does not satisfy the predicate."""
YES: Final = 1
"""The event satisfies the predicate."""
ASK: Final = 2
"""The predicate itself has to decide."""
UNKNOWN: Final = 3
"""The predicate is not compiled yet."""
