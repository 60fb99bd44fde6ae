"""What the tasks of Spark do, in this process, without a machine of Java."""

import time

import pyarrow as pa
import pyarrow.compute as pc

from rtfilter.spark import data_frames
from rtfilter.spark.blocks import Layout
from rtfilter.spark.leases import lease_of
from rtfilter.spark.refusals import TaskEventReader
from rtfilter.spark.routes import Route

RESULT = "id", data_frames.SUBSCRIPTION, data_frames.WORKLOAD, data_frames.OFFSET


def matched_here(path, slices, partitions):
    """Deal out tables of events and match them, by what tasks run.

    Returns a table of each partition, with `workload` and `offset`.
    """
    route, columns = Route.whole(lease_of(str(path))), slices[0].column_names
    names = [name for name in columns if name != "id"]
    reader = TaskEventReader(route.schema, names, "id")
    deal = data_frames._dealer(route, Layout(columns, [[name] for name in columns]), reader, partitions)
    dealt = pa.Table.from_batches([out for own in slices for out in deal(iter(own.to_batches()))])
    match = data_frames._matcher(route, reader, True, time.time())
    found = []
    for part in range(partitions):
        own = dealt.filter(pc.equal(dealt[data_frames.PART], part))
        own = own.sort_by(
            [(data_frames.SHARD, "ascending"), (data_frames.CLASS, "ascending")]
        ).combine_chunks()
        answers = list(match(iter(own.to_batches())))
        found.append(pa.Table.from_batches(answers) if answers else pa.table({name: [] for name in RESULT}))
    return found
