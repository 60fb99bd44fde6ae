"""Topics with sub-topics, and types of events, as predicates.

A topic is a text such as ``sports/football/results``. Who subscribes to a topic has its sub-topics as well:
that is a prefix. A type is an attribute that must be equal; in the server, a filter of its own. Neither needs
more than predicates, so both go together with any other condition.
"""

from rtfilter import EventFilter, Schema

schema = Schema({"topic": str, "type": str, "urgency": int})


def topic(name):
    """The condition of a topic and all below it."""
    return f"(topic = '{name}' OR topic LIKE '{name}/%')"


filter = EventFilter(schema)
wishes = {
    filter.subscribe(topic("sports")): "all sports",
    filter.subscribe(topic("sports/football")): "football",
    filter.subscribe(f"{topic('sports')} AND type = 'result'"): "results of all sports",
    filter.subscribe(f"{topic('weather')} AND urgency >= 8"): "urgent weather",
    filter.subscribe("type = 'correction'"): "corrections of any topic",
}

for event in [
    {"topic": "sports/football/results", "type": "result", "urgency": 3},
    {"topic": "sports/footballers", "type": "portrait", "urgency": 1},
    {"topic": "weather/storms", "type": "warning", "urgency": 9},
    {"topic": "weather", "type": "correction", "urgency": 1},
]:
    print(event["topic"], "->", ", ".join(wishes[id] for id in filter.match(event).tolist()))
