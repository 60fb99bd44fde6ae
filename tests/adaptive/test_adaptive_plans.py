"""adaptive.plans: plans and tickets are checked values."""

import numpy as np
import pytest

from cases import cases
from rtfilter.adaptive import Plan, Report, Ticket


@pytest.mark.parametrize(
    ("level", "group", "message"),
    [(-1, 1, "a level counts down from the root"), (0, 0, "at least 1 event"), (0, -4, "at least 1 event")],
)
def test_impossible_plans_are_refused(level, group, message):
    with pytest.raises(ValueError, match=message):
        Plan(level, group)


def test_plans_and_tickets_are_values():
    assert len({Ticket(Plan(1, None), 64), Ticket(Plan(1, None), 64), Ticket(Plan(1, 1), 64)}) == 2


def test_levels_and_groups_are_whole():
    assert Plan(np.int64(1), np.int32(4)) == Plan(1, 4)
    assert [type(part) for part in (Plan(np.int64(1), 4).level, Plan(1, np.int64(4)).group)] == [int, int]
    with pytest.raises(TypeError):
        Plan(1.5, 2)


@cases(
    "fields",
    [
        {"size": 0},
        {"size": 4, "unfinished": 5},
        {"size": 4, "unfinished": -1},
        {"size": 4, "groups": 0},
        {"size": 4, "groups": -1, "unfinished": 4},
        {"size": 4, "visits": -3},
    ],
)
def test_impossible_reports_are_refused(fields):
    with pytest.raises(ValueError, match=r"unfinished|negative"):
        Report(1.0, **fields)
