"""The reports of a micro-batch's tasks, as rows beside its matches: the driver observes and removes them.

A task reports the work of a partition, by which the next batch is balanced, and the events it left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.basics.dtypes import FloatArray
from rtfilter.spark.refusals import LeftOut
from rtfilter.spark.routes import Work

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Observation

    from rtfilter.spark.blocks import Batches

#: Column of reports; null in the rows of matches.
REPORT = "rtfilter report"
#: Most seconds to wait for the metrics of Spark.
OBSERVED = 1.0


@dataclass(frozen=True)
class TaskReport:
    """The report of a task: a partition of the events, their number, visits and hits, and those left out."""

    part: int
    events: int
    visits: int
    hits: int
    left_out: LeftOut

    def row(self) -> pa.RecordBatch:
        """Return the report as a row with the column `REPORT`, of JSON."""
        import pyarrow as pa

        return pa.RecordBatch.from_pydict({REPORT: [json.dumps(asdict(self))]})

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        """Return the report that a row holds."""
        found = json.loads(text)
        return cls(**{**found, "left_out": LeftOut(**found["left_out"])})


def with_reports(match: Callable[[Batches], Batches], kinds: pa.Schema) -> Callable[[Batches], Batches]:
    """Return work whose answers have a column `REPORT`: null, but in rows of reports all others are.

    The reports of a task come after its answers. `kinds` is the schema of answers, for a task that has none.
    """

    def run(batches: Batches) -> Batches:
        import pyarrow as pa

        form = kinds
        for answer in match(batches):
            if answer.schema.names == [REPORT]:
                nothing = [pa.nulls(len(answer), kind) for kind in form.types]
                yield pa.RecordBatch.from_arrays([*nothing, answer.column(0)], [*form.names, REPORT])
            else:
                form = answer.schema
                yield answer.append_column(REPORT, pa.nulls(len(answer), pa.string()))

    return run


@dataclass(frozen=True)
class BatchReport:
    """The reports of all tasks of a micro-batch, by the partition of its events.

    Attributes
    ----------
    tasks : dict of int to TaskReport
    matches : int
        Number of matches.
    seconds, slowest : float
        The sum and the greatest of their offsets.
    """

    tasks: dict[int, TaskReport]
    matches: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def work(self, events: FloatArray) -> Work | None:
        """Return the expected work of a batch whose p partitions have `events` events, float64 (p,).

        The events of a partition are taken to be like its earlier ones, or like all events if it had none.
        Returns None if there are no reports.
        """
        told = {
            part: (task.events, task.visits, task.hits) for part, task in self.tasks.items() if task.events
        }
        if not told:
            return None
        before = np.tile(np.sum(list(told.values()), axis=0, dtype=float), (len(events), 1))
        for part, found in told.items():
            if part < len(events):
                before[part] = found
        return Work.like(before, events)

    def left_out(self) -> LeftOut:
        """Return the events that all tasks have left out."""
        found = LeftOut()
        for _, task in sorted(self.tasks.items()):
            found.add(task.left_out)
        return found


def observed(result: DataFrame, offset: str) -> tuple[DataFrame, Callable[[], BatchReport]]:
    """Return the matches of a result with reports, and a function that returns the reports.

    Call that function once the matches have been used. If Spark has observed nothing, as it does not if
    they are used as an RDD, for example, the result is computed again for its reports. `offset` names the
    column of offsets.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    metrics: list[Column] = [
        sf.count(sf.when(sf.col(REPORT).isNull(), 1)).alias("matches"),
        sf.sum(offset).alias("seconds"),
        sf.max(offset).alias("slowest"),
        sf.concat_ws("\n", sf.collect_list(REPORT)).alias("reports"),
    ]
    observation = Observation()
    matches = result.observe(observation, *metrics).where(sf.col(REPORT).isNull()).drop(REPORT)

    def report() -> BatchReport:
        found = _metrics(observation) or result.agg(*metrics).collect()[0].asDict()
        tasks = [TaskReport.from_json(line) for line in found["reports"].splitlines()]
        return BatchReport(
            {task.part: task for task in tasks},
            found["matches"],
            found["seconds"] or 0.0,
            found["slowest"] or 0.0,
        )

    return matches, report


def _metrics(observation: Observation) -> dict[str, Any]:
    """Return the metrics that Spark has observed; none if they do not come, for which `get` would wait."""
    java: Any = getattr(observation, "_jo", None)
    if java is not None:  # classic Spark: they come a little later
        limit = perf_counter() + OBSERVED
        while not java.future().isCompleted():
            if perf_counter() > limit:
                return {}
            time.sleep(0.005)
    return observation.get
