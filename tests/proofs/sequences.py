"""Long random sequences of changes and batches against brute force."""

import pickle
import tempfile
from collections import Counter

import numpy as np

from examples import SCHEMA, random_events, random_predicate
from kinds import TAKING_ALL
from oracle import as_sets, subscribers
from rtfilter import EventFilter
from rtfilter.filter import inside
from rtfilter.predicates.predicate import parse

STEPS = 60


def run(seed: int) -> Counter[str]:
    """One sequence with one matcher: the R*-tree in two of three cases."""
    rng = np.random.default_rng(seed)
    matcher = "rtree" if seed % 3 else TAKING_ALL[seed // 3 % len(TAKING_ALL)]
    tree = {"name": "rtree", "capacity": [(4, 4), (4, 9), (512, 4096)][seed % 3]}
    filter = EventFilter(SCHEMA, matcher=tree if matcher == "rtree" else matcher)
    predicates: dict = {}
    counts: Counter[str] = Counter({matcher: 1})
    for _ in range(STEPS):
        action = rng.choice(["add", "many", "remove", "update", "match", "stream", "copy", "repack"])
        counts["steps"] += 1
        if action == "add":
            source = random_predicate(rng)
            predicates[filter.subscribe(source)] = parse(source, SCHEMA)
        elif action == "many":
            sources = [random_predicate(rng) for _ in range(rng.integers(2, 20))]
            ids = filter.subscribe_many(sources).tolist()
            predicates.update(zip(ids, (parse(source, SCHEMA) for source in sources), strict=True))
        elif action == "remove":
            gone = rng.permutation(list(predicates))[: rng.integers(0, 12)].astype(np.int64)
            assert filter.unsubscribe_many(gone).all()
            for id in gone.tolist():
                del predicates[id]
        elif action == "update" and predicates:
            id, source = int(rng.choice(list(predicates))), random_predicate(rng)
            filter.update(id, source)
            predicates[id] = parse(source, SCHEMA)
        elif action == "copy":
            filter = _copied(filter, bool(rng.integers(2)))
        elif action == "repack" and matcher == "rtree":
            filter.repack()
        elif action in ("match", "stream"):
            events = random_events(rng, int(rng.integers(1, 30)))
            rows = [filter.schema.read(event).row(0) for event in events]
            found = filter.match_batch(events) if action == "match" else filter.stream(events).matches()
            expected = subscribers(predicates, rows)
            assert as_sets(found) == expected, f"seed {seed}: {action} with {matcher}"
            counts["evaluated"] += len(events) * len(predicates)
            counts["matches"] += sum(map(len, expected))
    assert filter.ids().tolist() == sorted(predicates)
    if matcher == "rtree":
        inside(filter).matcher.tree.check()
    return counts


def _copied(filter: EventFilter, pickled: bool) -> EventFilter:
    if pickled:
        copy: EventFilter = pickle.loads(pickle.dumps(filter))
        return copy
    with tempfile.TemporaryDirectory() as folder:
        filter.save(f"{folder}/index")
        return EventFilter.load(f"{folder}/index")
