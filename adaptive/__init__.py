"""Controllers that tune how a batch is searched, from the response times of earlier batches.

A controller answers :meth:`~Controller.plan` with a :class:`Ticket` (the level down to which a batch
shares one traversal, and the size of the groups that follow), is told the mean response time by
:meth:`~Controller.report`, and hears of index updates by :meth:`~Controller.on_update`:

>>> import adaptive
>>> controller = adaptive.LevelController(rounds=2)
>>> seconds = {0: 3.0, 1: 2.0, 2: 1.0, 3: 2.0}  # what a batch takes by level
>>> for _ in range(15):
...     ticket = controller.plan(size=64, height=4)
...     controller.report(ticket, seconds[ticket.plan.level])
>>> controller.plan(size=64, height=4).plan
Plan(level=2, group=1)

* :class:`FixedPlan` never changes;
* :class:`LevelController` is the paper's search for the level (W-5);
* :class:`PlanController` searches level and group size together.

Read as a bandit: the arms lie on a line or a lattice and their costs form a valley, so only the current
arm and its neighbours are compared, round robin, and the search moves downhill. It is *not* an anytime
regret minimiser: it probes, settles, and doubts itself only when the index has changed (`threshold`
updates). :class:`EarlyStop` ends a comparison once it is significant.

The package is pure: no clock, no I/O, no randomness, no locks. All that goes in and all that is decided
can be written to a log, and :func:`replay` checks a log against a fresh controller.
"""

from rtfilter.adaptive.controllers import GROUPS, FixedPlan, LevelController, PlanController
from rtfilter.adaptive.plans import Controller, Entry, Plan, Sink, Ticket
from rtfilter.adaptive.replay import ReplayError, replay
from rtfilter.adaptive.sizes import SizeClass, exact, powers_of_two
from rtfilter.adaptive.stopping import EarlyStop

__all__ = [
    "GROUPS",
    "Controller",
    "EarlyStop",
    "Entry",
    "FixedPlan",
    "LevelController",
    "Plan",
    "PlanController",
    "ReplayError",
    "Sink",
    "SizeClass",
    "Ticket",
    "exact",
    "powers_of_two",
    "replay",
]
