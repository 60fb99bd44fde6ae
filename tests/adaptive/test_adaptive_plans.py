"""adaptive.plans: plans and tickets are checked values."""

import pytest

from rtfilter.adaptive import Plan, Ticket


@pytest.mark.parametrize(
    ("level", "group", "message"),
    [(-1, 1, "a level counts down from the root"), (0, 0, "at least 1 event"), (0, -4, "at least 1 event")],
)
def test_impossible_plans_are_refused(level, group, message):
    with pytest.raises(ValueError, match=message):
        Plan(level, group)


def test_plans_and_tickets_are_values():
    assert len({Ticket(Plan(1, None), 64), Ticket(Plan(1, None), 64), Ticket(Plan(1, 1), 64)}) == 2
