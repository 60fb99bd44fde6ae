"""What is written down of predicates decides as they do, and is forgotten with them."""

import signal
import threading
from datetime import datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limits import sources_within
from oracle import as_sets
from predicate_cases import events, schemas
from rtfilter import EventFilter, Schema
from rtfilter.events.table import EventTable
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate, parse
from rtfilter.subscriptions import checks
from rtfilter.subscriptions.checks import ASK, NO, YES, Checks

WORDS = [
    "",
    "a",
    "prefix",
    "prefix-1",
    "prefix-10",
    "prefix-2",
    "prefix-é",
    "prefix-\ud800",
    "prefix-\0",
    "PREFIX-É1",
    "pre-prefix-ß",
    "q",
]


def decided(target, predicates, table, rows=None, handles=None):
    """A verdict for each pair of a row and a handle."""
    handles = list(predicates) if handles is None else handles
    count = len(table) if rows is None else len(rows)
    owners = np.repeat(np.arange(count), len(handles))
    asked = np.tile(np.array(handles, np.int64), count)
    return target.decide(asked, owners, table, rows, predicates.get).reshape(count, len(handles))


def decided_one(target, predicates, table, rows=None):
    """A verdict for each pair, of one event a call; hits of a box that is exact are not asked about."""
    handles = np.array([-7, *predicates], np.int64)
    exact = (handles == -7).astype(np.uint8)
    found = []
    for row in range(len(table)) if rows is None else rows.tolist():
        event = table.take(np.array([row]))
        verdicts = target.decide_one(handles, exact, event, predicates.get)
        assert verdicts[0] == YES
        found.append(verdicts[1:])
    assert exact.sum() == 1
    return np.array(found, np.int8).reshape(len(found), len(predicates))


decided_by_any_way = pytest.mark.parametrize("decided", [decided, decided_one])


def truth(predicates, table, rows=None):
    rows = range(len(table)) if rows is None else rows
    found = [[predicate.matches(table.row(row)) for predicate in predicates.values()] for row in rows]
    return np.array(found, np.bool_).reshape(len(rows), len(predicates))


@decided_by_any_way
@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=100)
def test_verdicts_are_those_of_the_predicates(decided, data):
    types = data.draw(schemas())
    schema = Schema(types)
    drawn = data.draw(st.lists(sources_within(types), min_size=1, max_size=6))
    predicates = {id * 2**40: parse(source, schema) for id, (source, _) in enumerate(drawn)}
    table = schema.read(data.draw(st.lists(events(types), min_size=1, max_size=6)))
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(table))), max_size=8)), np.int64)
    target = Checks(schema)
    for chosen in (None, rows):
        verdicts = decided(target, predicates, table, chosen)
        wanted = np.where(truth(predicates, table, chosen), YES, NO)
        assert np.array_equal(verdicts[verdicts != ASK], wanted[verdicts != ASK])


ORDERED = [f"{{0}} {operator} {{1}}" for operator in ("=", "<>", "<", "<=", ">", ">=")]
SETS = [
    "{0} IN ({1}, {2})",
    "{0} NOT IN ({1}, {2})",
    "{0} IS NULL",
    "{0} IS NOT NULL",
    "{0} BETWEEN {1} AND {2}",
]
PATTERNS = [
    *(
        f"{{0}} {negation}LIKE '{pattern}'"
        for negation in ("", "NOT ")
        for pattern in ("{3}%", "%{3}", "_%{3}%_")
    ),
    *(f"LOWER({{0}}) {form}" for form in ("= '{4}'", "<> '{4}'", "LIKE '%{4}_%'", "NOT LIKE '%{4}'")),
]


