"""Behaviour under mixed load and on large indexes.

`mixed` matches batches while other threads change subscriptions. `scale` compares two threads with one, and
loads millions of boxes. `others` measures the load of other processes.
"""
