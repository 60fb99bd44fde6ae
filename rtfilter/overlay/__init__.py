"""Brokers in a network: each is a pure state machine, with messages and ticks in, and messages out.

Sites are *clusters* of brokers that reach each other by multicast; one broker of each, the *designated* one,
is linked to those of other clusters, in a tree. `names` and `place` say what the machines know of each other;
`router` decides where subscriptions and events go, `membership` who is linked to whom.
"""

from importlib.util import find_spec

from rtfilter.extras import needed

with needed("overlay", "brokers in a network"):
    if find_spec("sqlalchemy") is None:  # to import it takes long, and simulations have no use for it
        raise ModuleNotFoundError(name="sqlalchemy")
