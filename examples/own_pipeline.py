"""The match step in a pipeline of one's own: stages are generators, each takes what the one before gives.

authenticate -> parse -> store -> determine recipients -> send
"""

import json
import time

from rtfilter import EventFilter, Schema
from rtfilter.stage import RecipientStage

SENSORS = {"s1": "secret-1", "s2": "secret-2"}
connected = {"ann", "bob"}
alerts = RecipientStage(EventFilter(Schema({"level": float, "sensor": str})), connected.__contains__)
stored = []


def authenticated(messages):
    for sensor, password, body in messages:
        if SENSORS.get(sensor) == password:
            yield sensor, body


def parsed(messages):
    for sensor, body in messages:
        yield json.loads(body) | {"sensor": sensor, "at": time.time()}


def kept(events):
    for event in events:
        stored.append(event)
        yield event


def sent(handled):
    for event, recipients in handled:
        for recipient in recipients:
            print(f"to {recipient}: {event['sensor']} is at {event['level']}")


alerts.subscribe("ann", "level > 2")
alerts.subscribe("bob", "level > 1 AND sensor = 's2'")
alerts.subscribe("eve", "level > 0")  # is not connected

arriving = [
    ("s1", "secret-1", '{"level": 3.0}'),
    ("s2", "secret-2", '{"level": 1.5}'),
    ("s2", "wrong", '{"level": 9.0}'),
]
sent(map(alerts.handle, kept(parsed(authenticated(arriving)))))