@decided_by_any_way
@pytest.mark.parametrize("name", ["s", "n", "f", "b", "t"])
def test_these_operators_never_ask_python(decided, name):
    schema = Schema({"s": str, "n": int, "f": float, "b": bool, "t": datetime})
    pools = {
        "s": WORDS,
        "n": [0, 1, -1, 2**53 - 1, 2**60],
        "f": [0.0, -0.5, 0.1, 5e-324, 1.7e308],
        "b": [False, True],
        "t": ["1970-01-01T00:00:00Z", "2024-05-31T12:00:00.000001Z", "2024-05-31T12:00:00Z"],
    }
    constants = {
        "s": [f"'{word}'" for word in WORDS],
        "n": ["0", "1", "-1", str(2**53 - 1)],
        "f": ["0.0", "-0.5", "0.1", "5e-324"],
        "b": ["TRUE", "FALSE"],
        "t": [f"TIMESTAMP '{moment[:-1]}'" for moment in pools["t"]],
    }[name]
    forms = SETS[:4] + ORDERED[:2] if name == "b" else SETS + ORDERED + PATTERNS * (name == "s")
    drawn = [
        form.format(
            name,
            constants[at % len(constants)],
            constants[(at + 1) % len(constants)],
            WORDS[at],
            WORDS[at].casefold(),
        )
        for form in forms
        for at in range(len(WORDS))
    ]
    drawn += [f"({drawn[at]}) AND ({drawn[-at]}) OR {drawn[at // 2]}" for at in range(1, len(drawn))]
    predicates = {id: parse(condition, schema) for id, condition in enumerate(dict.fromkeys(drawn))}
    predicates = {id: predicate for id, predicate in predicates.items() if predicate.filters}
    values = [*pools[name], None, 0.5 if name in "sbt" else "prefix-1"]
    table = schema.read([{name: value} for value in values])
    verdicts = decided(Checks(schema), predicates, table)
    assert np.array_equal(verdicts, np.where(truth(predicates, table), YES, NO))


@decided_by_any_way
@pytest.mark.parametrize(
    "condition",
    [
        "s LIKE 'x%' AND s < z",
        "CIDR(s, '10.0.0.0/8')",
        "s < z",
        "n > 9007199254740992",
        "n IN (" + ", ".join(map(str, range(65))) + ")",
        "TRUE",
    ],
)
def test_python_is_asked_for_the_rest(decided, condition):
    schema = Schema({"s": str, "z": str, "n": int})
    predicates = {1: parse(condition, schema)}
    table = schema.read([{"s": "x", "z": "y", "n": 1}])
    assert decided(Checks(schema), predicates, table).tolist() == [[ASK]]


@decided_by_any_way
def test_python_is_not_asked_where_another_test_of_the_conjunction_fails(decided):
    schema = Schema({"s": str, "z": str, "n": int})
    predicates = {1: parse("s < z AND n = 1 AND s LIKE '%x'", schema)}
    table = schema.read([{"s": "y", "z": "z", "n": 1}, {"s": "x", "z": "z", "n": 2}, {}])
    assert decided(Checks(schema), predicates, table).tolist() == [[NO], [NO], [NO]]


@decided_by_any_way
def test_patterns_fit_as_is_like_says(decided):
    schema = Schema({"s": str})
    patterns, values = (
        [*map("".join, product(letters, repeat=size))] for letters, size in (("aé_%", 5), ("aé", 4))
    )
    tests = [Constraint("s", "like", pattern) for pattern in patterns]
    predicates = {id: Predicate((Filter((test,)),)) for id, test in enumerate(dict.fromkeys(tests))}
    table = schema.read([{"s": value} for value in ["", "a", "éa", *values]])
    verdicts = decided(Checks(schema), predicates, table)
    assert np.array_equal(verdicts, np.where(truth(predicates, table), YES, NO))


@decided_by_any_way
def test_texts_of_ascii_are_folded(decided):
    schema = Schema({"s": str})
    predicates = {1: parse("LOWER(s) = 'prefix-1'", schema)}
    table = schema.read([{"s": "prefix-1"}, {"s": "PREFIX-1"}, {"s": "Prefix-10"}])
    assert decided(Checks(schema), predicates, table).tolist() == [[YES], [YES], [NO]]


