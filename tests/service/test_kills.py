"""What was acknowledged survives `kill -9`; and the checker that says so finds faults."""

import pytest

import postgresql
from lengths import long_but
from service.kills import FaultError, run
from service.kills.started import FAULTS, POINTS

pytestmark = pytest.mark.slow
NEEDED = {
    "settled_too_early": "after the commit:40",
    "end_not_told": "in the commit:40",
    "index_alone": "before an index is written:2",
}
"""Where the server has to be killed so that a fault shows soon."""


@pytest.mark.parametrize("point", long_but(POINTS, ("told, and progress not written",)))
def test_nothing_is_lost_where_the_server_is_killed_at(point, tmp_path):
    done = run(tmp_path, 1, seed=POINTS.index(point), kill_at=point)
    assert done[f"killed {point}"]
    assert done["deliveries"]


@pytest.mark.long
@pytest.mark.needs("postgresql")
def test_nothing_is_lost_on_postgresql(tmp_path):
    with postgresql.running() as there:
        assert run(tmp_path, 1, 0, there.url, kill_at="in the commit")["deliveries"]


@pytest.mark.parametrize("fault", long_but([fault.__name__ for fault in FAULTS], ("lost_mark",)))
def test_the_checker_finds(fault, tmp_path):
    for seed in range(20):  # on a busy machine little is acknowledged, and one run may miss the fault
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            run(folder, 4, seed, fault=fault, kill_at=NEEDED.get(fault))
        except FaultError:
            return
    pytest.fail("no run has found it")
