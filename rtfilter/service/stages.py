"""The stages of entries of the log, and what else the parts behind the doors share."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.service.access import Access
from rtfilter.service.clock import Clock
from rtfilter.service.deliver import Deliver
from rtfilter.service.log_matcher import Index, LogMatcher
from rtfilter.service.measures import Measures
from rtfilter.service.owners import Owners
from rtfilter.service.rounds import Rounds
from rtfilter.service.threads import Asides
from rtfilter.service.writing import Store
from rtfilter.store.log import Log


class Stages(NamedTuple):
    """The stages, from the log to deliveries."""

    log: Log
    store: Store
    owners: Owners
    indexes: dict[str, Index]
    """By the names of filters; `Hosted` changes it."""
    match: LogMatcher
    deliver: Deliver
    users: Access
    asides: Asides
    clock: Clock
    measures: Measures
    rounds: Rounds
    message: int
    """Most bytes of a message of a session, and, about, of a page of an answer."""
