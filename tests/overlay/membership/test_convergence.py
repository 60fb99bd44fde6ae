"""A network of memberships comes to one designated broker per cluster, one tree, and one root registered."""

import pytest

from overlay.membership.simulated import Network

BROKERS = ["a1", "a2", "a3", "b1", "b2", "c1", "d1", "d2", "e1", "f1"]


@pytest.mark.parametrize("seed", range(5))
def test_a_new_network_becomes_one_tree(seed):
    network = Network(BROKERS, seed)
    network.run(10)
    assert network.problems() == []
