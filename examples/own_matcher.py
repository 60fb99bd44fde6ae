"""A matcher of one's own: it compares every event with every box, with NumPy alone.

It is tested against brute force, then stands behind a filter like those that come with rtfilter.
"""

import numpy as np

from rtfilter import EventFilter, Schema
from rtfilter.basics.results import Hits
from rtfilter.matchers import BoxColumns, Filters, Takes, check_matcher


class ScanMatcher:
    takes = Takes()  # all operators and types, events that lack attributes, many threads

    def __init__(self, schema):
        self.schema, self.options, self.updates = schema, {}, 0
        self.boxes = Filters.of_predicates(schema, []).boxes()

    def add(self, filters):
        new = filters.boxes()
        self.boxes = BoxColumns(*map(np.concatenate, zip(self.boxes, new, strict=True)))
        self.updates += len(new.ids)

    def remove(self, ids):
        known = np.isin(ids, self.boxes.ids)
        first = np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])
        gone = np.isin(self.boxes.ids, ids)
        self.boxes = BoxColumns(*(column[~gone] for column in self.boxes))
        self.updates += int(gone.sum())
        return known & first

    def match(self, events):
        found, exact, counts = [], [], []
        for point in events.points:
            inside = ((self.boxes.low <= point) & (point <= self.boxes.high)).all(axis=1)
            own = {}  # an id may have several boxes; it matches for sure if one of them is exact
            for id, sure in zip(self.boxes.ids[inside].tolist(), self.boxes.exact[inside], strict=True):
                own[id] = own.get(id, False) or sure
            found += own
            exact += own.values()
            counts.append(len(own))
        offsets = np.cumsum([0, *counts])
        return Hits(offsets, np.array(found, np.int64), np.array(exact, np.uint8), self.workload(events))

    def workload(self, events):
        return np.full(len(events), len(self.boxes.ids))

    def ids(self):
        return np.unique(self.boxes.ids)

    def __len__(self):
        return len(self.ids())

    def __contains__(self, id):
        return id in self.boxes.ids

    def content(self, ids=None):
        own = slice(None) if ids is None else np.isin(self.boxes.ids, list(ids))
        return Filters.of_boxes(self.schema, BoxColumns(*(column[own] for column in self.boxes)))

    def stats(self):
        return {"bytes": sum(column.nbytes for column in self.boxes), "unit": "boxes"}


if __name__ == "__main__":
    check_matcher(ScanMatcher)
    rules = EventFilter(Schema({"symbol": str, "price": float}), matcher=ScanMatcher)
    rules.subscribe_many(["price < 10", "symbol LIKE 'AC%' OR price > 100"])
    print("matches", rules.match({"symbol": "ACME", "price": 9.5}))
