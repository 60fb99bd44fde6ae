"""A server, a publisher of real flights, and three subscribers: what they get, and how soon.

Needs rtree-filter[service,replay]. With an argument, so many flights are published; else 6000, in 20 seconds.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from rtfilter.client import connect
from rtfilter.replay.workloads.flights import SCHEMA, load

RULES = {
    "ann": "origin = 'JFK' AND dep_delay > 60",
    "bob": "carrier = 'UA' AND distance BETWEEN 2000 AND 3000",
    "eve": "dest LIKE 'M%' AND (arr_delay > 45 OR visib < 2)",
}
BURST, PAUSE = 30, 0.1  # flights at once, seconds


def serve(folder):
    """Start a server on any free port; returns the process and its address."""
    schema = Path(folder, "flights.json")
    schema.write_text(json.dumps(SCHEMA.to_json()))
    command = ["serve", "--data", str(Path(folder, "data")), "--schema", str(schema), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rtfilter", *command], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if " at http://" in line:
            return process, line.split(" at ")[1].strip()
    raise SystemExit("the server did not start")


def flights(count, burst=BURST):
    """The first flights of 2013, as events in bursts."""
    rows = load().head(count).to_json(orient="records", date_format="iso")
    events = [{name: value for name, value in row.items() if value is not None} for row in json.loads(rows)]
    return [events[at : at + burst] for at in range(0, count, burst)]


async def publish(url, bursts):
    async with connect(url, user="airline") as client:
        for burst in bursts:
            await client.publish(burst)
            await asyncio.sleep(PAUSE)


async def subscribe(url, user, rule, times, clients):
    async with connect(url, user=user) as client:
        clients.append(client)
        await client.subscribe(rule)
        async for delivery in client:
            event = delivery.event
            known, there = 1000 * delivery.response, 1000 * (time.time() - delivery.events[0].at)
            times[user].append((known, there))
            flight = f"{event['carrier']}{event['flight']} {event['origin']}-{event['dest']}"
            print(f"{user}  {flight:<16} known after {known:6.2f} ms, here after {there:6.2f} ms", flush=True)


async def show(url, count):
    bursts, clients, times = flights(count), [], {user: [] for user in RULES}
    subscribers = [
        asyncio.create_task(subscribe(url, user, rule, times, clients)) for user, rule in RULES.items()
    ]
    await asyncio.sleep(0.5)  # until they are there
    begun = time.perf_counter()
    await publish(url, bursts)
    seconds = time.perf_counter() - begun
    await asyncio.sleep(0.5)
    for client in clients:
        await client.stop()
    await asyncio.gather(*subscribers)
    print(f"\n{count} flights in {seconds:.1f} s; times in ms, from the arrival of a flight at the server on")
    print("user  deliveries  known: median     p99   here: median     p99   rule")
    for user, rule in RULES.items():
        found = [summary([pair[k] for pair in times[user]]) for k in (0, 1)]
        print(f"{user:<4}  {len(times[user]):10}         {found[0]}         {found[1]}   {rule}")


def summary(values):
    if len(values) < 2:
        return "     -       -"
    return f"{median(values):6.2f}  {quantiles(values, n=100, method='inclusive')[98]:6.2f}"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    with tempfile.TemporaryDirectory() as folder:
        server, url = serve(folder)
        try:
            asyncio.run(show(url, count))
        except KeyboardInterrupt:
            print("interrupted")
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()


if __name__ == "__main__":
    main()
