"""How many kernels this process has loaded. Imports no compiler: most who count never need one."""

loads = 0
"""How often a kernel was loaded or compiled: a call that meets that is no measure."""
