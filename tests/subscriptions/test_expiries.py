"""The column of deadlines, against a dict."""

from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rtfilter.subscriptions import expiries
from rtfilter.subscriptions.expiries import Expiries

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**63 - 2))
AT = st.one_of(st.integers(0, 20).map(float), st.just(inf))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, AT),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.just("many"), st.dictionaries(KEYS, AT, max_size=90)),
        st.tuples(st.just("sweep"), st.integers(0, 20), st.integers(1, 9)),
    ),
    max_size=30,
)


def check(made: Expiries, model: dict[int, float]) -> None:
    asked = np.array([*model, 5, 2**62], np.int64)
    expected = [model.get(handle, inf) for handle in asked.tolist()]
    assert made.of(asked).tolist() == expected
    assert [made.get(handle) for handle in asked.tolist()] == expected
    handles, at = made.content()
    assert dict(zip(handles.tolist(), at.tolist(), strict=True)) == model
    assert handles.tolist() == sorted(model)
    assert made.earliest <= min(model.values(), default=inf)
    for moment in (-inf, 0.0, 10.0, 30.0):
        gone = {handle for handle, deadline in model.items() if deadline <= moment}
        assert set(made.all_passed(moment).tolist()) == gone
        assert len(made.all_passed(moment)) == len(gone)
        passed = made.passed(asked, moment)
        assert set(asked[passed].tolist() if passed is not None else []) == gone
        assert (made.get(5) <= moment) == (5 in gone)


@settings(max_examples=60)
@given(STEPS)
def test_any_steps_give_what_a_dict_gives(steps):
    made, model = Expiries(), {}
    for step in steps:
        if step[0] == "put":
            made.put(*step[1:])
            model[step[1]] = step[2]
        elif step[0] == "remove":
            made.remove(step[1])
            model.pop(step[1], None)
        elif step[0] == "many":
            made.put_many(np.array(list(step[1]), np.int64), np.array(list(step[1].values()), np.float64))
            model |= step[1]
        else:
            found = made.next_passed(step[1], step[2]).tolist()
            assert len(found) <= step[2]
            assert all(model[handle] <= step[1] for handle in found)
            for handle in found:
                made.remove(handle)
                del model[handle]
        model = {handle: deadline for handle, deadline in model.items() if deadline < inf}
    check(made, model)
    check(Expiries(*made.content()), model)


def test_sweeping_finds_all_and_then_need_not_look(monkeypatch):
    monkeypatch.setattr(expiries, "SCAN", 16)
    made = Expiries(np.arange(1000), np.where(np.arange(1000) % 3, 5.0, 50.0))
    found = []
    for _ in range(1000):
        some = made.next_passed(5.0, 8)
        assert len(some) <= 8
        found += some.tolist()
        for handle in some.tolist():
            made.remove(handle)
    assert sorted(found) == [handle for handle in range(1000) if handle % 3]
    assert made.earliest == 50.0


def test_a_deadline_that_comes_while_all_are_swept_is_not_missed(monkeypatch):
    monkeypatch.setattr(expiries, "SCAN", 16)
    made = Expiries(np.arange(100), np.full(100, 50.0))
    made.put(7, 3.0)
    for step in range(40):
        for handle in made.next_passed(3.0, 1).tolist():
            made.remove(handle)
        if step == 5:
            made.put(2000, 4.0)
    assert made.earliest == 4.0


def test_renewing_takes_no_memory():
    made = Expiries()
    for at in range(5000):
        made.put(at % 10, float(at + 1))
    assert len(made._table[0]) < 200


def test_handles_that_come_and_go_take_no_memory():
    made = Expiries()
    for handle in range(5000):
        made.put(handle, 1.0)
        made.remove(handle - 10 if handle >= 10 else 10**9)
    assert len(made._table[0]) < 200
