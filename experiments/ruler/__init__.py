"""JSON events against event patterns: rtfilter beside event-ruler (Java) and quamina (Go).

`worlds` draws events and rules. `peers` builds and drives the two programs from their checkouts. `run` lets
all take turns. Nothing of theirs is part of this repository.
"""
