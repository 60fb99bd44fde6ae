"""What goes wrong around a server: disk, database, clock, connections.

`started` is the server with such faults; each other module has one, which it brings about under the workers
and the checker of `service.kills`, or beside a list of what is to be delivered.
"""
