"""Speed of searches, updates and loading, compared with the peers.

`bench` compares all of it on each workload, `survey` the time per event over many sizes and shapes. `compare`
compares two kept results. `overheads` measures starting a process and metrics, `capacity` leaf capacities.
"""
