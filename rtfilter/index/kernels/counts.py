"""Counts of the kernels that this process loaded and compiled. Imports no compiler: few readers need one."""

from collections.abc import Callable

loads = 0
"""Number of kernels loaded or compiled so far: a call during which this grows is no measure."""
compiled = 0
"""Number of kernels that this process compiled because no cache had them."""
watchers: list[Callable[[], None]] = []
"""Functions that the loading thread calls after each kernel that it has loaded or compiled."""
