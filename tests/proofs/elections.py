"""Every interleaving of elections of up to four members."""

from collections import Counter

from overlay.membership.exploration import Bounds, Explorer

CASES = [
    (4, 5, "settled", Bounds(crashes=2, returns=1, time_outs=2)),  # an election's heartbeats, and two answers
    (4, None, "settled", Bounds(crashes=2, returns=1, time_outs=1)),
    (4, None, "settled", Bounds(crashes=2, time_outs=2)),
    (4, None, "started", Bounds(time_outs=1)),
    (3, None, "settled", Bounds(crashes=2, returns=1, time_outs=2)),
    (3, None, "settled", Bounds(crashes=1, returns=1, time_outs=1, beats=1, drops=1)),
    (3, None, "started", Bounds(crashes=1, returns=1, time_outs=2)),
]


def run(seed: int) -> Counter[str]:
    """One set of bounds; counts the states and transitions."""
    size, most, begin, bounds = CASES[seed]
    explorer = Explorer(size, most)
    explorer.explore(getattr(explorer, begin)(bounds))
    assert explorer.most_rounds <= 3, "calm takes long to heal it"
    return Counter(
        states=explorer.states,
        transitions=explorer.transitions,
        **{f"states of {size} members {begin}, {_said(bounds, most)}": explorer.states},
    )


def _said(bounds: Bounds, most: int | None) -> str:
    said = [f"{count} {name.replace('_', '-')}" for name, count in bounds._asdict().items() if count]
    return ", ".join([*said, *([f"{most} messages under way"] if most else [])])
