"""Mean response of bursts by plan.

`bursts` compares fixed plans with the adaptive one. `estimates` tells how good the order by the estimated
workload is. `listener` runs a burst and keeps what its controller was told.
"""
