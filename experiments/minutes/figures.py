"""The figures: each is a function of a `Place` that measures once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments import ResultError
from experiments.minutes.place import CHECKOUT, Cost, Place

GROWN = 100_000
"""Subscriptions of the filter that grows."""
SCHEMA = {"symbol": "str", "price": "float"}


class Figure(NamedTuple):
    """A measured figure.

    Attributes
    ----------
    measure : callable
        Measures it once.
    says : str
        The measured property, for the table.
    target : float
        Most of `what` that is good.
    what : str
        ``wall`` or ``cpu`` (seconds), ``memory`` (MB), or ``longest`` (ms).
    long : bool
        True if it takes minutes, so that it is measured only if you name it.
    """

    measure: Callable[[Place], Cost]
    says: str
    target: float
    what: str = "wall"
    long: bool = False


def example(place: Place) -> Cost:
    """Run the first example of the README."""
    found = re.search(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        raise ResultError("README.md has no example in Python")
    return place.run([place.python, "-c", found[1]])


def help_(place: Place) -> Cost:
    """Ask the command for its help."""
    return place.run([place.command, "--help"])


def thousand(place: Place) -> Cost:
    """Subscribe 1,000 SQL predicates, and match 1,000 events."""
    return place.run([place.python, "-c", THOUSAND])


def serve(place: Place) -> Cost:
    """Start a server with no subscriptions."""
    command = [place.command, "serve", "--data", "data", "--schema", json.dumps(SCHEMA), "--port", "0"]
    return place.run(command, ready="serving ")


def build(place: Place) -> Cost:
    """Build an index of one rule."""
    here = place.fresh()
    _files(here)
    command = ["index", "build", "rules.jsonl", "--schema", "schema.json", "--out", "rules.index"]
    return place.run([place.command, *command], cwd=here)


def match(place: Place) -> Cost:
    """Match one event of a file with one rule of another."""
    here = place.fresh()
    _files(here)
    command = ["match", "rules.jsonl", "events.jsonl", "--schema", "schema.json"]
    return place.run([place.command, *command], cwd=here)


def memory(place: Place) -> Cost:
    """Measure the memory of a process with 100 subscriptions."""
    cost = place.run([place.python, "-c", MEMORY])
    cost.memory = cost.facts["memory"]
    return cost


def growing(place: Place) -> Cost:
    """Subscribe one by one, and match now and then."""
    cost = place.run([place.python, "-c", GROWING, str(GROWN)])
    cost.memory = cost.facts["memory"]
    return cost


def warm(place: Place) -> Cost:
    """Compile all kernels."""
    return place.run([place.command, "warm"])


def make(target: str, made: str | None = None) -> Callable[[Place], Cost]:
    """Measure a target of make on a fresh clone of the last commit, with an empty cache of pip.

    The time to make the target `made` before is not counted.
    """

    def measured(place: Place) -> Cost:
        # The kernels are kept beside the sources and bytecode is written, as a newcomer has it.
        more = {"NUMBA_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "", "PIP_NO_CACHE_DIR": "1"}
        clone = place.clone()
        if made is not None:
            place.run(["make", made], cwd=clone, more=more)
        return place.run(["make", target], cwd=clone, more=more)

    return measured


def _files(here: Path) -> None:
    (here / "schema.json").write_text(json.dumps(SCHEMA))
    (here / "rules.jsonl").write_text(json.dumps({"id": 1, "where": "symbol = 'A' AND price < 10"}) + "\n")
    (here / "events.jsonl").write_text(json.dumps({"symbol": "A", "price": 9.5}) + "\n")


FIGURES = {
    "example": Figure(example, "the first example of the README", 1.0),
    "help": Figure(help_, "rtfilter --help", 0.3),
    "thousand": Figure(thousand, "1,000 SQL predicates subscribed, 1,000 events matched", 2.5),
    "serve": Figure(serve, "rtfilter serve, until it says serving", 3.0),
    "build": Figure(build, "rtfilter index build, one rule", 1.0),
    "match": Figure(match, "rtfilter match, one event", 1.0),
    "memory": Figure(memory, "memory of a process with 100 subscriptions", 80, "memory"),
    "growing": Figure(growing, f"longest call while a filter grows to {GROWN:,}", 100, "longest"),
    "warm": Figure(warm, "rtfilter warm", 60, "cpu"),
    "demo": Figure(make("demo"), "make demo on a fresh clone", 120, long=True),
    "check": Figure(make("check", ".venv/installed"), "make check in a made environment", 90, long=True),
    "test": Figure(make("test", ".venv/installed"), "make test in a made environment", 360, long=True),
}
"""All figures by name."""


PEAK = """
import json
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
"""

THOUSAND = """
from rtfilter import EventFilter, Schema
alerts = EventFilter(Schema({"symbol": str, "price": float, "size": int}))
alerts.subscribe_many(
    [f"symbol = 'S{k % 100}' AND price < {k % 37} AND size >= {k % 11}" for k in range(1000)]
)
events = [{"symbol": f"S{k % 120}", "price": k % 53, "size": k % 17} for k in range(1000)]
assert len(alerts.match_batch(events)) == 1000
"""

MEMORY = f"""{PEAK}
from rtfilter import EventFilter, Schema
alerts = EventFilter(Schema({{"symbol": str, "price": float}}))
for k in range(100):
    alerts.subscribe(f"symbol = 'S{{k}}' AND price < {{k}}")
assert len(alerts.match({{"symbol": "S50", "price": 9.5}})) == 1
print(json.dumps({{"memory": peak()}}))
"""

GROWING = f"""{PEAK}
import gc, random, sys
from time import perf_counter, thread_time
from rtfilter import EventFilter, Schema
count = int(sys.argv[1])
alerts = EventFilter(Schema({{"symbol": str, "price": float, "size": float}}))
rng = random.Random(1)
collected, began = [], 0.0
def collecting(phase, info):
    global began
    if phase == "start":
        began = perf_counter()
    else:
        collected.append(perf_counter() - began)
gc.callbacks.append(collecting)
calls = {{"subscribe": [], "match": []}}
def timed(name, call, given):
    had, cpu, wall = len(collected), thread_time(), perf_counter()
    call(given)
    wall, cpu = perf_counter() - wall, thread_time() - cpu
    calls[name].append((wall, cpu, sum(collected[had:]), len(calls["subscribe"])))
for k in range(count):
    low = rng.random() * 1000
    where = f"symbol = 'S{{k % 500}}' AND price BETWEEN {{low:.3f}} AND {{low + 5:.3f}} AND size > {{k % 90}}"
    timed("subscribe", alerts.subscribe, where)
    if k % 20 == 0:
        event = {{"symbol": f"S{{k % 500}}", "price": rng.random() * 1000, "size": 50.0}}
        timed("match", alerts.match, event)
facts = {{"memory": peak(), "collections": len(collected), "collected_s": sum(collected)}}
facts["collected_max_ms"] = 1e3 * max(collected, default=0.0)
for name, rows in calls.items():
    walls = sorted(row[0] for row in rows)
    longest = max(rows)
    facts[name] = {{
        "calls": len(rows),
        "median_ms": 1e3 * walls[len(walls) // 2],
        "p99_9_ms": 1e3 * walls[int(0.999 * (len(walls) - 1))],
        "max_ms": 1e3 * longest[0],
        "max_cpu_ms": 1e3 * max(row[1] for row in rows),
        "max_without_gc_ms": 1e3 * max(row[0] - row[2] for row in rows),
        "max_at": longest[3],
    }}
print(json.dumps(facts))
"""
