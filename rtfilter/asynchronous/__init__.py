"""Matching for coroutines; see `rtfilter.asynchronous.filter`."""
