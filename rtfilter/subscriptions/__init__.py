"""The subscriptions of a filter: what they ask for, how they change, how they are kept."""

from rtfilter.index import ready

ready.also("rtfilter.subscriptions.checks", kernels=4)
