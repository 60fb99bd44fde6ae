"""The process that Spark forks its workers from: it has imported and loaded what tasks need.

Spark makes a new worker after each task that fails, and each would load the kernels again.
"""

import gc
import os

from pyspark.daemon import manager

from rtfilter.filter import inside


def load():
    """Load the kernels that tasks use, of filters with and without strings."""
    import numpy as np
    import pandas  # noqa: F401

    from rtfilter import EventFilter, Schema
    from rtfilter.spark import match_frame, tracking  # noqa: F401

    for kind, values in ((float, np.arange(2.0)[:, None]), (str, [{"x": "a"}])):
        filter = EventFilter(Schema({"x": kind}), matcher={"name": "rtree", "capacity": (4, 4)})
        filter.subscribe_many(["x IS NOT NULL", "x > 'a'" if kind is str else "x > 1"])
        filter.repack()
        inside(filter).matcher.workload(filter.schema.read(values))
        filter.match_batch(values)
        filter.unsubscribe(0)


if __name__ == "__main__":
    if "SPARK_SIMPLIFIED_TRACEBACK" in os.environ:  # of data frames; what RDDs run here needs no filter
        load()
        gc.collect()
        gc.freeze()
    manager()
