"""Vehicles enter and leave zones: an alert opens with the one and closes with the other.

The program starts again in between, and goes on where it was: nothing is entered twice.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from rtfilter import EventFilter, Schema, Tracker

NAMES = {1: "the depot", 2: "the inner city", 3: "a 30 km/h zone, too fast"}
REPORTS = [
    ("van 7", 2.0, 3.0, 12),
    ("van 8", 40.0, 41.0, 48),
    ("van 7", 2.5, 3.5, 20),
    ("van 7", 3.0, 4.0, 25),
    ("van 8", 22.0, 24.0, 47),
    ("van 7", 9.0, 8.0, 50),
    ("van 8", 22.5, 24.5, 28),
    ("van 7", 21.0, 20.0, 44),
]

zones = EventFilter(Schema({"x": float, "y": float, "speed": float}))
zones.subscribe("x BETWEEN 0 AND 5 AND y BETWEEN 0 AND 5", id=1)
zones.subscribe("x BETWEEN 15 AND 30 AND y BETWEEN 15 AND 30", id=2)
zones.subscribe("x BETWEEN 20 AND 25 AND y BETWEEN 20 AND 25 AND speed > 30", id=3)
alerts = {}  # by vehicle and zone: reports since it opened


def take(tracker, reports):
    batch = [dict(zip(("vehicle", "x", "y", "speed"), report, strict=True)) for report in reports]
    for event, (entered, inside, left) in zip(batch, tracker.match_batch(batch), strict=True):
        vehicle = event["vehicle"]
        for zone in entered.tolist():
            alerts[vehicle, zone] = 1
            print(f"{vehicle} is in {NAMES[zone]}")
        for zone in inside.tolist():
            alerts[vehicle, zone] += 1
        for zone in left.tolist():
            print(f"{vehicle} has left {NAMES[zone]} after {alerts.pop((vehicle, zone))} reports")


with TemporaryDirectory() as folder:
    tracker = Tracker(zones, "vehicle", max_keys=10_000)
    take(tracker, REPORTS[:4])
    tracker.save(Path(folder) / "vehicles")
    take(Tracker.load(Path(folder) / "vehicles", zones), REPORTS[4:])
print(f"{len(alerts)} alerts are open: {sorted(alerts)}")
