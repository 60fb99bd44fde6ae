"""Many rules: from a table in PostgreSQL and from files of event patterns, and what cannot be used of them.

Takes a DSN, such as "postgresql://localhost/alerts", and a folder of JSON files; `load_rules_data.py` fills
both.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

import psycopg

from rtfilter import EventFilter, Schema

SCHEMA = Schema({"symbol": str, "price": float, "size": int, "halted": bool})


def from_database(rules, dsn, bad):
    """Add all rules of a table; a cursor with a name fetches them slice by slice."""
    with psycopg.connect(dsn) as database, database.cursor("rules") as cursor:
        cursor.execute('SELECT id, condition AS "where", owner AS metadata FROM rules ORDER BY id')
        return rules.subscribe_many(cursor, on_error=bad.append)


def from_files(rules, folder, bad):
    """Add all event patterns of files, each of which has a list; their names and places are their ids."""
    names, patterns = [], []
    for path in sorted(Path(folder).glob("*.json")):
        for place, pattern in enumerate(json.loads(path.read_text())):
            names.append(f"{path.name}:{place}")
            patterns.append(pattern)
    return rules.subscribe_many(patterns, ids=names, on_error=bad.append)


def main(dsn, folder):
    rules, bad = EventFilter(SCHEMA, ids=str), []
    begun = perf_counter()
    print(f"{len(from_database(rules, dsn, bad)):,} rules from the database")
    print(f"{len(from_files(rules, folder, bad)):,} patterns from files")
    seconds = perf_counter() - begun
    print(f"{len(bad):,} cannot be used, such as")
    for one in bad[:2] + bad[-2:]:
        print(one)
    matched = rules.match({"symbol": "S7", "price": 9.5, "size": 100, "halted": False})
    print(f"{len(matched):,} match an event")
    print(f"{seconds:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
