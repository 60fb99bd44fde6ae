"""Controllers that choose how a batch is searched, from the response times of earlier batches.

Before a batch, :meth:`~Controller.plan` returns a :class:`Ticket`: the level of the index down to which the
batch shares one traversal, and the size of the groups of events in the search that follows. After the batch,
:meth:`~Controller.report` takes its times. :meth:`~Controller.on_update` counts index updates:

>>> from rtfilter import adaptive
>>> controller = adaptive.LevelController(rounds=2)
>>> seconds = {0: 3.0, 1: 2.0, 2: 1.0, 3: 2.0}  # mean response of a batch, by level
>>> for _ in range(15):
...     ticket = controller.plan(64, adaptive.Shape(height=4))
...     controller.report(ticket, adaptive.Report(seconds[ticket.plan.level], size=64))
>>> controller.plan(64, adaptive.Shape(height=4)).plan
Plan(level=2, group=1)

* :class:`FixedPlan` never changes its plan;
* :class:`CostController`, the default of a filter, estimates the cost of every plan, first by a model, and
  then from every batch;
* :class:`WangController` follows the best level by the rule of the paper (Wang et al.), and no other rule;
* :class:`LevelController` adds rules for real traffic;
* :class:`PlanController` searches for the best level and group size together.

The search of the last three assumes that costs form a valley over the levels (or over levels and groups). So
they compare only the current plan with its neighbours, in rounds, and move to a better one. Once no neighbour
is better they settle, and compare again when the index has changed, or the response. With
:class:`EarlyStop` a comparison ends as soon as its result is significant.

:func:`make_controller` makes one by its name, with options, as JSON has them.

:class:`MatcherChooser` gets reports of batches, too, and chooses the matcher of a filter.

The package uses no clock, no files and no locks, and random numbers of a seed only. A controller can write
its inputs and decisions to a log, and :func:`replay` checks a log with a new controller.

Inside: `plans`, `sizes` and `controllers` are for all controllers. `cost_controller` is the default one, with
`learner`, `beliefs`, `cost_model` and `drift`. `papers` has the controller of the paper, and the searches
that compare a plan with its neighbours. `matchers` chooses matchers, with `drift`.
"""

from typing import TYPE_CHECKING

from rtfilter.adaptive.plans import WHOLE, Controller, Entry, Plan, Report, Shape, Sink, Ticket, plans_of
from rtfilter.basics.lazy import at_first_use

if TYPE_CHECKING:
    from rtfilter.adaptive.controllers import CONTROLLERS, FixedPlan, ReplayError, make_controller, replay
    from rtfilter.adaptive.cost_controller import CostController
    from rtfilter.adaptive.matchers import MatcherChooser, replay_matchers
    from rtfilter.adaptive.papers.climbing import LevelController, PlanController
    from rtfilter.adaptive.papers.stopping import EarlyStop
    from rtfilter.adaptive.papers.wang import WangController
    from rtfilter.adaptive.sizes import GROUPS, SizeClass, exact, powers_of_two
else:
    _NAMES = {
        "controllers": "CONTROLLERS FixedPlan ReplayError make_controller replay",
        "cost_controller": "CostController",
        "matchers": "MatcherChooser replay_matchers",
        "papers.climbing": "LevelController PlanController",
        "papers.stopping": "EarlyStop",
        "papers.wang": "WangController",
        "sizes": "GROUPS SizeClass exact powers_of_two",
    }
    _PLACES = {name: place for place, names in _NAMES.items() for name in names.split()}
    # A filter that does not stream needs no controller.
    __getattr__, __dir__ = at_first_use(globals(), _PLACES)


__all__ = [
    "CONTROLLERS",
    "GROUPS",
    "WHOLE",
    "Controller",
    "CostController",
    "EarlyStop",
    "Entry",
    "FixedPlan",
    "LevelController",
    "MatcherChooser",
    "Plan",
    "PlanController",
    "ReplayError",
    "Report",
    "Shape",
    "Sink",
    "SizeClass",
    "Ticket",
    "WangController",
    "exact",
    "make_controller",
    "plans_of",
    "powers_of_two",
    "replay",
    "replay_matchers",
]
