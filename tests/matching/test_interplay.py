"""Everything at once: text ids, times to live, metadata, bad rules and events with lists, asked all ways."""

import asyncio
import pickle
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kinds import TAKING_ALL
from limits import sources_within
from oracle import as_sets, satisfied
from rtfilter import AsyncFilter, EventFilter, Predicate, Schema, Tracker, UnknownSubscriptionError

TYPES = {"x": float, "tags": str, "staff.name": str, "staff.pay": float}
SCHEMA = Schema(TYPES)
START = 1e10
"""The clock begins far ahead of the time, by which an unpickled filter goes."""
EXTRA = st.sampled_from(
    [
        "tags LIKE '%b_'", "LOWER(tags) = 'ab'", "staff.name = 'a' AND staff.pay IS NULL",
        "x * 2 > staff.pay",
        "x > 2 AND x < 8", "staff.name IS NULL", "NOT (tags LIKE 'a%') AND x IS NOT NULL",
    ]
)  # fmt: skip
PATTERNS = st.sampled_from(
    [
        {"tags": [{"suffix": "b"}]}, {"tags": [{"wildcard": "a*c"}]},
        {"staff": {"name": [{"anything-but": "a"}]}},
        {"tags": [{"equals-ignore-case": "AB"}], "x": [{"exists": False}]},
        {"$or": [{"x": [7]}, {"tags": ["b"]}]},
    ]
)  # fmt: skip


RULES = EXTRA | PATTERNS | sources_within(TYPES).map(lambda drawn: drawn[0])
TTL = st.none() | st.sampled_from([5, 20])
NOTES = st.none() | st.fixed_dictionaries({"n": st.integers(0, 3)})


def some(*values):
    """A value, or a list of values and lists."""
    one = st.sampled_from([*values, None])
    return one | st.lists(one | st.lists(one, max_size=2), max_size=3)


STAFF = st.fixed_dictionaries({}, optional={"name": some("a", "ab", 7), "pay": some(1, 7, "7")})
EVENTS = st.fixed_dictionaries(
    {},
    optional={"x": some(0, 7, 2.5, "7"), "tags": some("a", "AB", "abc", "xbc", 7),
              "staff": STAFF | st.lists(STAFF, max_size=3)},
)  # fmt: skip


