"""Throughput, memory and balance of work on Spark.

`throughput` is the experiment. Each of its measurements is a `job` in a process of its own, some of them on a
local `cluster`, and `memory` watches the processes.
"""
