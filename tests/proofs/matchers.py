"""Every registered matcher in random worlds."""

from collections import Counter

from rtfilter.matchers import MATCHERS, check_matcher


def run(seed: int) -> Counter[str]:
    """One world, for each matcher."""
    for name in MATCHERS:
        check_matcher(name, seed + 1000, rounds=4)
    return Counter(dict.fromkeys(MATCHERS, 1))
