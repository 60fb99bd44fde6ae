"""Programs that the figures run in the fresh environment. Each prints its facts as one line of JSON."""

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
