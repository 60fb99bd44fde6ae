"""Brokers in a network: each is a pure state machine; messages and ticks go in, and messages come out.

Sites are *clusters* of brokers that reach each other by multicast; one broker of each, the *designated* one,
is linked to those of other clusters, in a tree. `broker_names` and `place` define the values that the
machines share; `router` routes subscriptions and events, and `membership` makes the links.
"""

from importlib.util import find_spec

from rtfilter.basics.extras import needed

with needed("overlay", "brokers in a network"):
    if find_spec("sqlalchemy") is None:  # a slow import, which simulations do not need
        raise ModuleNotFoundError(name="sqlalchemy")
