"""The contest: every matcher of the registry on every workload that it takes, from few to many subscriptions.

* `cell`: one matcher on one workload of one size, in a process of its own, and how long it may take;
* `run`: all cells, kept one by one, and the command line;
* `tables`: what ``docs/contest.md`` shows of them.

Only the reference is named here: all matchers in the registry take part.
"""
