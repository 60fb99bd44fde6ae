"""A workload of subscriptions and events that were read from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import Workload

if TYPE_CHECKING:
    from rtfilter.predicates.predicate import Source


@dataclass(frozen=True)
class FileWorkload(Workload):
    """Given subscriptions and events in their order. After the last, both start again with the first."""

    given: Sequence[Source]
    rows: Sequence[Mapping[str, object]]

    @property
    def period(self) -> int:
        """Number of given events."""
        return len(self.rows)

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return subscriptions `start` to `start + count`."""
        return [self.given[i % len(self.given)] for i in range(start, start + count)]

    def events(self, start: int, count: int) -> list[Mapping[str, object]]:
        """Return events `start` to `start + count`, as dicts."""
        return [self.rows[i % len(self.rows)] for i in range(start, start + count)]


def file_workload(
    name: str, schema: Schema, subscriptions: Sequence[Source], rows: Sequence[Mapping[str, object]]
) -> FileWorkload:
    """Make a workload of subscriptions and events that were read.

    Parameters
    ----------
    name : str
        Its name in reports.
    schema : Schema
        The attributes of the events.
    subscriptions : sequence of predicates
        Not empty; in any form that `EventFilter.subscribe` takes.
    rows : sequence of mappings
        Not empty; one event each.
    """
    return FileWorkload(name, schema, 0, subscriptions, rows)
