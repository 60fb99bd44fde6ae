"""Matching for coroutines; see `rtfilter.asynchronous.async_filter`."""
