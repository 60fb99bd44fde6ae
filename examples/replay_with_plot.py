"""A replay from Python: bursts of events with twelve attributes, two policies, a table and a picture.

``python examples/replay_with_plot.py replay.png``
"""

import sys
from pathlib import Path

from rtfilter import EventFilter
from rtfilter.adaptive import CostController, FixedPlan
from rtfilter.replay import Contender, Settings, draw, replay
from rtfilter.replay.workloads.registry import workload


def main(picture):
    narrow = workload("narrow", seed=1)
    settings = Settings(subscriptions=10_000, bursts=60, sizes=(16, 128, 512), insert=20, delete=20)
    contenders = [
        Contender("one by one, in order of arrival", "fifo", FixedPlan(0, 1)),
        Contender("adaptive", "shortest", CostController()),
    ]
    report = replay(narrow, settings, contenders, EventFilter(narrow.schema, matcher="rtree"))
    print(report.text())
    draw([report], picture)
    print(f"picture in {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "replay.png"))
