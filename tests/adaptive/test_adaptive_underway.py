"""adaptive.underway: when a sample counts as lost."""

from rtfilter.adaptive.papers.underway import MOST, PATIENCE, UnderWay


def under_way(count):
    found = UnderWay()
    for serial in range(1, count + 1):
        found.add(serial, f"place {serial}")
    return found


def test_a_sample_is_lost_when_so_many_later_ones_have_been_reported():
    found = under_way(PATIENCE + 1)
    for serial in range(2, PATIENCE + 1):
        found.take(serial)
        assert found.lost() == []
    found.take(PATIENCE + 1)
    assert found.lost() == ["place 1"]
    assert found.take(1) is None


def test_earlier_samples_that_report_make_nobody_lost():
    found = under_way(200)
    for serial in range(1, 200):
        found.take(serial)
        assert found.lost() == []
    assert found.take(200) == "place 200"


def test_a_sample_that_reports_again_does_not_count():
    found = under_way(2)
    for _ in range(2 * PATIENCE):
        found.take(2)
        assert found.lost() == []


def test_beyond_the_largest_number_the_oldest_are_lost():
    found = under_way(MOST)
    assert found.lost() == []
    assert found.lost(room=2) == ["place 1", "place 2"]
    assert found.take(3) == "place 3"
