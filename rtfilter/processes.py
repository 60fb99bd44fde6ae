"""The former place of `rtfilter.watch.processes`; what was documented here still works."""

from rtfilter.watch.processes import Together, share

__all__ = ["Together", "share"]
