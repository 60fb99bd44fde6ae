"""What was acknowledged survives `kill -9`, and reaches whom it should."""

import pytest

from service import kills


@pytest.mark.slow
def test_nothing_is_lost_or_misdirected_where_the_server_is_killed(tmp_path):
    done = kills.run(tmp_path, 3, seed=1)
    assert done.events
    assert done.delivered
