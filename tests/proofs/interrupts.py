"""Signals at random moments of calls; after each, the filter is checked against a model."""

import faulthandler
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np

from examples import SCHEMA, random_events, random_predicate
from interrupts import Interrupt
from kinds import TAKING_ALL
from oracle import as_sets, subscribers
from rtfilter import EventFilter
from rtfilter.filter import inside
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.matching import updates
from rtfilter.predicates.predicate import parse

SIGNALS = 40
"""Of one case; `cases` of the proof times this many are tried."""
FIRST_USE = 25
"""Every so many cases, one interrupts a process that uses the package for the first time."""
PATIENCE = 60
"""Seconds until a call counts as hung, and the process is ended with all its stacks on standard error."""

Model = dict[int, Any]


def run(seed: int) -> Counter[str]:
    """Some signals, each during one call on one filter."""
    if seed % FIRST_USE == 0:
        return _first_use(seed)
    rng = np.random.default_rng(seed)
    matcher = "rtree" if seed % 3 else TAKING_ALL[seed // 3 % len(TAKING_ALL)]
    filter = EventFilter(
        SCHEMA, matcher={"name": "rtree", "capacity": (4, 9)} if matcher == "rtree" else matcher
    )
    sources = [random_predicate(rng) for _ in range(60)]
    filter.subscribe_many(sources)
    model: Model = {id: parse(source, SCHEMA) for id, source in enumerate(sources)}
    counts: Counter[str] = Counter()
    usual: dict[str, float] = {}
    large = {"AT_ONCE": 4, "BIT": 2, "LONG": -1, "KNOWN": 3, "ASIDE": int(rng.choice([-1, 10**9]))}
    turns = mock.patch.multiple(updates, **large) if seed % 2 else nullcontext()
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    before = signal.signal(signal.SIGALRM, _handle)
    try:
        with tempfile.TemporaryDirectory() as folder, _finalizers_excused(), turns:
            filter.save(f"{folder}/kept")
            saved = [set(model), set(model)]
            for _ in range(SIGNALS):
                name, call, after = _chosen(rng, filter, model, folder)
                interrupted = _cut_short(call, rng.uniform(0, 1.2 * usual.get(name, 1e-3)), usual, name)
                counts[f"{name}, {'interrupted' if interrupted else 'done'}"] += 1
                model = _state(filter, model, after, interrupted, f"seed {seed}: {name} with {matcher}")
                _check(filter, model, rng, f"seed {seed}: after {name} with {matcher}")
                if name == "save":
                    saved = [saved[-1], set(model)] if interrupted else [set(model)] * 2
                    kept = set(EventFilter.load(f"{folder}/kept").ids().tolist())
                    assert kept in saved, f"seed {seed}: a save was neither done nor undone"
                    saved = [kept, kept]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    filter.unsubscribe_many(np.arange(updates.AT_ONCE + 1))  # nothing that an interrupt left stays hidden
    assert not len(filter._subscriptions.claimed)
    if matcher == "rtree":
        inside(filter).matcher.tree.check()
    return counts


@contextmanager
def _finalizers_excused() -> Iterator[None]:
    """Let pass what finalizers say of interrupts.

    One that comes within a finalizer is lost. One that comes between opening a file and the ``with`` that
    closes it leaves the file to be closed as garbage.
    """
    before = sys.unraisablehook

    def told(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interrupt | ResourceWarning):
            before(unraisable)

    sys.unraisablehook = told
    try:
        yield
    finally:
        sys.unraisablehook = before


def _handle(number: int, frame: object) -> None:
    raise Interrupt


def _chosen(
    rng: np.random.Generator, filter: EventFilter, model: Model, folder: str
) -> tuple[str, Callable[[], object], Model]:
    """A call, and what the model is after it."""
    events = random_events(rng, int(rng.integers(1, 20)))
    source, id = random_predicate(rng), int(rng.choice(list(model))) if model else 0
    calls = ["match", "stream", "subscribe", "several", "unsubscribe", "update", "save", "repack"]
    name = str(rng.choice(calls))
    if name == "match":
        return name, lambda: filter.match_batch(events), model
    if name == "stream":
        return name, lambda: list(filter.stream(events)), model
    if name == "save":
        return name, lambda: filter.save(f"{folder}/kept"), model
    if name == "repack" and isinstance(filter._subscriptions.matcher, RTreeMatcher):
        return name, filter.repack, model
    if name == "update" and model:
        return name, lambda: filter.update(id, source), {**model, id: parse(source, SCHEMA)}
    if name == "unsubscribe":
        gone = rng.permutation(list(model))[:7].astype(np.int64)
        left = {id: predicate for id, predicate in model.items() if id not in gone}
        return name, lambda: filter.unsubscribe_many(gone), left
    sources = [random_predicate(rng) for _ in range(9)] if name == "several" else [source]
    first = max(model, default=0) + 1000
    ids = list(range(first, first + len(sources)))
    more = {id: parse(source, SCHEMA) for id, source in zip(ids, sources, strict=True)}
    return (
        "several" if len(sources) > 1 else "subscribe",
        lambda: filter.subscribe_many(sources, ids=ids),
        {**model, **more},
    )


def _cut_short(call: Callable[[], object], delay: float, usual: dict[str, float], name: str) -> bool:
    """Whether a call was interrupted; anything but the interrupt itself that it raises is an error."""
    begun = perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        return True
    usual[name] = perf_counter() - begun
    return False


def _state(filter: EventFilter, before: Model, after: Model, interrupted: bool, what: str) -> Model:
    """Whether a change was made: the model of what is there now."""
    ids = filter.ids().tolist()
    if not interrupted or ids != sorted(before):
        assert ids == sorted(after), f"{what}: a change was made by half"
        return after
    changed = [id for id in after if id in before and after[id] is not before[id]]
    made = bool(changed) and str(filter[changed[0]].predicate) == str(after[changed[0]])
    return after if made else before


def _check(filter: EventFilter, model: Model, rng: np.random.Generator, what: str) -> None:
    assert filter.stats()["in_flight_batches"] == 0 or _collected(filter), f"{what}: somebody holds the index"
    events = random_events(rng, 6)
    rows = [SCHEMA.read(event).row(0) for event in events]
    expected = subscribers(model, rows)
    assert as_sets(filter.match_batch(events)) == expected, what
    assert as_sets(filter.stream(events).matches()) == expected, what


def _collected(filter: EventFilter) -> bool:
    """Whether what held the index was garbage."""
    import gc

    gc.collect()
    return bool(filter.stats()["in_flight_batches"] == 0)


PROGRAM = """
import random, signal, sys
class Interrupt(BaseException): pass
def handle(number, frame): raise Interrupt
signal.signal(signal.SIGALRM, handle)
random.seed(int(sys.argv[1]))
from rtfilter import EventFilter, Schema
interrupts = 0
def until_done(call):
    global interrupts
    while True:
        try:
            if interrupts < 20: signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 0.05))
            result = call()
            signal.setitimer(signal.ITIMER_REAL, 0)
            return result
        except Interrupt:
            interrupts += 1
filter = EventFilter(Schema({"x": float}))
until_done(lambda: filter.update(1, "x > 1") if 1 in filter else filter.subscribe("x > 1", 1))
assert until_done(lambda: filter.match({"x": 2.0})).tolist() == [1]
events = [{"x": 2.0}, {"x": 0.0}]
found = until_done(lambda: {row: ids.tolist() for row, ids, _ in filter.stream(events)})
assert found == {0: [1], 1: []}
until_done(lambda: filter.unsubscribe(1))
assert until_done(lambda: filter.match({"x": 2.0})).tolist() == []
print(interrupts)
"""


def _first_use(seed: int) -> Counter[str]:
    """A process of its own that is interrupted while kernels are loaded, again and again until it is done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)], capture_output=True, text=True, timeout=5 * PATIENCE
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    return Counter({"first use, interrupted": int(done.stdout)})
