"""Brokers as processes: sockets, a clock and a database around the machines of `rtfilter.overlay`."""
