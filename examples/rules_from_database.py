"""Rules in a database: load them all, then follow their changes while events are matched.

A table has the rules as SQL conditions, and counts its changes; a rule without a condition was deleted.
"""

import sqlite3

from rtfilter import EventFilter, PredicateError, Schema

TABLE = "CREATE TABLE rules (id INTEGER PRIMARY KEY, condition TEXT, changed INTEGER NOT NULL)"
CHANGES = "SELECT id, condition, changed FROM rules WHERE changed > ? ORDER BY changed"


def put(database, id, condition):
    """Add, change or (with None) delete a rule."""
    (last,) = database.execute("SELECT coalesce(max(changed), 0) FROM rules").fetchone()
    database.execute("REPLACE INTO rules VALUES (?, ?, ?)", (id, condition, last + 1))
    database.commit()


def follow(database, rules, seen):
    """Bring the filter up to date; `seen` is the last change that it knows. Returns the new one."""
    for id, condition, changed in database.execute(CHANGES, (seen,)):
        try:
            if condition is None:
                rules.unsubscribe(id)
            elif id in rules:
                rules.update(id, condition)
            else:
                rules.subscribe(condition, id=id)
        except PredicateError as error:
            print(f"rule {id} is left out: {error}")
        seen = changed
    return seen


def main():
    database = sqlite3.connect(":memory:")
    database.execute(TABLE)
    for id, condition in enumerate(["price < 10", "symbol LIKE 'AC%'", "price > 100 AND symbol = 'ACME'"], 1):
        put(database, id, condition)

    rules = EventFilter(Schema({"symbol": str, "price": float}))
    seen = follow(database, rules, 0)
    event = {"symbol": "ACME", "price": 120.0}
    print("at first", sorted(rules.match(event).tolist()))

    put(database, 2, None)
    put(database, 4, "price BETWEEN 110 AND 130")
    put(database, 5, "prise > 1")
    seen = follow(database, rules, seen)
    print("then", sorted(rules.match(event).tolist()))


if __name__ == "__main__":
    main()
