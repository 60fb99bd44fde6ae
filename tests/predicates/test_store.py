"""Predicates are kept as text or as objects, and come back equal."""

import gc
import json

import numpy as np
import pytest

from cases import cases
from examples import SCHEMA, random_predicate
from rtfilter import EventFilter, Schema
from rtfilter.events.encoding import Timestamp
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate, parse
from rtfilter.predicates.stored.predicate_store import PredicateStore, kept

PRICES = Schema({"price": float, "symbol": str})


def test_only_predicates_that_python_checks_are_kept_as_objects():
    target = EventFilter(PRICES, matcher="rtree")
    sources = [
        "price > 1",
        "price > price - 1",
        "symbol LIKE 'a long prefix%'",
        "price > price - 2 AND symbol = 'a'",
    ]
    ids = [target.subscribe(source) for source in sources]
    assert [target[id].predicate for id in ids] == [parse(source, PRICES) for source in sources]
    assert target.match({"price": 2, "symbol": "a long prefix, and more"}).tolist() == ids[:3]
    predicates = target._subscriptions.predicates
    assert not any(gc.is_tracked(predicates.kept(id)) for id in ids)
    assert list(predicates._parsed) == [ids[1]]


@pytest.mark.parametrize("reload", [False, True])
def test_what_was_put_is_got(reload):
    sources = ["price > 1", "NOT symbol IN ('A', 'ü')", "price IS NULL OR symbol = ''"]
    predicates = [parse(source, PRICES) for source in sources]
    store = PredicateStore()
    for id, predicate in enumerate(predicates):
        store.put(2 * id, kept(predicate))
        store.put(2 * id + 1, kept(predicate))
    if reload:
        store = PredicateStore.from_arrays(store.to_arrays())
    assert sorted(store) == list(range(6))
    assert [store.get(id) for id in range(6)] == [predicate for predicate in predicates for _ in range(2)]
    store.remove(3)
    assert store.get(3) is store.kept(3) is None
    assert 3 not in store
    store.put(3, store.kept(2))
    assert store.get(3) == predicates[1]


def test_what_was_loaded_is_parsed_once():
    store = PredicateStore()
    store.put(1, kept(parse("price > 1", PRICES)))
    loaded = PredicateStore.from_arrays(store.to_arrays())
    assert loaded.get(1) is loaded.get(1)
    loaded.put(1, kept(parse("price > 2", PRICES)))
    assert loaded.get(1) == parse("price > 2", PRICES)
    loaded.remove(1)
    assert loaded.get(1) is None


def test_what_is_read_for_a_single_question_does_not_stay():
    store = PredicateStore()
    store.put(1, kept(parse("price > 1", PRICES)))
    assert store.read(1) is not store.read(1)


def test_every_type_of_constant_survives():
    rng = np.random.default_rng(4)
    for _ in range(200):
        predicate = random_predicate(rng)
        parsed = parse(predicate, SCHEMA)
        store = PredicateStore()
        text = kept(parsed)
        assert text == json.dumps(parsed.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
        store.put(0, text)
        assert store.get(0) == parsed


@cases("value", [1, -1, 0.1, 1e300, -0.0, 10**300, True, 'a "quoted" ü \ud800', Timestamp(7)])
@cases("name", ["price", 'a "b".c', "größe"])
def test_the_text_of_a_constraint_is_json(name, value):
    filters = tuple(Filter((Constraint(name, operator, value),) * 2) for operator in ("=", "<>", "exists"))
    for predicate in (Predicate(()), Predicate((Filter(()),)), Predicate(filters)):
        text = kept(predicate)
        assert json.loads(text) == predicate.to_json()
        assert Predicate.from_json(json.loads(text)) == predicate


PAIR = "\ud800\udc00"
"""Two code points, which JSON would join to one."""


@cases(
    "source",
    [
        f"symbol = '{PAIR}'",
        f"symbol > '{PAIR}'",
        f"symbol IN ('{PAIR}', 'a')",
        f"symbol LIKE '%{PAIR}' AND price > 1",
        f"symbol = '{PAIR} of more than six bytes'",
    ],
)
@cases("together", [False, True])
def test_two_surrogates_stay_two_characters(source, together, tmp_path):
    rules = EventFilter(PRICES)
    if together:  # with a template
        rules.subscribe_many([source.replace(PAIR, text) for text in ("ab", PAIR, "cd")], ids=[0, 1, 2])
    else:
        rules.subscribe(source, id=1)
    rules.save(tmp_path / "rules")
    for each in (rules, EventFilter.load(tmp_path / "rules")):
        assert each[1].predicate == parse(source, PRICES)
        for tail in ("", " of more than six bytes"):
            for symbol in (PAIR + tail, "\U00010000" + tail, "\ufb01" + tail):
                event = {"symbol": symbol, "price": 2.0}
                assert (1 in each.match(event)) is parse(source, PRICES).matches(event)
