"""Counts of the kernels that this process loaded and compiled. Imports no compiler."""

from collections.abc import Callable

loads = 0
"""Number of kernels loaded or compiled so far. Times of calls that increase it are not measurements."""
compiled = 0
"""Number of kernels that this process compiled because no cache had them."""
watchers: list[Callable[[], None]] = []
"""Functions that the loading thread calls after each kernel that it has loaded or compiled."""
