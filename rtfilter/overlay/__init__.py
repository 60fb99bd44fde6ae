"""Brokers in a network: each is a pure state machine; messages and ticks go in, and messages come out.

Sites are *clusters* of brokers that reach each other by multicast; one broker of each, the *designated* one,
is linked to those of other clusters, in a tree. `broker_names` defines the values that the machines share;
`router` routes subscriptions, and `membership` makes the links. Servers send events along the routes.
"""