class Interplay(RuleBasedStateMachine):
    """A filter beside a dict of its subscriptions."""

    @initialize(matcher=st.sampled_from(sorted(TAKING_ALL)))
    def begin(self, matcher):
        self.now, self.count, self.gone = START, 0, set()
        self.filter = EventFilter(
            SCHEMA, matcher=matcher, ids=str, max_unbounded=None, clock=lambda: self.now
        )
        self.tracker, self.inside = Tracker(self.filter), {}
        self.held = {}  # by id: predicate, deadline, metadata

    def name(self):
        self.count += 1
        return f"rule-{self.count}"

    def deadline(self, ttl):
        return None if ttl is None else self.now + ttl

    @rule(source=RULES, ttl=TTL, metadata=NOTES)
    def subscribe(self, source, ttl, metadata):
        id = self.filter.subscribe(source, self.name(), ttl=ttl, metadata=metadata)
        self.held[id] = Predicate.parse(source, SCHEMA), self.deadline(ttl), metadata

    @rule(rows=st.lists(st.tuples(RULES, TTL), max_size=5), bad=st.integers(0, 5))
    def load(self, rows, bad):
        names, reported = [self.name() for _ in range(len(rows) + 1)], []
        rows = [*rows[:bad], ("x <> 'never'", None), *rows[bad:]]
        texts, ttls = [source for source, _ in rows], [ttl for _, ttl in rows]
        added = self.filter.subscribe_many(texts, ids=names, ttl=ttls, on_error=reported.append)
        wrong = min(bad, len(rows) - 1)
        assert [(one.row, one.id) for one in reported] == [(wrong, names[wrong])]
        assert added.tolist() == names[:wrong] + names[wrong + 1 :]
        for name, (source, ttl) in zip(names, rows, strict=True):
            if name != names[wrong]:
                self.held[name] = Predicate.parse(source, SCHEMA), self.deadline(ttl), None

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unsubscribe(self, data):
        id = data.draw(st.sampled_from(sorted(self.held)))
        assert self.filter.unsubscribe(id)
        del self.held[id]
        assert not self.filter.unsubscribe(id)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), source=RULES, ttl=st.just(...) | TTL)
    def update(self, data, source, ttl):
        id = data.draw(st.sampled_from(sorted(self.held)))
        self.filter.update(id, source, ttl=ttl)
        _, deadline, metadata = self.held[id]
        deadline = deadline if ttl is ... else self.deadline(ttl)
        self.held[id] = Predicate.parse(source, SCHEMA), deadline, metadata

    @rule(seconds=st.sampled_from([1, 5, 15]))
    def wait(self, seconds):
        self.now += seconds
        ended = {
            id for id, (_, deadline, _) in self.held.items() if deadline is not None and deadline <= self.now
        }
        self.gone |= ended
        self.held = {id: one for id, one in self.held.items() if id not in ended}
        for id in sorted(ended)[:1]:
            try:
                _ = self.filter[id]
            except UnknownSubscriptionError:
                continue
            raise AssertionError(id)

    def wanted(self, batch):
        return [{id for id, (one, _, _) in self.held.items() if satisfied(one, event)} for event in batch]

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=4))
    def ask(self, batch):
        filter, wanted = self.filter, self.wanted(batch)
        assert as_sets(filter.match_batch(batch)) == wanted
        assert as_sets([filter.match(event) for event in batch]) == wanted
        assert as_sets(filter.stream(batch).matches()) == wanted
        assert filter.match_batch(batch).counts.tolist() == list(map(len, wanted))
        assert filter.match_batch(batch).any.tolist() == list(map(bool, wanted))
        found = filter.explain(batch, limit=5)
        assert (found.pairs, found.matched) == (len(batch) * len(self.held), sum(map(len, wanted)))
        for id, (predicate, _, metadata) in self.held.items():
            assert filter[id].metadata == metadata
            for event, ids in zip(batch, wanted, strict=True):
                assert predicate.matches(event) is (id in ids)
            assert filter.explain(batch[0], id).matched is (id in wanted[0])
        assert set(filter.ids().tolist()) == set(self.held)

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=3), key=st.integers(0, 1))
    def track(self, batch, key):
        changes = self.tracker.match_batch(batch, keys=[key] * len(batch))
        for (entered, inside, left), wanted in zip(changes, self.wanted(batch), strict=True):
            before = self.inside.get(key, set())
            assert set(entered.tolist()) == wanted - before
            assert set(inside.tolist()) == wanted & before
            assert set(left.tolist()) == before - wanted
            self.inside[key] = wanted

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=3))
    def await_(self, batch):
        async def main():
            async with AsyncFilter(self.filter) as feed:
                return await asyncio.gather(*map(feed.match, batch))

        assert as_sets(asyncio.run(main())) == self.wanted(batch)

    @rule(source=RULES, batch=st.lists(EVENTS, min_size=1, max_size=3))
    def cover(self, source, batch):
        predicate = Predicate.parse(source, SCHEMA)
        found = self.filter.related(predicate).covers
        ids, unknown = set(found.ids.tolist()), set(found.unknown.tolist())
        assert not ids & unknown
        assert ids | unknown <= set(self.held)
        for id, (own, _, _) in self.held.items():
            right = own.covers(predicate)
            assert right is None or (id in ids) is right
            if id in ids and "IS NULL" not in str(own):
                assert all(satisfied(own, event) or not satisfied(predicate, event) for event in batch)

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=3))
    def save_and_load(self, batch):
        place = Path(tempfile.mkdtemp())
        try:
            self.filter.save(place / "filter")
            loaded = EventFilter.load(place / "filter", clock=lambda: self.now)
            assert as_sets(loaded.match_batch(batch)) == self.wanted(batch)
            for id, (_, deadline, metadata) in self.held.items():
                assert (loaded[id].expires, loaded[id].metadata) == (deadline, metadata)
        finally:
            shutil.rmtree(place)

    @rule(batch=st.lists(EVENTS, min_size=1, max_size=3))
    def pickle(self, batch):
        copy = pickle.loads(pickle.dumps(self.filter))
        found = as_sets(copy.match_batch(batch))
        assert [ids - self.gone for ids in found] == self.wanted(batch)


EXAMPLES = 25
TestInterplay = Interplay.TestCase
TestInterplay.settings = settings(max_examples=EXAMPLES, stateful_step_count=20)
