"""The service under load: a server on one core, an open-loop generator on another, and peers by the same rules.

`run` is the experiment. It starts servers (`servers`), fills them (`cases`) and offers load (`offer`) over raw
connections (`wires`) in steps up to saturation. `page` writes the tables of ``docs/load.md`` from kept numbers.
"""
