"""Every registered matcher in random worlds."""

from collections import Counter

from rtfilter.matchers import MATCHERS, check_matcher


def run(seed: int) -> Counter[str]:
    """One world, for each matcher."""
    return tried(list(MATCHERS), seed)


def some(seed: int) -> Counter[str]:
    """One world, for every third matcher: others for the next of every tenth seeds."""
    return tried(list(MATCHERS)[seed // 10 % 3 :: 3], seed)


def tried(names: list[str], seed: int) -> Counter[str]:
    """One world, for some matchers."""
    for name in names:
        check_matcher(name, seed + 1000, rounds=4)
    return Counter(names)
