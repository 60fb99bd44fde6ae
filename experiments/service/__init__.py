"""The service under load: a server on one core, a generator on another, and peers.

`run` is the experiment. It starts servers (`servers`), fills them (`cases`) and offers load (`offer`) over
raw connections (`wires`) in steps up to saturation (`steps`). `tables` makes those of ``docs/load.md``.
"""
