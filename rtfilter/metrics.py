"""The former place of `rtfilter.watch.metrics`; what was documented here still works."""

from rtfilter.watch.metrics import Metrics, serve

__all__ = ["Metrics", "serve"]
