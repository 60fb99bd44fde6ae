"""Random schemas, conditions and events, and a tiny independent evaluator of what they mean.

A condition is a nested tuple: ``("and", parts)``, ``("or", parts)``, ``("not", part)``, ``("true",)``,
``("null", name)``, or ``(operator, name, value)`` with an operator of `LEAVES`. Besides there are:

- ``("compare", operator, left, right)`` of two expressions: names, numbers, ``(arithmetic, left, right)``
  and distances in kilometres of two attributes from a point, ``("distance", name, name, north, east)``
- ``("any", name, condition)``, a quantifier and a condition on its attribute
- ``("now", name, operator, interval)``, a test of a timestamp with the moment of the batch

All of this knows nothing of rtfilter.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

BIG = 2**53
MAX = 1.7976931348623157e308
NUMBERS = [0, 1, -1, 7, 0.1, 1.0, 2.5, 5e-324, -5e-324, -0.0, 65535, MAX, -MAX]
NUMBERS += [BIG - 1, BIG, BIG + 1, float(BIG), float(BIG) + 2, -BIG - 1, 10**18 - 1, 10**18, 10**18 + 1, 1e18]
NUMBERS += [math.nextafter(7, 8), math.nextafter(7, 6), math.nextafter(0.1, 1), math.nextafter(1, 0)]
STRINGS = ["", "a", "ab", "abc", "abcde", "abcdef", "abcdefg", "abcdefh", "abcdefgh", "abcdeg", "b", "A"]
STRINGS += [
    "\0",
    "a\0",
    "a\0\0",
    "abcde\0",
    "abcdef\0",
    "é",
    "abcdé",
    "abcdeé",
    "日本",
    "日本語",
    "\U0001f600",
]
STRINGS += ["\ud800", "\ue000", "\uffff", "it's", "50%", "a_b", "a\\b", "\x7f", '"']
STRINGS += ["AB", "aBC", "ABCDEFG", "ß", "ss", "S\u017f", "É", "\u212a", "k"]
STRINGS += ["10.0.0.1", "10.20.0.255", "100.0.0.1", "192.168.1.77", "2001:db8::1", "2001:0DB8::2", "::1"]
LIKES = [
    "a%",
    "%",
    "%b%",
    "a_c%",
    "%_b",
    "%ab%c",
    "__",
    "_",
    "\\%%",
    "a\\_b",
    "%_%",
    "ab%ef%",
    "%\\\\%",
    "",
    "%bc_e%g",
]
NETWORKS = [
    "10.0.0.0/8",
    "10.16.0.0/12",
    "192.168.1.64/26",
    "10.0.0.1/32",
    "0.0.0.0/0",
    "2001:db8::/32",
    "::/0",
]
FORMS = {
    "like": lambda value, pattern: regular(pattern).fullmatch(value) is not None,
    "ignore case": lambda value, text: value.casefold() == text.casefold(),
    "like ignore case": lambda value, pattern: FORMS["like"](value.casefold(), pattern.casefold()),
    "cidr": lambda value, network: is_address(value) and ip_address(value) in ip_network(network),
}
TIMES = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 5, 31, 12, tzinfo=UTC), datetime(2024, 5, 31, 12)]
END = datetime(9999, 12, 31, 23, 59, 59, 999_999)
TIMES += [datetime(1, 1, 1), END, END - timedelta(microseconds=1)]
TIMES += [TIMES[1] + timedelta(microseconds=1), TIMES[1].astimezone(timezone(timedelta(hours=2)))]
POOLS = {float: NUMBERS, int: NUMBERS, str: STRINGS, bool: [False, True], datetime: TIMES}
ALIENS = {
    float: ["7", True, datetime(2024, 1, 1)],
    int: ["", False, "x"],
    str: [7, 0.5, True],
    bool: [0, 1, 1.0, "true"],
    datetime: ["soon", 0, True, 1.5],
}
CONSTANTS = {
    "like": st.sampled_from(LIKES) | st.text("ab_%é", max_size=6),
    "ignore case": st.sampled_from(STRINGS),
    "like ignore case": st.sampled_from(LIKES) | st.text("aBs_%é", max_size=6),
    "cidr": st.sampled_from(NETWORKS),
}
ORDERS = ("=", "<>", "<", "<=", ">", ">=")
POINTS = [(0, 0), (2.5, 1), (0, 180), (1, -179.5), (90, 7), (-89.5, 0), (48.8584, 2.2945)]
KILOMETRES = [0, 1, 111.2, 300, 1000, 9000.5, 20015.2, -1, 1e300]
INTERVALS = [timedelta(), timedelta(hours=-1), timedelta(weeks=1), timedelta(seconds=0.25)]
INTERVALS += [timedelta(days=200_000), timedelta(days=-200_000)]
"""None makes now of a time of `TIMES`, whatever the clock says: so no test has to set it."""
QUANTIFIERS = ("any", "all", "none")
NAMES = ("price", "url.resource", "symbol", "a b")


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, type]:
    """Up to four attributes of random types."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    return {name: draw(st.sampled_from(list(POOLS))) for name in names}


