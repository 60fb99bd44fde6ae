"""Subscriptions of a filter: ids, predicates, metadata and expiry, their changes, and their storage."""

from rtfilter.index import ready

ready.also("rtfilter.index.kernels.text_codes", kernels=1)
ready.also("rtfilter.subscriptions.checks", kernels=5)
ready.also("rtfilter.matchers.lookup", kernels=9)
