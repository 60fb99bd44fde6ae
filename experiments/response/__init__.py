"""Mean response of bursts by plan.

`bursts` compares fixed plans with the adaptive one. `estimates` measures how good the order by the estimated
workload is, and records the reports to a controller.
"""