def values(kind: type) -> st.SearchStrategy:
    """Values of a type; few of them, so that events hit constants."""
    pool = st.sampled_from(POOLS[kind])
    if kind in (int, float):
        return pool | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
    return pool | st.text("ab\0é", max_size=8) if kind is str else pool


@st.composite
def leaves(draw: st.DrawFn, schema: dict[str, type]) -> tuple:
    """One test of one attribute."""
    name = draw(st.sampled_from(sorted(schema)))
    if draw(st.integers(0, 9)) == 0:
        return ("null", name)
    if schema[name] is datetime and draw(st.integers(0, 3)) == 0:
        return ("now", name, draw(st.sampled_from(ORDERS)), draw(st.sampled_from(INTERVALS)))
    return draw(tests_of(name, schema[name]))


@st.composite
def tests_of(draw: st.DrawFn, name: str, kind: type) -> tuple:
    """One test of a value of an attribute."""
    operators = ["=", "<>", "in"]
    if kind is not bool:
        operators += ["<", "<=", ">", ">=", "between"]
    if kind is str:
        operators += ["prefix", "prefix", *FORMS]
    operator = draw(st.sampled_from(operators))
    if operator in FORMS:
        return (operator, name, draw(CONSTANTS[operator]))
    if operator == "in":
        return (operator, name, draw(st.lists(values(kind), min_size=1, max_size=20)))
    if operator == "between":
        return (operator, name, (draw(values(kind)), draw(values(kind))))
    return (operator, name, draw(values(kind)))


@st.composite
def quantified(draw: st.DrawFn, schema: dict[str, type]) -> tuple:
    """A quantifier before one test of an attribute, or before several."""
    name = draw(st.sampled_from(sorted(schema)))
    one = tests_of(name, schema[name])
    inner = draw(st.recursive(one, nested, max_leaves=3) if draw(st.booleans()) else one)
    return (draw(st.sampled_from(QUANTIFIERS)), name, inner)


