"""A server that works for long, under consumers of all kinds, and is ended or killed now and then.

`consumers` are those that are slow, vanish, or want digests or order; `measures` reads what the process
takes; `run` has it all at work, then lets one process live and looks whether what it takes stays the same.
``python -m service.soak [SECONDS [SEED]]`` is a long form.
"""

from service.soak.run import run

__all__ = ["run"]
