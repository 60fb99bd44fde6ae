"""Ends in columns by id: what is looked up is what was added and not removed."""

import numpy as np
import pytest

from lengths import long_but
from rtfilter.predicates.bounds.ends import NO_ENDS, Ends, EndStore


def drawn(rng, ids):
    """Up to three ends for each id."""
    owners = np.repeat(np.sort(ids), rng.integers(1, 4, len(ids)))
    sides = np.arange(len(owners)) % 3
    return Ends(owners, sides, rng.normal(size=len(owners)), rng.integers(-9, 9, len(owners)))


def told(ends, at):
    return sorted(tuple(column[at].item() for column in ends[1:]) for at in np.flatnonzero(ends.owners == at))


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1, 10**15])
@pytest.mark.parametrize("seed", long_but(range(3), [0]))
def test_a_store_remembers_what_a_dict_would(seed, apart):
    """Ids that follow each other, and ids that lie far apart."""
    rng = np.random.default_rng(seed)
    store, model = EndStore(), {}
    for step in range(60):
        free = np.setdiff1d(np.arange(300) * apart, list(model))
        if rng.random() < 0.6:
            new = drawn(rng, rng.permutation(free)[: rng.integers(0, 20)])
            store.add(new)
            model |= {id: told(new, id) for id in np.unique(new.owners).tolist()}
        else:
            gone = rng.integers(0, 300, rng.integers(0, 60)) * apart
            store.remove(gone)
            store.remove(gone[:3])
            for id in gone.tolist():
                model.pop(id, None)
        if step % 20 == 19:
            store = EndStore.from_arrays({"other": np.zeros(1)} | store.to_arrays())
        assert bool(store) == bool(model)
        asked = rng.integers(-1, 301, 50) * apart
        found = store.find(asked)
        for place, id in enumerate(asked.tolist()):
            own = [one for at, places, ends in found for one in told(ends.take(places[at == place]), id)]
            assert sorted(own) == model.get(id, [])
            assert sum((at == place).sum() for at, _, _ in found) == len(model.get(id, []))
        some = store.of(np.unique(asked))
        assert (np.diff(some.owners) >= 0).all()
        assert {id: told(some, id) for id in np.unique(some.owners).tolist()} == {
            id: model[id] for id in model if id in asked
        }


def test_an_empty_store_saves_nothing():
    """So that a filter without such ends is read by versions that do not know of them."""
    store = EndStore()
    assert store.to_arrays() == {}
    assert not store
    assert len(store.of(np.array([1])).owners) == 0
    store.add(NO_ENDS)
    store.add(Ends(np.array([5]), np.array([0]), np.array([1e300]), np.array([0])))
    assert store
    store.remove(np.array([5]))
    assert not store
    assert store.to_arrays() == {}