@decided_by_any_way
def test_python_searches_where_many_places_of_a_text_nearly_fit(decided):
    schema = Schema({"s": str})
    predicates = {1: parse(f"s LIKE '%{'a' * 40}b%c'", schema)}
    table = schema.read([{"s": "a" * 2000 + "c"}])
    assert decided(Checks(schema), predicates, table).tolist() == [[ASK]]


@pytest.mark.parametrize("count", [1, 400])
def test_few_and_many_candidates_get_the_same_verdicts(count):
    """Many are sorted by their conditions; some subscriptions have no candidate, one is unknown."""
    schema = Schema({"s": str, "t": str})
    predicates = {
        7 * id: parse(f"s LIKE 'prefix-{id % 5}%' AND t = 't-{id % 3}'", schema) for id in range(900)
    }
    table = schema.read([{"s": f"prefix-{at}", "t": f"t-{at}"} for at in range(3)])
    target = Checks(schema)
    decided(target, predicates, table)  # all are written down
    rng = np.random.default_rng(1)
    handles, owners = 7 * rng.integers(899, size=count), rng.integers(3, size=count)
    wanted = truth(predicates, table)[owners, handles // 7]
    assert (target.decide(handles, owners, table, None, predicates.get) == wanted).all()


def test_only_texts_of_candidates_are_read(monkeypatch):
    schema = Schema({"s": str, "z": str})
    table = schema.read([{"s": "ax", "z": "by"}] * 3)
    predicates = {1: parse("s LIKE '%x'", schema), 2: parse("z LIKE '%y'", schema)}
    target = Checks(schema)
    decided(target, predicates, table)
    read = []
    monkeypatch.setattr(EventTable, "values", lambda _, name, rows: read.append((name, rows)) or ["ax"])
    target.decide(np.array([1]), np.array([1]), table, None, predicates.get)
    assert read == [("s", [1])]


@decided_by_any_way
def test_a_predicate_is_read_once(decided):
    schema = Schema({"s": str})
    table = schema.read([{"s": "prefix-4"}, {"s": "prefix-7"}])
    predicates = Counted({id: parse(f"s = 'prefix-{id}'", schema) for id in range(300)})
    target = Checks(schema)
    for _ in range(2):
        assert (decided(target, predicates, table) == truth(predicates, table)).all()
    assert predicates.reads == 300


def test_one_call_compiles_some_of_many_new_predicates(monkeypatch):
    monkeypatch.setattr(checks, "AT_ONCE", 3)
    schema = Schema({"s": str})
    predicates = {id: parse(f"s = 'prefix-{id}'", schema) for id in range(16)}
    table = schema.read([{"s": "prefix-4"}])
    target = Checks(schema)
    counts = [int((decided(target, predicates, table) != ASK).sum()) for _ in range(5)]
    assert counts == [5, 10, 15, 16, 16]


class Counted(dict):
    """A dict that counts how often it is asked."""

    reads = 0

    def get(self, *given):
        self.reads += 1
        return super().get(*given)


@decided_by_any_way
@pytest.mark.slow
def test_what_is_forgotten_is_written_down_anew(decided):
    schema = Schema({"s": str})
    words = [f"prefix-{id % 50}" for id in range(400)]
    table = schema.read([{"s": "prefix-7"}, {"s": "other"}])
    target = Checks(schema)
    rng = np.random.default_rng(4)
    predicates = {}
    for _ in range(60):
        changed = rng.choice(1000, 30, replace=False)
        target.forget(changed)
        for id in changed.tolist():
            predicates[id] = parse(f"s = '{words[rng.integers(400)]}'", schema)
        for _ in range(40):
            verdicts = decided(target, predicates, table)
            if (verdicts != ASK).all():
                break
        assert np.array_equal(verdicts, np.where(truth(predicates, table), YES, NO))
    assert target._used <= 2 * len(predicates) + 30  # what is forgotten takes no room for good


@pytest.mark.slow
def test_a_subscription_that_asks_for_something_else_is_checked_anew():
    target = EventFilter(Schema({"s": str}), matcher="rtree")
    target.subscribe_many([f"s LIKE 'prefix-{id % 2}%'" for id in range(40)])
    event = {"s": "prefix-1"}
    assert as_sets([target.match(event)]) == [set(range(1, 40, 2))]
    target.update(1, "s LIKE 'prefix-0%'")  # in its place
    target.update(2, "s LIKE 'prefix-1%' OR s LIKE 'prefix-3%'")
    target.unsubscribe(3)
    target.subscribe("s LIKE 'prefix-0%'", id=3)
    target.subscribe("s LIKE 'prefix-1%'", id=100)
    assert as_sets([target.match(event)]) == [{*range(5, 40, 2), 2, 100}]
    target.repack()
    assert as_sets([target.match(event)]) == [{*range(5, 40, 2), 2, 100}]


def test_a_signal_handler_may_match_in_the_midst_of_a_check():
    schema = Schema({"s": str})
    table = schema.read([{"s": "prefix-1"}])
    predicates = {id: parse(f"s = 'prefix-{id}'", schema) for id in range(20)}
    target, inner = Checks(schema), []

    class Interrupting(dict):
        def get(self, id, default=None):
            if id == 5:
                signal.raise_signal(signal.SIGUSR1)
            return super().get(id, default)

    before = signal.signal(signal.SIGUSR1, lambda *_: inner.append(decided(target, predicates, table)))
    try:
        verdicts = decided(target, Interrupting(predicates), table)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (inner[0] == ASK).all()
    assert np.array_equal(verdicts, np.where(truth(predicates, table), YES, NO))


@decided_by_any_way
def test_an_interrupt_leaves_what_was_written_down(decided):
    schema = Schema({"s": str})
    table = schema.read([{"s": "prefix-1"}])
    predicates = {id: parse(f"s = 'prefix-{id}'", schema) for id in range(20)}
    target = Checks(schema)

    class Interrupted(dict):
        def get(self, id, default=None):
            if id == 5:
                raise KeyboardInterrupt
            return super().get(id, default)

    with pytest.raises(KeyboardInterrupt):
        decided(target, Interrupted(predicates), table)
    assert np.array_equal(decided(target, predicates, table), np.where(truth(predicates, table), YES, NO))


def test_several_threads_decide_at_once():
    schema = Schema({"s": str})
    table = schema.read([{"s": f"prefix-{row}"} for row in range(8)])
    predicates = {id: parse(f"s = 'prefix-{id % 10}'", schema) for id in range(500)}
    wanted = np.where(truth(predicates, table), YES, NO)
    target, wrong = Checks(schema), []

    def run(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            handles = np.sort(rng.choice(500, 60, replace=False))
            verdicts = decided(target, predicates, table, handles=handles.tolist())
            known = verdicts != ASK
            if not np.array_equal(verdicts[known], wanted[:, handles][known]):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_interrupted_clearing_leaves_no_condition_without_its_column(monkeypatch):
    schema = Schema({"s": str, "t": str})
    of = {7: "s <> 'a' AND s <> 'a long text' AND s <> 'b'", 8: "t = 'a long text'"}
    predicates = {handle: parse(where, schema) for handle, where in of.items()}
    event, own = schema.read([{"s": "another one", "t": "a long text"}]), Checks(schema)

    def verdicts(*handles):
        return own.decide(np.array(handles), np.zeros(len(handles), np.int64), event, None, predicates.get)

    def interrupted():
        raise KeyboardInterrupt

    assert verdicts(7, 8).tolist() == [YES, YES]
    with monkeypatch.context() as patch:
        patch.setattr(checks, "_nothing", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.forget(np.array([7]))
    assert verdicts(8).tolist() == [YES]
    assert own.decide_one(np.array([8]), np.zeros(1, np.uint8), event, predicates.get).tolist() == [YES]
