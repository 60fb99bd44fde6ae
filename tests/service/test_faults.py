"""A full disk, a lost database, a set clock, dead connections, hanging webhooks: nothing answered is lost."""

import pytest

import postgresql
from service.faults import clock, connections, database, disk, webhooks

pytestmark = pytest.mark.slow
LONG = pytest.mark.long


@pytest.mark.long
def test_a_full_database_refuses_and_loses_nothing(tmp_path):
    assert disk.run(tmp_path, 0, seconds=1.0)["full pages"]


def test_a_full_disk_refuses_and_loses_nothing(tmp_path):
    if not disk.run(tmp_path, 1, seconds=0.5)["full disk"]:
        pytest.skip("only root may mount a disk")


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("seed", [pytest.param(0, id="crashes"), pytest.param(1, id="freezes", marks=LONG)])
def test_a_database_that_comes_back_has_lost_nothing(tmp_path, seed):
    with postgresql.running() as there:
        assert database.run(tmp_path, seed, there, seconds=0.5)


@pytest.mark.long
def test_a_clock_that_is_set_loses_nothing_and_stops_nothing(tmp_path):
    assert clock.run(tmp_path, 0, steps=3)["restarts"]


@pytest.mark.parametrize("seed", [pytest.param(0, id="websocket"), pytest.param(1, id="tcp", marks=LONG)])
def test_a_dead_connection_is_closed_and_the_next_one_has_its_deliveries(tmp_path, seed):
    assert connections.run(tmp_path, seed, times=1)


@pytest.mark.parametrize("seed", [pytest.param(0, id="silent"), pytest.param(1, id="dripping", marks=LONG)])
def test_webhooks_that_hang_hold_nobody_up_and_miss_nothing(tmp_path, seed):
    assert webhooks.run(tmp_path, seed, rounds=3)
