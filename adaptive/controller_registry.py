"""Every controller by its name. A new controller is a new line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from rtfilter.adaptive.plans import Controller, Sink
from rtfilter.options import Named, require, split

CONTROLLERS: Final[Mapping[str, str]] = {
    "cost": "rtfilter.adaptive.cost_controller:CostController",
    "wang": "rtfilter.adaptive.papers.wang:WangController",
    "level": "rtfilter.adaptive.papers.climbing:LevelController",
    "plan": "rtfilter.adaptive.papers.climbing:PlanController",
    "fixed": "rtfilter.adaptive.fixed:FixedPlan",
}
"""Name to module and class; the module is imported at the first use."""


def make_controller(given: Named, log: Sink | None = None) -> Controller:
    """Make a controller.

    Parameters
    ----------
    given : str or mapping
        A name in `CONTROLLERS`; or an object with it and options, such as ``{"name": "wang", "rounds": 32,
        "threshold": 1000}``, where ``rounds`` is N of the paper (Wang et al.) and ``threshold`` its
        Threshold.
    log : callable, optional
        See `Controller`.

    Raises
    ------
    ValueError
        The name or an option is unknown, or an option has a wrong value.
    """
    name, options = split("controller", given, CONTROLLERS)
    module, _, kind = CONTROLLERS[name].partition(":")
    make = getattr(import_module(module), kind)
    require(f"the controller {name!r}", make, options)
    made: Controller = make(**options, log=log)
    return made
