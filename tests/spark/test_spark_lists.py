"""Columns of arrays are lists of an event, wherever it is matched."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from oracle import satisfied
from rtfilter import EventFilter, Schema
from rtfilter.spark import MatchStage, build_sharded, match_frame
from spark_cases import pairs

SCHEMA = Schema({"x": float, "tags": str, "on": bool, "at": datetime, "staff.name": str, "staff.pay": int})
KINDS = (
    "id int, x array<double>, tags array<array<string>>, on array<boolean>, at array<timestamp>, "
    "staff array<struct<name: string, pay: array<bigint>>>"
)
CONDITIONS = [
    "x > 5 AND x < 7",
    "ANY x > 8 AND tags = 'a'",
    "ALL x < 6",
    "NONE tags = 'b'",
    "tags IS NULL AND x IS NOT NULL",
    "staff.name = 'Ann' AND staff.pay > 5",
    "ALL staff.pay > 2 OR NONE staff.name LIKE 'B%'",
    "on AND at > '2024-01-02'",
    "NOT (x BETWEEN 3 AND 5 OR staff.pay = 4)",
]


def drawn(count, seed=1):
    """Events with lists of up to three elements, some null or empty."""
    rng = np.random.default_rng(seed)
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)

    def some(one, most=3):
        found = [one() if rng.random() > 0.1 else None for _ in range(rng.integers(0, most + 1))]
        return found if rng.random() > 0.1 else None

    def staff():
        return {
            "name": str(rng.choice(["Ann", "Bob", "Eve"])),
            "pay": some(lambda: int(rng.integers(0, 9)), 2),
        }

    for id in range(count):
        yield {
            "id": id,
            "x": some(lambda: float(rng.integers(0, 10))),
            "tags": some(lambda: some(lambda: str(rng.choice(["a", "b", "c"])), 2), 2),
            "on": some(lambda: bool(rng.integers(2))),
            "at": some(lambda: noon + timedelta(days=int(rng.integers(0, 3)))),
            "staff": some(staff),
        }


@pytest.fixture(scope="module")
def filter():
    made = EventFilter(SCHEMA)
    made.subscribe_many(CONDITIONS)
    return made


@pytest.fixture(scope="module")
def events(spark):
    return spark.createDataFrame(list(drawn(150)), KINDS).repartition(3).persist()


@pytest.fixture(scope="module")
def wanted(filter):
    predicates = {id: filter[id].predicate for id in filter}
    rows = [(event["id"], event) for event in drawn(150)]
    return [(id, own) for id, event in rows for own, one in predicates.items() if satisfied(one, event)]


@pytest.mark.parametrize("options", [{"balance": False}, {"partitions": 2}], ids=str)
def test_events_of_a_frame(events, filter, wanted, options):
    assert pairs(match_frame(events, filter, **options)) == wanted


def test_events_in_shards(spark, events, wanted, tmp_path):
    rules = spark.createDataFrame(list(enumerate(CONDITIONS)), "id int, where string")
    assert pairs(match_frame(events, build_sharded(rules, tmp_path / "index", SCHEMA, shards=3))) == wanted


def test_events_of_a_stage(events, filter, wanted, tmp_path):
    filter.save(tmp_path / "index")
    found = []
    MatchStage(tmp_path / "index", lambda matches, number: found.extend(pairs(matches)))(events, 0)
    assert found == wanted


def test_events_with_unusable_elements_are_left_out(spark):
    filter = EventFilter(Schema({"x": float, "y": float}))
    filter.subscribe("x > 1 AND y > 1")
    many = list(map(float, range(40)))  # 1,600 choices
    rows = [(0, [2.0, 0.0], [2.0]), (1, [2.0, float("nan")], [2.0]), (2, many, many)]
    events = spark.createDataFrame(rows, "id int, x array<double>, y array<double>")
    assert pairs(match_frame(events, filter, on_error="skip", balance=False)) == [(0, 0)]