def nested(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Conditions of conditions."""
    return st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    )


def expressions(names: list[str]) -> st.SearchStrategy:
    """Arithmetic on some attributes of numbers; each part has one of them."""
    constants = st.integers(-3, 3) | st.sampled_from([0.5, 0.1, 1e300, BIG, BIG + 1, 10**18, 5e-324])
    return st.recursive(
        st.sampled_from(names),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from("+-*/"), inner, inner | constants),
            st.tuples(st.sampled_from("+-*/"), constants, inner),
        ),
        max_leaves=3,
    )


@st.composite
def comparisons(draw: st.DrawFn, schema: dict[str, type]) -> tuple:
    """Two expressions of numbers, or two attributes of one type."""
    families = {name: "number" if kind in (int, float) else kind.__name__ for name, kind in schema.items()}
    family = draw(st.sampled_from(sorted(set(families.values()))))
    names = sorted(name for name, own in families.items() if own == family)
    operator = draw(st.sampled_from(ORDERS[:2] if family == "bool" else ORDERS))
    sides = expressions(names) if family == "number" else st.sampled_from(names)
    left, right = draw(sides), draw(sides)
    if family == "number" and draw(st.integers(0, 3)) == 0:
        left = (
            "distance",
            draw(st.sampled_from(names)),
            draw(st.sampled_from(names)),
            *draw(st.sampled_from(POINTS)),
        )
        return ("compare", operator, left, draw(st.sampled_from(KILOMETRES)))
    if family == "number" and isinstance(left, tuple) and draw(st.booleans()):
        right = draw(values(float))
    return ("compare", operator, left, right)


def conditions(schema: dict[str, type]) -> st.SearchStrategy:
    """Nested conditions; every operator, often contradictory or trivial."""
    simple = leaves(schema) | leaves(schema) | quantified(schema) | comparisons(schema) | st.just(("true",))
    return st.recursive(simple, nested, max_leaves=6)


@st.composite
def events(draw: st.DrawFn, schema: dict[str, type], complete: bool = False) -> dict:
    """An event; `complete` has every attribute, with a value of its type."""
    event = {"unrelated": 1}
    for name, kind in schema.items():
        state = draw(st.integers(0, 9))
        if complete or state < 7:
            event[name] = draw(values(kind))
        elif state < 9:
            event[name] = draw(st.sampled_from(ALIENS[kind]))
        elif draw(st.booleans()):
            event[name] = None
    return event


def truth(
    condition: tuple,
    event: dict,
    schema: dict[str, type],
    wanted: bool = True,
    now: datetime | None = None,
) -> bool:
    """Whether a condition (or, unless `wanted`, its negation) holds at a moment: the slow, obvious way."""
    operator = condition[0]
    if operator == "true":
        return wanted
    if operator == "not":
        return truth(condition[1], event, schema, not wanted, now)
    if operator in ("and", "or"):
        results = [truth(part, event, schema, wanted, now) for part in condition[1]]
        return all(results) if (operator == "and") == wanted else any(results)
    if operator == "compare":
        left, right = (computed(side, event, schema) for side in condition[2:])
        return left is not None and right is not None and related(condition[1], left, right) == wanted
    name = condition[1]
    value = event.get(name)
    if operator in QUANTIFIERS:
        if operator == "none":
            operator, wanted = "any", not wanted
        found = [truth(condition[2], {name: one}, schema, wanted) for one in elements(value)]
        # Where some has to be so, all have to be otherwise for the negation.
        return any(found) if (operator == "any") == wanted else bool(found) and all(found)
    if operator == "null":
        return (value is None) == wanted
    if value is None:
        return False
    value = comparable(value, schema[name])
    if value is None:
        return False
    if operator == "now":
        return related(condition[2], value, (now or datetime.now(UTC)) + condition[3]) == wanted
    constant = condition[2]
    if operator in FORMS:
        return FORMS[operator](event[name], constant) == wanted
    if operator == "prefix":
        return value.startswith(comparable(constant, str)) == wanted
    if operator == "in":
        return any(value == comparable(item, schema[name]) for item in constant) == wanted
    if operator == "between":
        low, high = (comparable(end, schema[name]) for end in constant)
        return (low <= value <= high) == wanted
    return related(operator, value, comparable(constant, schema[name])) == wanted


def elements(value: object) -> list:
    """The elements of a list, also those of lists in it; a value that is no list is one."""
    if isinstance(value, list):
        return [inner for one in value for inner in elements(one)]
    return [] if value is None else [value]


def defined(condition: tuple, event: dict, schema: dict[str, type]) -> bool:
    """Whether all expressions have a value, so that a condition or its negation holds."""
    if condition[0] == "compare":
        return all(computed(side, event, schema) is not None for side in condition[2:])
    if condition[0] in ("and", "or"):
        return all(defined(part, event, schema) for part in condition[1])
    return condition[0] != "not" or defined(condition[1], event, schema)


def related(operator: str, left: object, right: object) -> bool:
    """Whether a comparison holds."""
    return {
        "=": left == right,
        "<>": left != right,
        "<": operator in ("<", "<=") and left < right,
        "<=": operator in ("<", "<=") and left <= right,
        ">": operator in (">", ">=") and left > right,
        ">=": operator in (">", ">=") and left >= right,
    }[operator]


def computed(side: object, event: dict, schema: dict[str, type]) -> object:
    """The value of an expression; None where it has none. Whole numbers are fractions, others floats."""
    if isinstance(side, str):
        value = comparable(event[side], schema[side]) if event.get(side) is not None else None
        return whole(value) if schema[side] in (int, float) and value is not None else value
    if not isinstance(side, tuple):
        return whole(side)
    if side[0] == "distance":
        latitude, longitude = (computed(name, event, schema) for name in side[1:3])
        if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
            return None
        return whole(haversine(float(latitude), float(longitude), *side[3:]))
    operator, left, right = side[0], *(computed(part, event, schema) for part in side[1:])
    if left is None or right is None or (operator == "/" and right == 0):
        return None
    if not isinstance(left, Fraction) or not isinstance(right, Fraction):
        left, right = nearest(left), nearest(right)
    if operator == "/":
        found = nearest(left / right)
        return whole(found) if not math.isnan(found) else None
    result = {"+": left + right, "-": left - right, "*": left * right}[operator]
    return whole(result) if isinstance(result, Fraction) or not math.isnan(result) else None


def haversine(latitude: float, longitude: float, north: float, east: float) -> float:
    """The distance of two points on a sphere of the Earth's mean radius."""
    phi, lam = math.radians(latitude), math.radians(longitude - east)
    chord = math.sin((phi - math.radians(north)) / 2) ** 2
    chord += math.cos(phi) * math.cos(math.radians(north)) * math.sin(lam / 2) ** 2
    return 2 * 6371.0088 * math.asin(math.sqrt(min(chord, 1.0)))


def whole(value: object) -> object:
    """A fraction where the number is whole."""
    if isinstance(value, float) and (math.isinf(value) or value != math.floor(value)):
        return value
    return Fraction(value)


def nearest(value: object) -> float:
    """The nearest float, infinite where that is beyond."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def regular(pattern: str) -> re.Pattern:
    """The regular expression of a LIKE pattern."""
    parts = re.findall(r"\\[\\%_]|[^\\]", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(part, re.escape(part[-1])) for part in parts), re.DOTALL)


def is_address(value: str) -> bool:
    """Whether text is an address."""
    try:
        return "%" not in value and bool(ip_address(value))
    except ValueError:
        return False


def like(text: str) -> str:
    """The LIKE pattern of one text."""
    return "".join(f"\\{char}" if char in "%_\\" else char for char in text)


def comparable(value: object, kind: type) -> object:
    """A value of the type as something Python orders; None for another type."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None
    if kind is datetime:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                return None
        if not isinstance(value, datetime):
            return None
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def sql(condition: tuple) -> str:
    """The condition in SQL, with every part in parentheses."""
    operator = condition[0]
    if operator == "true":
        return "TRUE"
    if operator == "not":
        return f"NOT ({sql(condition[1])})"
    if operator in ("and", "or"):
        return f" {operator.upper()} ".join(f"({sql(part)})" for part in condition[1])
    if operator == "compare":
        return f"{arithmetic(condition[2])} {condition[1]} {arithmetic(condition[3])}"
    if operator in QUANTIFIERS:
        return f"{operator} ({sql(condition[2])})"
    name = written(condition[1])
    if operator == "null":
        return f"{name} IS NULL"
    if operator == "now":
        seconds = condition[3].total_seconds()
        return f"{name} {condition[2]} NOW() {'+-'[seconds < 0]} INTERVAL '{abs(seconds):f} seconds'"
    value = condition[2]
    if operator == "prefix":
        return f"{name} LIKE {literal(like(value) + '%')}"
    if operator == "like":
        return f"{name} LIKE {literal(value)}"
    if operator == "ignore case":
        return f"LOWER({name}) = {literal(value.casefold())}"
    if operator == "like ignore case":
        return f"LOWER({name}) LIKE {literal(value.casefold())}"
    if operator == "cidr":
        return f"CIDR({name}, {literal(value)})"
    if operator == "in":
        return f"{name} IN ({', '.join(map(literal, value))})"
    if operator == "between":
        return f"{name} BETWEEN {literal(value[0])} AND {literal(value[1])}"
    return f"{name} {operator} {literal(value)}"


def written(name: str) -> str:
    """A name in SQL."""
    return ".".join(part if part.isidentifier() else f'"{part}"' for part in name.split("."))


def arithmetic(side: object) -> str:
    """An expression in SQL, with every part in parentheses."""
    if isinstance(side, tuple) and side[0] == "distance":
        return f"DISTANCE_KM({', '.join(map(arithmetic, side[1:]))})"
    if isinstance(side, tuple):
        return f"({arithmetic(side[1])} {side[0]} {arithmetic(side[2])})"
    return written(side) if isinstance(side, str) else repr(side)


def literal(value: object) -> str:
    """A constant in SQL."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"TIMESTAMP '{value.isoformat()}'" if isinstance(value, datetime) else repr(value)


def as_pattern(leaf: tuple) -> list:
    """A condition of one attribute as one alternative of a pattern."""
    operator, _, *value = leaf
    value = value[0] if value else None
    if operator in QUANTIFIERS:
        return [{operator: [item for one in value for item in as_pattern(one)]}]
    match operator:
        case "null":
            return [{"exists": False}, None]
        case "not null":
            return [{"exists": True}]
        case "in":
            return value
        case "not in":
            return [{"anything-but": value}]
        case "prefix":
            return [{"prefix": value}]
        case "not prefix":
            return [{"anything-but": {"prefix": value}}]
        case "suffix" | "wildcard" | "equals-ignore-case" | "cidr":
            return [{operator: value}]
        case "not suffix" | "not wildcard" | "not equals-ignore-case":
            return [{"anything-but": {operator.removeprefix("not "): [value, value]}}]
        case "prefix ignore case" | "suffix ignore case":
            return [{operator.split()[0]: {"equals-ignore-case": value}}]
        case "=":
            return [value]
        case "<>":
            return [{"anything-but": value}]
        case "between":
            return [{"numeric": [">=", value[0], "<=", value[1]]}]
    return [{"numeric": [operator, value]}]


def as_condition(leaf: tuple) -> tuple:
    """The same in the form of conditions."""
    operator, name, *value = leaf
    if operator in QUANTIFIERS:
        return (operator, name, ("or", [as_condition(one) for one in value[0]]))
    if operator.startswith("not "):
        return ("not", as_condition((operator.removeprefix("not "), name, *value)))
    match operator:
        case "suffix":
            return ("like", name, "%" + like(value[0]))
        case "wildcard":
            return ("like", name, "%".join(map(like, value[0].split("*"))))
        case "equals-ignore-case":
            return ("ignore case", name, value[0])
        case "prefix ignore case":
            return ("like ignore case", name, like(value[0]) + "%")
        case "suffix ignore case":
            return ("like ignore case", name, "%" + like(value[0]))
    return leaf


@st.composite
def pattern_leaves(draw: st.DrawFn, name: str, kind: type) -> tuple:
    """One alternative for one attribute of a pattern."""
    if draw(st.integers(0, 5)) == 0:
        inside = pattern_leaves(name, kind).filter(
            lambda leaf: leaf[0] not in QUANTIFIERS and "null" not in leaf[0]
        )
        return (draw(st.sampled_from(QUANTIFIERS)), name, draw(st.lists(inside, min_size=1, max_size=2)))
    operators = ["=", "<>", "in", "not in", "null", "not null"]
    if kind is str:
        operators += [
            "prefix",
            "not prefix",
            "suffix",
            "not suffix",
            "prefix ignore case",
            "suffix ignore case",
        ]
        operators += ["wildcard", "not wildcard", "equals-ignore-case", "not equals-ignore-case", "cidr"]
    operators += ["<", "<=", ">", ">=", "between"] if kind not in (str, bool) else []
    operator = draw(st.sampled_from(operators))
    if "null" in operator:
        return (operator, name)
    if operator == "cidr":
        return (operator, name, draw(st.sampled_from(NETWORKS)))
    if "wildcard" in operator:
        parts = st.lists(st.text("abé_%", max_size=2), min_size=1, max_size=4)
        return (operator, name, "*".join(draw(parts)).replace("**", "*").replace("**", "*"))
    constants = values(kind)
    if operator in ("in", "not in"):
        return (operator, name, draw(st.lists(constants, min_size=1, max_size=4)))
    return (operator, name, draw(st.tuples(constants, constants) if operator == "between" else constants))


@st.composite
def patterns(draw: st.DrawFn, schema: dict[str, type], depth: int = 1) -> tuple[dict, tuple]:
    """An event pattern, and the same as a condition."""
    pattern, parts = {}, []
    for name in draw(st.lists(st.sampled_from(sorted(schema)), min_size=1, unique=True)):
        alternatives = draw(st.lists(pattern_leaves(name, schema[name]), min_size=1, max_size=2))
        pattern[name] = [item for leaf in alternatives for item in as_pattern(leaf)]
        parts.append(("or", [as_condition(leaf) for leaf in alternatives]))
    if depth and draw(st.booleans()):
        inner = draw(st.lists(patterns(schema, depth - 1), min_size=1, max_size=2))
        pattern["$or"] = [branch for branch, _ in inner]
        parts.append(("or", [condition for _, condition in inner]))
    if "url.resource" in pattern and draw(st.booleans()):
        pattern["url"] = {"resource": pattern.pop("url.resource")}
    return pattern, ("and", parts)


def sources(schema: dict[str, type]) -> st.SearchStrategy:
    """A subscription in SQL or as an event pattern, and the same as a condition."""
    return conditions(schema).map(lambda condition: (sql(condition), condition)) | patterns(schema)


def inside(point, low, high) -> bool:
    """Whether a point, float64 (D,), lies in a closed box."""
    return bool((low <= point).all() and (point <= high).all())
