"""Networks of brokers in simulated time: the same machines, without sockets or a clock.

`topology` draws networks and assigns clients to brokers, `network` passes the messages of machines, and
makes schedules of failures. `event_router` adds the routing of events to the routers of servers. All random
numbers come from seeds: a run can be replayed.
"""
