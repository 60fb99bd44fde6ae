"""The page on the contest: its parts are those of the kept numbers."""

import re

from experiments.contest import tables
from experiments.contest.run import KEPT, PAGE
from experiments.output import content


def test_parts_are_those_of_the_kept_numbers():
    page = PAGE.read_text(encoding="utf-8")
    assert tables.filled(page, content(KEPT)) == page


def test_all_parts_are_on_the_page():
    names = re.findall(r"<!-- ([a-z-]+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(names) - {"end"}) == sorted([*tables.PARTS, "machine", "settings"])
