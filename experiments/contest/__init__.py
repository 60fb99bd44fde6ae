"""The contest: every matcher of the registry on every workload that it takes, from few to many subscriptions.

* `plan`: what is measured, and how long it may take;
* `cell`: one matcher on one workload of one size, in a process of its own;
* `run`: all cells, kept one by one, and the command line;
* `tables`, `picture`: what ``docs/contest.md`` shows of them.

Only the reference is named here: all matchers in the registry take part.
"""
