"""Throughput, memory and balance of work on Spark.

`throughput` is the experiment. Each of its measurements is a `job` in a process of its own, some of them on a
local `cluster`, whose module also watches the memory of processes.
"""
