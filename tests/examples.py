"""A small random world of predicates and events for tests: every operator, every odd value."""

import numpy as np

from rtfilter import Schema

SCHEMA = Schema({"x": float, "n": int, "s": str, "b": bool})

PREFIX = "a-long-shared-prefix-"
TEXTS = ["", "a", "ab", "abcdef", "abcdefg", PREFIX + "1", PREFIX + "2", "é", "z"]
NUMBERS = [-1e18, -3, -1, 0, 0.5, 1, 2, 3, 2**53, 2**53 + 1, 1e18]


def random_predicate(rng: np.random.Generator) -> str | dict:
    """An SQL condition or an event pattern over SCHEMA; sometimes unsatisfiable, sometimes always true."""
    kind = rng.integers(0, 12)
    if kind == 0:
        return str(rng.choice(["TRUE", "FALSE", "x < 1 AND x > 2", "s IN ('a') AND s = 'b'"]))
    if kind < 4:
        return random_pattern(rng)
    joiner = " OR " if rng.random() < 0.3 else " AND "
    return joiner.join(f"({random_constraint(rng)})" for _ in range(rng.integers(1, 4)))


def random_constraint(rng: np.random.Generator) -> str:
    number, other = (repr(NUMBERS[i]) for i in rng.integers(0, len(NUMBERS), 2))
    text, second = (TEXTS[i] for i in rng.integers(0, len(TEXTS), 2))
    attribute = rng.choice(["x", "n"])
    options = [
        *(f"{attribute} {operator} {number}" for operator in ("=", "<>", "<", "<=", ">", ">=")),
        f"{attribute} BETWEEN {number} AND {other}",
        f"{attribute} IN ({number}, {other})",
        f"NOT {attribute} > {number}",
        *(f"s {operator} '{text}'" for operator in ("=", "<>", "<", ">=")),
        f"s LIKE '{text[:8]}%'",
        f"s NOT LIKE '{text[:8]}%'",
        f"s IN ('{text}', '{second}')",
        f"{rng.choice(['x', 'n', 's', 'b'])} IS NULL",
        f"{rng.choice(['x', 'n', 's', 'b'])} IS NOT NULL",
        f"b = {rng.choice(['TRUE', 'FALSE'])}",
    ]
    return options[rng.integers(0, len(options))]


def random_pattern(rng: np.random.Generator) -> dict:
    number = NUMBERS[rng.integers(0, len(NUMBERS))]
    text = TEXTS[rng.integers(0, len(TEXTS))]
    options: list[dict] = [
        {"x": [{"numeric": [">", number]}]},
        {"n": [number, {"numeric": ["<", -1]}]},
        {"s": [text, {"prefix": "ab"}]},
        {"s": [{"anything-but": [text]}], "b": [True]},
        {"s": [{"exists": False}]},
        {"$or": [{"x": [number]}, {"s": [text]}]},
    ]
    return options[rng.integers(0, len(options))]


def random_events(rng: np.random.Generator, count: int) -> list[dict]:
    """Events with values on, just beside and far from the constants; missing ones and ones of wrong type."""
    events = []
    for _ in range(count):
        number = NUMBERS[rng.integers(0, len(NUMBERS))]
        event: dict = {
            "x": float(np.nextafter(float(number), rng.choice([-np.inf, float(number), np.inf]))),
            "n": int(number) + int(rng.integers(-1, 2)),
            "s": TEXTS[rng.integers(0, len(TEXTS))] + str(rng.choice(["", "", "x"])),
            "b": bool(rng.integers(0, 2)),
            "unknown": 1,
        }
        for name in list(event):
            if rng.random() < 0.15:
                del event[name]
            elif rng.random() < 0.05:
                event[name] = rng.choice([None, "text"]) if name != "s" else 7
        events.append(event)
    return events
