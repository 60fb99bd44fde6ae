"""Mean response of bursts by plan.

`bursts` compares fixed plans with the adaptive one. `estimates` measures how good the order by the estimated
workload is. `listener` runs a burst and records the reports to its controller.
"""
