"""Networks of brokers in simulated time: the same machines, with neither sockets nor a clock.

`topology` draws networks, `clients` says at which brokers clients are, `network` lets the machines of one
speak, and `faults` makes schedules of what fails. All is drawn from seeds: a run can be replayed.
"""

from rtfilter.extras import needed

with needed("simulation", "the simulation of brokers"):
    import networkx as networkx
    import simpy as simpy
