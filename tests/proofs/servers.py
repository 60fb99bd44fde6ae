"""Servers whose processes are killed, under publishers and subscribers."""

import tempfile
from collections import Counter
from pathlib import Path

import postgresql
from service.kills import pair
from service.kills import run as kill

KILLS = 10
"""Of a case."""


def run_pair(seed: int, kills: int = KILLS) -> Counter[str]:
    """Kill the server that serves ten times; a standby on the same database takes over."""
    with tempfile.TemporaryDirectory() as folder, postgresql.running() as made:
        done = pair.run(Path(folder), kills, seed, made.url)
    longest = done.pop("longest take-over, ms")
    return done + Counter({f"take-over within {1 if longest <= 1000 else 3 if longest <= 3000 else 60} s": 1})


def run(seed: int, kills: int = KILLS) -> Counter[str]:
    """Kill a server ten times; on SQLite or PostgreSQL alternately, and so are every tenth seeds."""
    with tempfile.TemporaryDirectory() as folder:
        if (seed + seed // 10) % 2 == 0 or not postgresql.HERE:
            return kill(Path(folder), kills, seed) + Counter({"kills on SQLite": kills})
        with postgresql.server() as dsn:
            options = dict(part.split("=") for part in dsn.split())
            url = f"postgresql+psycopg://{options['user']}@/{options['dbname']}?host={options['host']}"
            return kill(Path(folder), kills, seed, url) + Counter({"kills on PostgreSQL": kills})
