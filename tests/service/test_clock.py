"""The time of day of the log."""

from rtfilter.service.stages import Clock


def test_it_goes_on_at_half_the_speed_while_the_clock_beneath_is_set_back():
    moments, passed = iter([5.0, 3.0, 4.0, 6.5]), iter([0.0, 0.0, 1.0, 2.0, 3.0])
    clock = Clock(lambda: next(moments), 4.5, lambda: next(passed))
    assert [clock() for _ in range(4)] == [5.0, 5.5, 6.0, 6.5]


def test_it_begins_where_the_log_ends():
    assert Clock(lambda: 3.0, 4.5, lambda: 0.0)() == 4.5


def test_what_arrived_before_has_its_own_moment_but_none_before_one_that_was_told():
    clock = Clock(lambda: 10.0, 0.0)
    assert [clock(3.0), clock(1.0), clock(2.0), clock()] == [7.0, 9.0, 9.0, 10.0]
