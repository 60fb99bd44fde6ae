"""A cluster for all tests of the stage on NATS."""

import pytest

from experiments import nats_cluster


@pytest.fixture(scope="session")
def cluster():
    """Three servers; a test that kills one starts it again."""
    with nats_cluster.cluster() as made:
        yield made
