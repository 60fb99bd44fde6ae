"""A minute of a server at work: nothing is lost or misdirected, and what it takes stays the same."""

import pytest

from service.kills import FaultError
from service.soak import run

pytestmark = [pytest.mark.slow, pytest.mark.long]
WARM = 4000
"""Bytes an entry by which a server may grow in its first seconds; the long form says how little later."""


def test_nothing_is_lost_and_memory_is_flat(tmp_path):
    done = run(tmp_path, seed=0, restarts=8.0, steady=15.0, most=WARM)
    assert done["killed"] + done["ended in good order"]
    assert done["deliveries"]


def test_a_leak_is_seen(tmp_path):
    with pytest.raises(FaultError, match="bytes of memory"):
        run(tmp_path, seed=0, restarts=0.0, steady=10.0, leak=2 * WARM, most=WARM)
