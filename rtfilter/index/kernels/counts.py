"""Counts of the kernels that this process loaded and compiled. Imports no compiler: few readers need one."""

from collections.abc import Callable

loads = 0
"""How often a kernel was loaded or compiled: a call during which this grows is no measure."""
compiled = 0
"""How many kernels this process compiled because no cache had them."""
watchers: list[Callable[[], None]] = []
"""Functions that the loading thread calls after each kernel that it has loaded or compiled."""
