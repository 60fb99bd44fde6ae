"""Steps of load, and what is kept of each."""

from __future__ import annotations

import numpy as np

from experiments.service.offer import Offered
from rtfilter.dtypes import FloatArray
from rtfilter.replay.output import Row


def percentiles(seconds: FloatArray, until: float) -> Row:
    """p50, p99 and p99.9 in ms; what did not come counts as long as it was waited for.

    A percentile is left out (None) where fewer than ten values lie beyond it.
    """
    waited = np.where(np.isnan(seconds), until, seconds) * 1e3
    found: Row = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        enough = len(waited) * (1 - share) >= 9.99 or share == 0.5
        found[name] = float(np.quantile(waited, share)) if enough and len(waited) else None
    return found


def responses(found: Offered) -> FloatArray:
    """Seconds from when each request was due to its answer; what was waited for where none came."""
    return np.where(np.isnan(found.done), found.lasted, found.done) - found.due
