"""Data for `load_rules.py`: 50,000 rules in PostgreSQL, 10,000 event patterns in files, 3 % of them broken.

Takes a DSN, such as "postgresql://localhost/alerts", a folder, which is made, and another number of rules.
"""

import json
import random
import sys
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

TABLE = "CREATE TABLE rules (id text PRIMARY KEY, condition text NOT NULL, owner jsonb)"
BROKEN = ["prise > {n}", "price > '{n}'", "price BETWEEN {n}", "symbol = S{n}", "price > {n} AND (size < 5"]
GOOD = [
    "symbol = 'S{n}' AND price < {p}",
    "symbol IN ('S{n}', 'T{n}') AND size >= {n}",
    "price BETWEEN {p} AND {p}5 AND NOT halted",
    "symbol LIKE 'S{n}%' AND (price < {p} OR size > 1{n})",
]


def rule(chance, forms):
    return chance.choice(forms).format(n=chance.randrange(1000), p=round(chance.uniform(1, 500), 2))


def pattern(chance, broken):
    low = round(chance.uniform(1, 500), 2)
    price = {"numeric": [">", "cheap" if broken else low, "<", low + 5]}
    return {"symbol": [f"S{chance.randrange(1000)}", {"prefix": "U"}], "price": [price]}


def main(dsn, folder, count=50_000):
    chance = random.Random(1)
    with psycopg.connect(dsn) as database, database.cursor() as cursor:
        cursor.execute(TABLE)
        with cursor.copy("COPY rules FROM STDIN") as rows:
            for number in range(int(count)):
                forms = BROKEN if number % 100 in (17, 50, 83) else GOOD
                owner = Jsonb({"desk": chance.randrange(40)})
                rows.write_row((f"rule-{number:05}", rule(chance, forms), owner))
    Path(folder).mkdir(exist_ok=True)
    for file in range(10):
        patterns = [pattern(chance, number % 100 in (17, 50, 83)) for number in range(int(count) // 50)]
        Path(folder, f"patterns-{file}.json").write_text(json.dumps(patterns))


if __name__ == "__main__":
    main(*sys.argv[1:])
