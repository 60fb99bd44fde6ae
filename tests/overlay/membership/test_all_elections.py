"""Every interleaving of small elections; the longer ones are a proof (`make prove`)."""

import pytest

from overlay.membership.exploration import Bounds, Explorer

SMALL = [
    (3, "settled", Bounds(crashes=1, returns=1, time_outs=1)),
    (3, "settled", Bounds(crashes=1, time_outs=1, beats=1, drops=1)),
    (3, "started", Bounds(time_outs=2)),
    (4, "settled", Bounds(crashes=1, time_outs=2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "begin", "bounds"), SMALL)
def test_every_state_of_a_small_election_is_sound_and_heals(size, begin, bounds):
    explorer = Explorer(size)
    explorer.explore(getattr(explorer, begin)(bounds))
    print(f"{size} members {begin}, {bounds}: {explorer.states} states, {explorer.transitions} transitions")
    assert explorer.states > 1000
    assert explorer.most_rounds <= 3
