"""A server that is killed, and a checker that knows every event, subscription and acknowledgement.

`started` is the server, which can be told to kill itself at a point or to have a fault; `process` starts it
and asks it; `knowledge` holds what is delivered against what was told; `workers` publish and subscribe, all
at the same time; `run` kills and starts again. ``python -m service.kills 200`` is a long form.
"""

from service.kills.knowledge import FaultError
from service.kills.run import run

__all__ = ["FaultError", "run"]
