"""A replay from Python: bursts of events, two policies, a table and a picture.

``python examples/replay_with_plot.py replay.png`` replays events with twelve attributes;
``python examples/replay_with_plot.py replay.png subscriptions.jsonl events.jsonl`` replays files.
"""

import json
import sys
from pathlib import Path

from rtfilter import EventFilter, infer_schema, read_events
from rtfilter.adaptive import CostController, FixedPlan
from rtfilter.replay import Contender, ReplaySettings, draw, replay
from rtfilter.replay.workloads import file_workload, workload


def from_files(subscriptions, events):
    schema = infer_schema(events)
    rows = [json.loads(line) for line in Path(subscriptions).read_text("utf-8").splitlines()]
    return file_workload(
        subscriptions, schema, [row["where"] for row in rows], list(read_events(events, schema))
    )


def main(picture, *files):
    source = from_files(*files) if files else workload("narrow", seed=1)
    count, changes = (len(source.given), 0) if files else (10_000, 20)
    settings = ReplaySettings(count, bursts=60, sizes=(16, 128, 512), insert=changes, delete=changes)
    contenders = [
        Contender("one by one, in order of arrival", "fifo", FixedPlan(0, 1)),
        Contender("adaptive", "shortest", CostController()),
    ]
    report = replay(source, settings, contenders, EventFilter(source.schema, matcher="rtree"))
    print(report.text())
    draw([report], picture)
    print(f"picture in {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "replay.png"), *sys.argv[2:])
