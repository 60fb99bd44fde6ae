"""The answers of the engine to a message of a match."""

from types import SimpleNamespace

import pytest

from rtfilter.nats.bucket import _Cluster, _Replica
from rtfilter.nats.publisher import _refused


@pytest.mark.parametrize(
    ("data", "stored"),
    [
        (b'{"stream": "matches", "seq": 5}', True),
        (b'{"stream": "matches", "seq": 5, "duplicate": true}', True),
        (b'{"stream": "matches", "seq": 0, "duplicate": true}', False),
        (b'{"error": {"code": 503, "description": "insufficient resources"}}', False),
    ],
)
def test_only_what_is_stored_counts(data, stored):
    assert (_refused(SimpleNamespace(data=data, headers=None)) is None) == stored


def test_without_a_stream_nothing_is_stored():
    assert "no stream" in _refused(SimpleNamespace(data=b"", headers={"Status": "503"}))


@pytest.mark.parametrize(
    ("seconds", "believed"), [([], True), ([0.5, 2.9], True), ([0.5, 3.1], False), ([0.5, 0.0], False)]
)
def test_a_leader_is_believed_if_it_has_heard_from_all_others(seconds, believed):
    replicas = [_Replica(active=round(one * 1e9)) for one in seconds]
    assert _Cluster("a", replicas).is_followed() == believed
