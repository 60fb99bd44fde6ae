"""Networks of brokers after random crashes, returns, partitions, losses and duplicates."""

from collections import Counter

from overlay.membership.test_convergence import converges


def run(seed: int) -> Counter[str]:
    """One history; counts how many heartbeats it took to converge."""
    took = converges(seed, loss=(0.0, 0.1, 0.3)[seed % 3])
    return Counter({"histories": 1, f"converged within {took // 10 * 10 + 10:2} heartbeats": 1})
