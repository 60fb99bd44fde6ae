"""The short form of the proof `nats`: twenty seconds."""

import pytest

import nats_kills

pytestmark = pytest.mark.needs("nats")


def test_nothing_is_lost_or_wrong_while_servers_and_workers_are_killed():
    counts = nats_kills.run(20.0, 0)
    assert counts["events"] > 20
    assert counts["workers killed"] > 0
    assert counts["certain"] > counts["events"]
    assert counts["matches"] > 0
